-- Policies with versions, payers beside spenders, lots, refunds, corrections, freezes. See docs/designs/ledger-rules.md.
-- +goose Up

-- The document of ledger.Policy, as JSON.
ALTER TABLE account
    ADD COLUMN policy          text   NOT NULL DEFAULT '{}',
    ADD COLUMN policy_version  bigint NOT NULL DEFAULT 1,
    ADD COLUMN frozen          text   NOT NULL DEFAULT '',
    ADD COLUMN held            bigint NOT NULL DEFAULT 0,
    ADD COLUMN running         bigint NOT NULL DEFAULT 0,
    ADD COLUMN subtree_held    bigint NOT NULL DEFAULT 0,
    ADD COLUMN subtree_running bigint NOT NULL DEFAULT 0,
    ADD COLUMN subtree_spent   bigint NOT NULL DEFAULT 0,
    ADD COLUMN spent_since     timestamptz,
    ADD COLUMN refilled_at     timestamptz,
    ADD COLUMN last_entry_at   timestamptz,
    ADD COLUMN due_at          timestamptz;
UPDATE account a SET
    policy = (jsonb_strip_nulls(jsonb_build_object(
        'overdraft_limit_microcredits', NULLIF(overdraft_limit, 0),
        'default_max_runtime_seconds', NULLIF(default_max_runtime_seconds, 0))))::text,
    held = reserved, subtree_held = subtree_reserved,
    running = (SELECT count(*) FROM reservation r WHERE r.account = a.name AND r.state = 'Active'),
    last_entry_at = (SELECT max(recorded_at) FROM entry e WHERE a.name IN (e.debit, e.credit));
UPDATE account a SET subtree_running = (
    WITH RECURSIVE subtree (name, running) AS (
        SELECT name, running FROM account WHERE name = a.name
        UNION ALL
        SELECT c.name, c.running FROM subtree s JOIN account c ON c.parent = s.name
    ) SELECT COALESCE(sum(running), 0) FROM subtree);
ALTER TABLE account
    DROP COLUMN overdraft_limit,
    DROP COLUMN default_max_runtime_seconds,
    ADD CONSTRAINT account_holds_and_runs_nothing_negative CHECK (held >= 0 AND running >= 0 AND subtree_held >= 0 AND subtree_running >= 0),
    ADD CONSTRAINT account_policy_counts_from_one CHECK (policy_version >= 1);
CREATE INDEX account_by_due ON account (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE account_policy (
    account text NOT NULL,
    version bigint NOT NULL,
    policy  text NOT NULL,
    set_at  timestamptz NOT NULL,
    PRIMARY KEY (account, version)
);
INSERT INTO account_policy (account, version, policy, set_at) SELECT name, 1, policy, now() FROM account;
CREATE TRIGGER policy_version_is_never_edited BEFORE UPDATE ON account_policy
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

ALTER TABLE reservation
    ADD COLUMN payer          text,
    ADD COLUMN policy_version bigint NOT NULL DEFAULT 1,
    -- What of the remaining amount comes out of lots, as JSON; empty for none.
    ADD COLUMN takes          text NOT NULL DEFAULT '';
UPDATE reservation SET payer = account;
ALTER TABLE reservation ALTER COLUMN payer SET NOT NULL;
CREATE INDEX reservation_open_by_payer ON reservation (payer) WHERE state IN ('Held', 'Active');

-- Renewals add to the amount, at the same rate.
DROP TRIGGER reservation_terms_never_change ON reservation;
CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.payer, old.class, old.rate_version, old.rate, old.max_gpus, old.created_at)
        IS DISTINCT FROM
        (new.uid, new.account, new.payer, new.class, new.rate_version, new.rate, new.max_gpus, new.created_at)
        OR new.gpu_seconds < old.gpu_seconds)
    EXECUTE FUNCTION refuse_change();

ALTER TABLE allocation
    ADD COLUMN refunded     bigint NOT NULL DEFAULT 0,
    ADD COLUMN refunded_for text   NOT NULL DEFAULT '',
    ADD CONSTRAINT allocation_refund_is_within_its_charge CHECK (refunded BETWEEN 0 AND charged),
    ADD CONSTRAINT allocation_refund_cause_is_known CHECK (refunded_for IN ('', 'Failed', 'Preempted', 'DeviceFault'));
CREATE TRIGGER allocation_is_refunded_once BEFORE UPDATE ON allocation FOR EACH ROW
    WHEN (old.refunded_for <> '' AND (old.refunded, old.refunded_for) IS DISTINCT FROM (new.refunded, new.refunded_for))
    EXECUTE FUNCTION refuse_change();

ALTER TABLE entry
    ADD COLUMN spender  text,
    ADD COLUMN corrects bigint,
    -- What of the amount left lots of the paying account, as JSON; empty for none.
    ADD COLUMN draws    text NOT NULL DEFAULT '',
    DROP CONSTRAINT entry_kind_is_known,
    DROP CONSTRAINT entry_charge_names_its_allocation;
ALTER TABLE entry DISABLE TRIGGER entry_is_append_only;
UPDATE entry SET spender = debit WHERE kind = 'Charge';
ALTER TABLE entry ENABLE TRIGGER entry_is_append_only;
ALTER TABLE entry
    ADD CONSTRAINT entry_kind_is_known CHECK (kind IN ('Grant', 'Refill', 'Expiry', 'Charge', 'Refund', 'Adjustment', 'Transfer')),
    ADD CONSTRAINT entry_charge_names_its_allocation CHECK (
        (kind IN ('Charge', 'Refund')) = (reservation IS NOT NULL AND allocation IS NOT NULL AND spender IS NOT NULL)),
    ADD CONSTRAINT entry_adjustment_has_a_reason CHECK (kind <> 'Adjustment' OR reason <> ''),
    ADD CONSTRAINT entry_corrects_by_adjustment CHECK (corrects IS NULL OR kind = 'Adjustment');
DROP INDEX entry_by_credit;
CREATE INDEX entry_by_credit ON entry (credit, recorded_at, id) WHERE credit NOT LIKE 'system:%';
DROP INDEX entry_by_debit;
CREATE INDEX entry_by_debit ON entry (debit, recorded_at, id) WHERE debit NOT LIKE 'system:%';
-- What a spender had paid by an account above it.
CREATE INDEX entry_by_spender ON entry (spender, recorded_at, id) WHERE spender <> debit AND spender <> credit;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_removal_with_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM entry WHERE debit = old.name AND debit NOT LIKE 'system:%')
        OR EXISTS (SELECT FROM entry WHERE credit = old.name AND credit NOT LIKE 'system:%')
        OR EXISTS (SELECT FROM entry WHERE spender = old.name AND spender <> debit AND spender <> credit) THEN
        RAISE EXCEPTION 'account % has entries', old.name
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN old;
END
$$;
-- +goose StatementEnd

CREATE TABLE lot (
    key        text PRIMARY KEY,
    account    text NOT NULL REFERENCES account (name),
    amount     bigint NOT NULL,
    free       bigint NOT NULL,
    held       bigint NOT NULL,
    expired    bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT lot_has_nothing_negative CHECK (free >= 0 AND held >= 0 AND expired >= 0),
    CONSTRAINT lot_has_no_more_than_its_amount CHECK (amount > 0 AND free::numeric + held + expired <= amount)
);
CREATE INDEX lot_in_play ON lot (account) WHERE free + held > 0;
CREATE TRIGGER lot_terms_never_change BEFORE UPDATE ON lot FOR EACH ROW
    WHEN ((old.key, old.account, old.amount, old.expires_at) IS DISTINCT FROM (new.key, new.account, new.amount, new.expires_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER lot_is_never_deleted BEFORE DELETE ON lot
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- A spender's charges less refunds by UTC day: what spending limits of moved accounts count, and what reports read.
CREATE TABLE spending (
    account text NOT NULL,
    day     timestamptz NOT NULL,
    amount  bigint NOT NULL,
    PRIMARY KEY (account, day)
);
INSERT INTO spending (account, day, amount)
SELECT spender, (recorded_at AT TIME ZONE 'UTC')::date::timestamp AT TIME ZONE 'UTC', sum(amount)
FROM entry WHERE kind = 'Charge' GROUP BY 1, 2;

ALTER TABLE discrepancy
    ADD COLUMN resolved_at timestamptz,
    ADD COLUMN resolution  text NOT NULL DEFAULT '',
    ADD COLUMN resolved_by text NOT NULL DEFAULT '',
    ADD CONSTRAINT discrepancy_is_closed_with_a_reason CHECK (resolved_at IS NULL OR resolution <> '');
CREATE TRIGGER discrepancy_keeps_both_sides BEFORE UPDATE ON discrepancy FOR EACH ROW
    WHEN (old.resolved_at IS NOT NULL
        OR (old.key, old.kind, old.pod_uid, old.account, old.ledger, old.other, old.found_at) IS DISTINCT FROM
           (new.key, new.kind, new.pod_uid, new.account, new.ledger, new.other, new.found_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER discrepancy_is_never_deleted BEFORE DELETE ON discrepancy
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Commands that have to be remembered for good; what others did can be told from the rows.
ALTER TABLE command ADD COLUMN lasting boolean NOT NULL DEFAULT true;

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM entry WHERE kind NOT IN ('Grant', 'Charge')) OR EXISTS (SELECT FROM lot)
        OR EXISTS (SELECT FROM reservation WHERE payer <> account) THEN
        RAISE EXCEPTION 'the ledger uses lots, refills, refunds, adjustments, transfers or payers above the spender, which the schema before does not have';
    END IF;
END
$$;
-- +goose StatementEnd
ALTER TABLE command DROP COLUMN lasting;
DROP TRIGGER discrepancy_is_never_deleted ON discrepancy;
DROP TRIGGER discrepancy_keeps_both_sides ON discrepancy;
ALTER TABLE discrepancy DROP COLUMN resolved_at, DROP COLUMN resolution, DROP COLUMN resolved_by;
DROP TABLE spending;
DROP TABLE lot;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_removal_with_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM entry WHERE debit = old.name)
        OR EXISTS (SELECT FROM entry WHERE credit = old.name AND credit <> 'system:revenue') THEN
        RAISE EXCEPTION 'account % has entries', old.name
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN old;
END
$$;
-- +goose StatementEnd
DROP INDEX entry_by_spender;
DROP INDEX entry_by_debit;
CREATE INDEX entry_by_debit ON entry (debit, recorded_at, id);
DROP INDEX entry_by_credit;
CREATE INDEX entry_by_credit ON entry (credit, recorded_at, id) WHERE credit <> 'system:revenue';
ALTER TABLE entry
    DROP CONSTRAINT entry_corrects_by_adjustment,
    DROP CONSTRAINT entry_adjustment_has_a_reason,
    DROP CONSTRAINT entry_charge_names_its_allocation,
    DROP CONSTRAINT entry_kind_is_known,
    DROP COLUMN draws, DROP COLUMN corrects, DROP COLUMN spender;
ALTER TABLE entry
    ADD CONSTRAINT entry_kind_is_known CHECK (kind IN ('Grant', 'Charge')),
    ADD CONSTRAINT entry_charge_names_its_allocation CHECK (kind <> 'Charge' OR (reservation IS NOT NULL AND allocation IS NOT NULL));
DROP TRIGGER allocation_is_refunded_once ON allocation;
ALTER TABLE allocation DROP COLUMN refunded, DROP COLUMN refunded_for;
DROP TRIGGER reservation_terms_never_change ON reservation;
CREATE TRIGGER reservation_terms_never_change BEFORE UPDATE ON reservation FOR EACH ROW
    WHEN ((old.uid, old.account, old.class, old.rate_version, old.rate, old.max_gpus, old.gpu_seconds, old.amount, old.created_at)
        IS DISTINCT FROM
        (new.uid, new.account, new.class, new.rate_version, new.rate, new.max_gpus, new.gpu_seconds, new.amount, new.created_at))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE reservation DROP COLUMN payer, DROP COLUMN policy_version, DROP COLUMN takes;
DROP TABLE account_policy;
ALTER TABLE account
    ADD COLUMN overdraft_limit             bigint NOT NULL DEFAULT 0,
    ADD COLUMN default_max_runtime_seconds bigint NOT NULL DEFAULT 0;
UPDATE account SET
    overdraft_limit = COALESCE((policy::jsonb ->> 'overdraft_limit_microcredits')::bigint, 0),
    default_max_runtime_seconds = COALESCE((policy::jsonb ->> 'default_max_runtime_seconds')::bigint, 0);
ALTER TABLE account
    ALTER COLUMN overdraft_limit DROP DEFAULT,
    ALTER COLUMN default_max_runtime_seconds DROP DEFAULT,
    ADD CONSTRAINT account_overdraft_limit_is_not_negative CHECK (overdraft_limit >= 0),
    ADD CONSTRAINT account_default_max_runtime_is_not_negative CHECK (default_max_runtime_seconds >= 0),
    DROP COLUMN policy, DROP COLUMN policy_version, DROP COLUMN frozen, DROP COLUMN held, DROP COLUMN running,
    DROP COLUMN subtree_held, DROP COLUMN subtree_running, DROP COLUMN subtree_spent, DROP COLUMN spent_since,
    DROP COLUMN refilled_at, DROP COLUMN last_entry_at, DROP COLUMN due_at;
