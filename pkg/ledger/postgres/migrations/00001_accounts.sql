-- Accounts with their balance projection, and the prices of GPU classes.
-- +goose Up

-- Equality of text beside overlap of ranges in one exclusion constraint (metered_interval).
CREATE EXTENSION IF NOT EXISTS btree_gist;

-- Amounts are microcredits (10^-6 credit).
CREATE TABLE account (
    name                        text PRIMARY KEY,
    parent                      text REFERENCES account (name),
    overdraft_limit             bigint NOT NULL,
    default_max_runtime_seconds bigint NOT NULL,
    -- The account's own figures, each the fold of its entries and open reservations (I2).
    balance                     bigint NOT NULL DEFAULT 0,
    reserved                    bigint NOT NULL DEFAULT 0,
    charged                     bigint NOT NULL DEFAULT 0,
    -- The same sums over the account and everything below it; what limits are checked on (I1).
    subtree_balance             bigint NOT NULL DEFAULT 0,
    subtree_reserved            bigint NOT NULL DEFAULT 0,
    subtree_overspent           bigint NOT NULL DEFAULT 0,
    -- At least the number of the transaction that changed the row last; see AccountsSince in sql/account.sql.
    revision                    bigint NOT NULL,
    CONSTRAINT account_name_is_a_dns_subdomain CHECK (
        length(name) <= 253 AND name ~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'),
    CONSTRAINT account_is_not_its_own_parent CHECK (parent <> name),
    CONSTRAINT account_overdraft_limit_is_not_negative CHECK (overdraft_limit >= 0),
    CONSTRAINT account_default_max_runtime_is_not_negative CHECK (default_max_runtime_seconds >= 0),
    CONSTRAINT account_reserves_nothing_negative CHECK (reserved >= 0 AND subtree_reserved >= 0),
    CONSTRAINT account_charged_is_not_negative CHECK (charged >= 0)
);
CREATE INDEX account_by_parent ON account (parent);
CREATE INDEX account_by_revision ON account (revision);

CREATE TABLE rate (
    class   text NOT NULL,
    version bigint NOT NULL,
    -- Microcredits per GPU-second.
    rate    bigint NOT NULL,
    set_at  timestamptz NOT NULL,
    PRIMARY KEY (class, version),
    CONSTRAINT rate_is_positive CHECK (rate > 0),
    CONSTRAINT rate_version_counts_from_one CHECK (version >= 1)
);

-- Refuses whatever fires it, under the name of the trigger's constraint.
-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: %', TG_OP, TG_TABLE_NAME, TG_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER rate_version_is_never_edited BEFORE UPDATE ON rate
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE rate;
DROP TABLE account;
DROP FUNCTION refuse_change();
