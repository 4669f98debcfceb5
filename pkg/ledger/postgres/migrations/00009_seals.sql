-- Hash chains over the entries of each account, sealed in the background. See docs/designs/seals.md.
-- +goose Up

CREATE TABLE seal (
    account          text NOT NULL,
    -- Counts the account's seals from 1.
    number           bigint NOT NULL,
    -- The seal's entries; ids and checks are those of ledger.Seal.
    entries          bigint NOT NULL,
    first_entry      bigint NOT NULL,
    ids              bytea NOT NULL,
    checks           bytea NOT NULL,
    -- The chain's end after the seal: its entries in all, the last one's id and time, and the hash.
    through          bigint NOT NULL,
    last_entry       bigint NOT NULL,
    last_recorded_at timestamptz NOT NULL,
    hash             bytea NOT NULL,
    sealed_at        timestamptz NOT NULL,
    -- Two sealers cannot both add the next seal of an account.
    CONSTRAINT seal_follows_the_one_before PRIMARY KEY (account, number),
    CONSTRAINT seal_counts_from_one CHECK (number >= 1 AND entries >= 1 AND through >= entries),
    CONSTRAINT seal_hash_is_sha256 CHECK (length(hash) = 32 AND length(checks) = 8 * entries)
);
CREATE TRIGGER seal_is_append_only BEFORE UPDATE OR DELETE ON seal
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seal_is_never_truncated BEFORE TRUNCATE ON seal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Where the sealer goes on: the accounts up to (revision, account) have been looked at. It is only a hint for the next work
-- list: set back to zero, every account is looked at again and nothing is sealed twice.
CREATE TABLE seal_progress (
    only_row     boolean PRIMARY KEY DEFAULT true,
    revision     bigint NOT NULL,
    account      text NOT NULL,
    -- Entries above this id were recorded in the order of their ids (ledger.Account.LastEntryAt); older ones by clocks that
    -- may have differed between processes.
    orderly_from bigint NOT NULL,
    CONSTRAINT seal_progress_is_one_row CHECK (only_row)
);
INSERT INTO seal_progress (revision, account, orderly_from) SELECT 0, '', COALESCE(max(id), 0) FROM entry;
CREATE TRIGGER seal_progress_is_never_deleted BEFORE DELETE ON seal_progress
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE seal_progress;
DROP TABLE seal;
