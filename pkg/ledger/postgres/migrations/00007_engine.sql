-- What the write path costs. Figures in docs/designs/ledger-core.md.
-- +goose Up

-- Names and keys are compared byte by byte wherever the database was made: the locale's rules cost several times as much,
-- and locks are taken in this order.
ALTER TABLE account ALTER COLUMN name TYPE text COLLATE "C", ALTER COLUMN parent TYPE text COLLATE "C";
ALTER TABLE rate ALTER COLUMN class TYPE text COLLATE "C";
ALTER TABLE command ALTER COLUMN key TYPE text COLLATE "C";
ALTER TABLE spending ALTER COLUMN account TYPE text COLLATE "C";
ALTER TABLE leadership ALTER COLUMN name TYPE text COLLATE "C";
ALTER TABLE node_agent ALTER COLUMN node TYPE text COLLATE "C";
ALTER TABLE entry
    ALTER COLUMN event_key TYPE text COLLATE "C", ALTER COLUMN debit TYPE text COLLATE "C", ALTER COLUMN credit TYPE text COLLATE "C",
    ALTER COLUMN spender TYPE text COLLATE "C", ALTER COLUMN allocation TYPE text COLLATE "C";

-- References are checked once for all rows of a statement, not row by row with a lock on each referenced row: per hold that cost
-- more than everything else. Whoever writes has locked the accounts, and nothing that is referenced is ever deleted, but for
-- accounts, which account_with_reservations_stays guards.
ALTER TABLE reservation DROP CONSTRAINT reservation_account_fkey, DROP CONSTRAINT reservation_class_rate_version_fkey;
ALTER TABLE allocation DROP CONSTRAINT allocation_reservation_fkey, DROP CONSTRAINT allocation_account_fkey;
ALTER TABLE metered_interval DROP CONSTRAINT metered_interval_pod_uid_fkey;
ALTER TABLE device_hold DROP CONSTRAINT device_hold_pod_uid_fkey;

DROP TRIGGER reservation_terms_never_change ON reservation;
DROP TRIGGER allocation_terms_never_change ON allocation;
ALTER TABLE reservation
    ALTER COLUMN uid TYPE text COLLATE "C", ALTER COLUMN account TYPE text COLLATE "C", ALTER COLUMN payer TYPE text COLLATE "C",
    ALTER COLUMN class TYPE text COLLATE "C",
    DROP CONSTRAINT reservation_amount_is_its_price,
    -- bigint: a product out of range is an error, hence refused too.
    ADD CONSTRAINT reservation_amount_is_its_price CHECK (amount = rate * gpu_seconds);
ALTER TABLE allocation
    ALTER COLUMN pod_uid TYPE text COLLATE "C", ALTER COLUMN reservation TYPE text COLLATE "C", ALTER COLUMN account TYPE text COLLATE "C";
ALTER TABLE metered_interval ALTER COLUMN pod_uid TYPE text COLLATE "C";
ALTER TABLE device_hold ALTER COLUMN pod_uid TYPE text COLLATE "C", ALTER COLUMN gpu_uuid TYPE text COLLATE "C";
CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.payer, old.class, old.rate_version, old.rate, old.max_gpus, old.created_at)
        IS DISTINCT FROM
        (new.uid, new.account, new.payer, new.class, new.rate_version, new.rate, new.max_gpus, new.created_at)
        OR new.gpu_seconds < old.gpu_seconds)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER allocation_terms_never_change BEFORE UPDATE ON allocation FOR EACH ROW
    WHEN ((old.pod_uid, old.reservation, old.account) IS DISTINCT FROM (new.pod_uid, new.reservation, new.account)
        OR old.started_at IS NOT NULL AND (old.started_at, old.rate, old.gpus) IS DISTINCT FROM (new.started_at, new.rate, new.gpus))
    EXECUTE FUNCTION refuse_change();

-- +goose StatementBegin
CREATE FUNCTION refuse_unknown_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM (SELECT DISTINCT account FROM added) n WHERE NOT EXISTS (SELECT FROM account a WHERE a.name = n.account))
        OR EXISTS (SELECT FROM (SELECT DISTINCT payer FROM added) n WHERE NOT EXISTS (SELECT FROM account a WHERE a.name = n.payer))
        OR EXISTS (SELECT FROM (SELECT DISTINCT class, rate_version FROM added) n
                   WHERE NOT EXISTS (SELECT FROM rate r WHERE r.class = n.class AND r.version = n.rate_version)) THEN
        RAISE EXCEPTION 'a reservation names an account or a rate that does not exist'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION refuse_unknown_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM added n WHERE NOT EXISTS (SELECT FROM reservation r WHERE r.uid = n.reservation AND r.account = n.account)) THEN
        RAISE EXCEPTION 'an allocation names a reservation that does not exist, or one of another account'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION refuse_unknown_pod() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM (SELECT DISTINCT pod_uid FROM added) n WHERE NOT EXISTS (SELECT FROM allocation a WHERE a.pod_uid = n.pod_uid)) THEN
        RAISE EXCEPTION 'a row of % names a pod that has no allocation', TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION refuse_removal_with_reservations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM reservation r WHERE r.account = old.name) THEN
        RAISE EXCEPTION 'account % has reservations', old.name
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN old;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER reservation_names_what_exists AFTER INSERT ON reservation
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unknown_terms();
CREATE TRIGGER allocation_names_its_reservation AFTER INSERT ON allocation
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unknown_reservation();
CREATE TRIGGER interval_names_its_allocation AFTER INSERT ON metered_interval
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unknown_pod();
CREATE TRIGGER device_hold_names_its_allocation AFTER INSERT ON device_hold
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unknown_pod();
CREATE TRIGGER account_with_reservations_stays BEFORE DELETE ON account
    FOR EACH ROW EXECUTE FUNCTION refuse_removal_with_reservations();

-- I3. An exclusion constraint said the same and took five times as long per interval, since it searches an R-tree; nor could it
-- be had on a partitioned table before PostgreSQL 17. Intervals of a pod that do not overlap are in the same order by start and
-- by end, so only the neighbours of a new one need a look. The allocation's row is locked first: of two clients that insert at
-- once, the second looks when the first has committed. In a snapshot that is older than the lock it would not see the first one's
-- rows, so REPEATABLE READ is refused; SERIALIZABLE finds the conflict by itself.
ALTER TABLE metered_interval DROP CONSTRAINT interval_overlaps_no_other_of_its_pod;
-- +goose StatementBegin
CREATE FUNCTION refuse_overlap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'repeatable read' THEN
        RAISE EXCEPTION 'intervals cannot be inserted under REPEATABLE READ, which does not see what others insert meanwhile'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    PERFORM FROM allocation WHERE pod_uid IN (SELECT pod_uid FROM added) ORDER BY pod_uid FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM added n, LATERAL (
            (SELECT i.started_at, i.ended_at FROM metered_interval i
             WHERE i.pod_uid = n.pod_uid AND i.started_at < n.started_at ORDER BY i.started_at DESC LIMIT 1)
            UNION ALL
            (SELECT i.started_at, i.ended_at FROM metered_interval i
             WHERE i.pod_uid = n.pod_uid AND i.started_at > n.started_at ORDER BY i.started_at LIMIT 1)
        ) o WHERE o.started_at < n.ended_at AND n.started_at < o.ended_at
    ) THEN
        RAISE EXCEPTION 'an interval overlaps another one of its pod'
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER interval_overlaps_no_other_of_its_pod AFTER INSERT ON metered_interval
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_overlap();
-- What is inserted is looked at, so nothing may come in by another way.
CREATE TRIGGER interval_is_never_edited BEFORE UPDATE ON metered_interval
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- One index serves statements (an account's reservations that were open since a moment) and the open ones (closed_at is null).
DROP INDEX reservation_by_account;
DROP INDEX reservation_open;
DROP INDEX reservation_open_by_payer;
CREATE INDEX reservation_by_account ON reservation (account, closed_at);

-- With no index on what every commit changes, an account's row is updated within its page (HOT). Who asks for changes reads all.
DROP INDEX account_by_revision;
ALTER TABLE account SET (fillfactor = 50);
-- Charges change these rows several times in their lives, likewise within their page.
ALTER TABLE reservation SET (fillfactor = 70);
ALTER TABLE allocation SET (fillfactor = 70);

-- +goose Down
ALTER TABLE account RESET (fillfactor);
ALTER TABLE reservation RESET (fillfactor);
ALTER TABLE allocation RESET (fillfactor);
DROP TRIGGER interval_is_never_edited ON metered_interval;
DROP TRIGGER interval_overlaps_no_other_of_its_pod ON metered_interval;
DROP FUNCTION refuse_overlap();
CREATE INDEX account_by_revision ON account (revision);
DROP INDEX reservation_by_account;
CREATE INDEX reservation_open_by_payer ON reservation (payer) WHERE state IN ('Held', 'Active');
CREATE INDEX reservation_open ON reservation (uid) WHERE state IN ('Held', 'Active');
CREATE INDEX reservation_by_account ON reservation (account, created_at);
DROP TRIGGER account_with_reservations_stays ON account;
DROP TRIGGER device_hold_names_its_allocation ON device_hold;
DROP TRIGGER interval_names_its_allocation ON metered_interval;
DROP TRIGGER allocation_names_its_reservation ON allocation;
DROP TRIGGER reservation_names_what_exists ON reservation;
DROP FUNCTION refuse_removal_with_reservations();
DROP FUNCTION refuse_unknown_pod();
DROP FUNCTION refuse_unknown_reservation();
DROP FUNCTION refuse_unknown_terms();
ALTER TABLE reservation DROP CONSTRAINT reservation_amount_is_its_price,
    ADD CONSTRAINT reservation_amount_is_its_price CHECK (amount::numeric = rate::numeric * gpu_seconds::numeric);
DROP TRIGGER allocation_terms_never_change ON allocation;
DROP TRIGGER reservation_terms_never_change ON reservation;
ALTER TABLE device_hold ALTER COLUMN pod_uid TYPE text COLLATE "default", ALTER COLUMN gpu_uuid TYPE text COLLATE "default";
ALTER TABLE metered_interval ALTER COLUMN pod_uid TYPE text COLLATE "default";
ALTER TABLE allocation
    ALTER COLUMN pod_uid TYPE text COLLATE "default", ALTER COLUMN reservation TYPE text COLLATE "default", ALTER COLUMN account TYPE text COLLATE "default";
ALTER TABLE reservation
    ALTER COLUMN uid TYPE text COLLATE "default", ALTER COLUMN account TYPE text COLLATE "default", ALTER COLUMN payer TYPE text COLLATE "default",
    ALTER COLUMN class TYPE text COLLATE "default";
CREATE TRIGGER allocation_terms_never_change BEFORE UPDATE ON allocation FOR EACH ROW
    WHEN ((old.pod_uid, old.reservation, old.account) IS DISTINCT FROM (new.pod_uid, new.reservation, new.account)
        OR old.started_at IS NOT NULL AND (old.started_at, old.rate, old.gpus) IS DISTINCT FROM (new.started_at, new.rate, new.gpus))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.payer, old.class, old.rate_version, old.rate, old.max_gpus, old.created_at)
        IS DISTINCT FROM
        (new.uid, new.account, new.payer, new.class, new.rate_version, new.rate, new.max_gpus, new.created_at)
        OR new.gpu_seconds < old.gpu_seconds)
    EXECUTE FUNCTION refuse_change();
ALTER TABLE entry
    ALTER COLUMN event_key TYPE text COLLATE "default", ALTER COLUMN debit TYPE text COLLATE "default", ALTER COLUMN credit TYPE text COLLATE "default",
    ALTER COLUMN spender TYPE text COLLATE "default", ALTER COLUMN allocation TYPE text COLLATE "default";
ALTER TABLE node_agent ALTER COLUMN node TYPE text COLLATE "default";
ALTER TABLE leadership ALTER COLUMN name TYPE text COLLATE "default";
ALTER TABLE spending ALTER COLUMN account TYPE text COLLATE "default";
ALTER TABLE command ALTER COLUMN key TYPE text COLLATE "default";
ALTER TABLE rate ALTER COLUMN class TYPE text COLLATE "default";
ALTER TABLE account ALTER COLUMN name TYPE text COLLATE "default", ALTER COLUMN parent TYPE text COLLATE "default";
ALTER TABLE device_hold ADD CONSTRAINT device_hold_pod_uid_fkey FOREIGN KEY (pod_uid) REFERENCES allocation (pod_uid);
ALTER TABLE metered_interval ADD CONSTRAINT interval_overlaps_no_other_of_its_pod EXCLUDE USING gist (
    pod_uid WITH =, tstzrange(started_at, ended_at, '[)') WITH &&);
ALTER TABLE metered_interval ADD CONSTRAINT metered_interval_pod_uid_fkey FOREIGN KEY (pod_uid) REFERENCES allocation (pod_uid);
ALTER TABLE allocation
    ADD CONSTRAINT allocation_reservation_fkey FOREIGN KEY (reservation) REFERENCES reservation (uid),
    ADD CONSTRAINT allocation_account_fkey FOREIGN KEY (account) REFERENCES account (name);
ALTER TABLE reservation
    ADD CONSTRAINT reservation_account_fkey FOREIGN KEY (account) REFERENCES account (name),
    ADD CONSTRAINT reservation_class_rate_version_fkey FOREIGN KEY (class, rate_version) REFERENCES rate (class, version);
