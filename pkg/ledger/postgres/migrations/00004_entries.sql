-- Movements of money, what commands were answered, and disagreements kept for a person.
-- +goose Up

CREATE TABLE entry (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind           text NOT NULL,
    event_key      text NOT NULL,
    -- No foreign keys: the other side of grants and charges are system accounts, which have no row, and this is the
    -- busiest table. account_with_entries_stays guards the direction that matters.
    debit          text NOT NULL,
    credit         text NOT NULL,
    amount         bigint NOT NULL,
    reservation    text,
    allocation     text,
    occurred_at    timestamptz NOT NULL,
    recorded_at    timestamptz NOT NULL,
    reason         text NOT NULL,
    actor          text NOT NULL,
    CONSTRAINT entry_key_is_used_once UNIQUE (kind, event_key),
    CONSTRAINT entry_kind_is_known CHECK (kind IN ('Grant', 'Charge')),
    -- I10 holds by construction: one amount, two different sides.
    CONSTRAINT entry_sides_differ CHECK (debit <> credit),
    CONSTRAINT entry_amount_is_positive CHECK (amount > 0),
    CONSTRAINT entry_charge_names_its_allocation CHECK (kind <> 'Charge' OR (reservation IS NOT NULL AND allocation IS NOT NULL))
);
-- For statements, by keyset on (recorded_at, id); rows of system accounts are read by audits only, whole.
CREATE INDEX entry_by_debit ON entry (debit, recorded_at, id);
CREATE INDEX entry_by_credit ON entry (credit, recorded_at, id) WHERE credit <> 'system:revenue';
CREATE INDEX entry_by_allocation ON entry (allocation) WHERE allocation IS NOT NULL;

-- I8.
CREATE TRIGGER entry_is_append_only BEFORE UPDATE OR DELETE ON entry
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER entry_is_never_truncated BEFORE TRUNCATE ON entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose StatementBegin
CREATE FUNCTION refuse_removal_with_entries() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER account_with_entries_stays BEFORE DELETE ON account
    FOR EACH ROW EXECUTE FUNCTION refuse_removal_with_entries();

-- I6. The verdict is what was answered, as JSON.
CREATE TABLE command (
    key          text NOT NULL,
    content_hash bytea NOT NULL,
    verdict      text NOT NULL,
    decided_at   timestamptz NOT NULL,
    CONSTRAINT command_key_is_used_once PRIMARY KEY (key),
    CONSTRAINT command_hash_is_sha256 CHECK (length(content_hash) = 32)
);
CREATE TRIGGER command_is_never_edited BEFORE UPDATE ON command
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE discrepancy (
    key      text PRIMARY KEY,
    kind     text NOT NULL,
    pod_uid  text NOT NULL,
    account  text NOT NULL,
    ledger   text NOT NULL,
    other    text NOT NULL,
    found_at timestamptz NOT NULL
);
CREATE INDEX discrepancy_by_time ON discrepancy (found_at, key);

-- +goose Down
DROP TABLE discrepancy;
DROP TABLE command;
DROP TRIGGER account_with_entries_stays ON account;
DROP FUNCTION refuse_removal_with_entries();
DROP TABLE entry;
