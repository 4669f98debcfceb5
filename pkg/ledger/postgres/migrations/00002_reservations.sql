-- Reservations and the allocations under them. The transitions are those of ledger/transitions.go; a test compares.
-- +goose Up

CREATE TABLE reservation (
    uid                text PRIMARY KEY,
    account            text NOT NULL REFERENCES account (name),
    workload_kind      text NOT NULL,
    workload_namespace text NOT NULL,
    workload_name      text NOT NULL,
    class              text NOT NULL,
    rate_version       bigint NOT NULL,
    rate               bigint NOT NULL,
    max_gpus           bigint NOT NULL,
    gpu_seconds        bigint NOT NULL,
    amount             bigint NOT NULL,
    charged            bigint NOT NULL,
    state              text NOT NULL,
    reason             text NOT NULL,
    created_at         timestamptz NOT NULL,
    closed_at          timestamptz,
    FOREIGN KEY (class, rate_version) REFERENCES rate (class, version),
    CONSTRAINT reservation_state_is_known CHECK (state IN ('Held', 'Active', 'Settled', 'Released', 'Expired')),
    CONSTRAINT reservation_is_closed_when_it_ends CHECK ((state IN ('Held', 'Active')) = (closed_at IS NULL)),
    CONSTRAINT reservation_amount_is_its_price CHECK (amount::numeric = rate::numeric * gpu_seconds::numeric),
    CONSTRAINT reservation_amount_is_positive CHECK (amount > 0 AND max_gpus > 0),
    CONSTRAINT reservation_charged_is_not_negative CHECK (charged >= 0)
);
CREATE INDEX reservation_by_account ON reservation (account, created_at);
CREATE INDEX reservation_open ON reservation (uid) WHERE state IN ('Held', 'Active');

CREATE TABLE allocation (
    pod_uid       text PRIMARY KEY,
    pod_namespace text NOT NULL,
    pod_name      text NOT NULL,
    reservation   text NOT NULL REFERENCES reservation (uid),
    account       text NOT NULL REFERENCES account (name),
    node          text NOT NULL,
    class         text NOT NULL,
    rate_version  bigint NOT NULL,
    rate          bigint NOT NULL,
    gpus          bigint NOT NULL,
    gpu_uuids     text[] NOT NULL,
    leader_epoch  bigint NOT NULL,
    state         text NOT NULL,
    intended_at   timestamptz NOT NULL,
    started_at    timestamptz,
    ended_at      timestamptz,
    last_seen     timestamptz,
    charged       bigint NOT NULL,
    CONSTRAINT allocation_state_is_known CHECK (
        state IN ('Intended', 'Released', 'Bound', 'Metering', 'Suspect', 'Ended')),
    CONSTRAINT allocation_is_metered_from_its_start CHECK (state <> 'Metering' OR started_at IS NOT NULL),
    CONSTRAINT allocation_ends_after_its_start CHECK (ended_at >= started_at),
    CONSTRAINT allocation_has_gpus CHECK (gpus > 0),
    CONSTRAINT allocation_charged_is_not_negative CHECK (charged >= 0)
);
CREATE INDEX allocation_by_reservation ON allocation (reservation);
CREATE INDEX allocation_open ON allocation (reservation) WHERE state NOT IN ('Ended', 'Released');

-- One update may carry a row through several transitions, since a batch is written once: these are the states that can
-- be reached in one or more steps.
CREATE FUNCTION reservation_may_reach(old_state text, new_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (old_state, new_state) IN (
        ('Held', 'Active'), ('Held', 'Settled'), ('Held', 'Released'), ('Held', 'Expired'),
        ('Active', 'Settled'))
$$;

CREATE FUNCTION allocation_may_reach(old_state text, new_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (old_state, new_state) IN (
        ('Intended', 'Released'), ('Intended', 'Bound'), ('Intended', 'Metering'), ('Intended', 'Suspect'), ('Intended', 'Ended'),
        ('Released', 'Intended'), ('Released', 'Bound'), ('Released', 'Metering'), ('Released', 'Suspect'), ('Released', 'Ended'),
        ('Bound', 'Metering'), ('Bound', 'Suspect'), ('Bound', 'Ended'),
        ('Metering', 'Bound'), ('Metering', 'Suspect'), ('Metering', 'Ended'),
        ('Suspect', 'Bound'), ('Suspect', 'Metering'), ('Suspect', 'Ended'))
$$;

-- I5: no client gets a reservation out of a final state.
CREATE TRIGGER reservation_ends_once BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN (old.state <> new.state AND NOT reservation_may_reach(old.state, new.state))
    EXECUTE FUNCTION refuse_change();

CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.class, old.rate_version, old.rate, old.max_gpus, old.gpu_seconds, old.amount, old.created_at)
        IS DISTINCT FROM
        (new.uid, new.account, new.class, new.rate_version, new.rate, new.max_gpus, new.gpu_seconds, new.amount, new.created_at))
    EXECUTE FUNCTION refuse_change();

CREATE TRIGGER reservation_is_never_deleted BEFORE DELETE ON reservation
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER allocation_moves_by_the_rules BEFORE UPDATE ON allocation FOR EACH ROW
    WHEN (old.state <> new.state AND NOT allocation_may_reach(old.state, new.state))
    EXECUTE FUNCTION refuse_change();

-- An allocation keeps its payer, and once it has started also its price and its start, which charges count from (I4, L22).
CREATE TRIGGER allocation_terms_never_change BEFORE UPDATE ON allocation FOR EACH ROW
    WHEN ((old.pod_uid, old.reservation, old.account) IS DISTINCT FROM (new.pod_uid, new.reservation, new.account)
        OR old.started_at IS NOT NULL AND (old.started_at, old.rate, old.gpus) IS DISTINCT FROM (new.started_at, new.rate, new.gpus))
    EXECUTE FUNCTION refuse_change();

CREATE TRIGGER allocation_is_never_deleted BEFORE DELETE ON allocation
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE allocation;
DROP TABLE reservation;
DROP FUNCTION allocation_may_reach(text, text);
DROP FUNCTION reservation_may_reach(text, text);
