-- Parts have rights of their own. Which rights is in roles/*.sql, granted after every migration; here is what rights on tables
-- and columns cannot say. See docs/designs/ledger-core.md.
-- +goose Up

-- What programs may rely on; one row, written by Migrate once the rights fit the tables.
CREATE TABLE ledger_schema (
    one            boolean PRIMARY KEY DEFAULT true,
    version        bigint NOT NULL,
    -- The least version that a program must have been built for to work on these tables.
    oldest_program bigint NOT NULL,
    CONSTRAINT ledger_schema_is_one_row CHECK (one)
);

-- Whether the current user has the rights of a part. No role of that name: no.
CREATE FUNCTION acts_as(part text) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = part AND pg_has_role(oid, 'USAGE'))
$$;

-- Policies are for whoever neither owns the tables nor is a superuser. The open one lets through what rights allow at all; the
-- restrictive ones take away from it. What they ask of acts_as is asked once per statement.

ALTER TABLE entry ENABLE ROW LEVEL SECURITY;
CREATE POLICY entry_is_open_to_who_has_rights ON entry USING (true) WITH CHECK (true);
-- Whoever touches an account posts what has fallen due on it, so refills and expiries come from every part: within what the
-- account's policy and its lots say. Everything else is the controller's. A day is more than clocks differ.
CREATE POLICY entry_of_this_kind_is_the_controllers ON entry AS RESTRICTIVE FOR INSERT WITH CHECK (
    (SELECT acts_as('gpubank_controller'))
    OR kind = 'Refill' AND debit = 'system:issuance'
        AND event_key = 'refill:' || credit || ':' || extract(epoch FROM occurred_at)::bigint
        AND occurred_at < now() + interval '1 day'
        AND EXISTS (
            SELECT FROM account a
            WHERE a.name = entry.credit
              AND entry.amount <= (a.policy::jsonb #>> '{refill,amount_microcredits}')::bigint
              AND extract(epoch FROM entry.occurred_at)::bigint % (a.policy::jsonb #>> '{refill,period_seconds}')::bigint = 0
              AND entry.occurred_at > (SELECT min(p.set_at) FROM account_policy p WHERE p.account = a.name)
                  - make_interval(secs => (a.policy::jsonb #>> '{refill,period_seconds}')::double precision))
    OR kind = 'Expiry' AND credit = 'system:expired'
        AND occurred_at < now() + interval '1 day'
        AND EXISTS (
            SELECT FROM lot l
            WHERE l.key = substring(entry.event_key FROM '^expiry:(.*):[0-9]+$')
              AND l.account = entry.debit AND l.expires_at = entry.occurred_at AND entry.amount <= l.expired));

ALTER TABLE reservation ENABLE ROW LEVEL SECURITY;
CREATE POLICY reservation_is_open_to_who_has_rights ON reservation USING (true) WITH CHECK (true);
CREATE POLICY reservation_begins_without_charges ON reservation AS RESTRICTIVE FOR INSERT WITH CHECK (
    state IN ('Held', 'Active') AND charged = 0 OR (SELECT acts_as('gpubank_controller')));
-- The scheduler makes a hold active, and that is all.
CREATE POLICY reservation_goes_on_by_the_controller ON reservation AS RESTRICTIVE FOR UPDATE
    USING (state = 'Held' OR (SELECT acts_as('gpubank_controller')))
    WITH CHECK (state IN ('Held', 'Active') AND charged = 0 OR (SELECT acts_as('gpubank_controller')));

ALTER TABLE allocation ENABLE ROW LEVEL SECURITY;
CREATE POLICY allocation_is_open_to_who_has_rights ON allocation USING (true) WITH CHECK (true);
CREATE POLICY allocation_begins_without_charges ON allocation AS RESTRICTIVE FOR INSERT WITH CHECK (
    state IN ('Intended', 'Released', 'Bound') AND charged = 0 AND refunded = 0 OR (SELECT acts_as('gpubank_controller')));
-- The scheduler moves intents; once a pod is bound, only who observes it has a say.
CREATE POLICY allocation_goes_on_by_the_controller ON allocation AS RESTRICTIVE FOR UPDATE
    USING (state IN ('Intended', 'Released') OR (SELECT acts_as('gpubank_controller')))
    WITH CHECK (state IN ('Intended', 'Released', 'Bound') AND charged = 0 AND refunded = 0 OR (SELECT acts_as('gpubank_controller')));

-- +goose Down
DROP POLICY allocation_goes_on_by_the_controller ON allocation;
DROP POLICY allocation_begins_without_charges ON allocation;
DROP POLICY allocation_is_open_to_who_has_rights ON allocation;
ALTER TABLE allocation DISABLE ROW LEVEL SECURITY;
DROP POLICY reservation_goes_on_by_the_controller ON reservation;
DROP POLICY reservation_begins_without_charges ON reservation;
DROP POLICY reservation_is_open_to_who_has_rights ON reservation;
ALTER TABLE reservation DISABLE ROW LEVEL SECURITY;
DROP POLICY entry_of_this_kind_is_the_controllers ON entry;
DROP POLICY entry_is_open_to_who_has_rights ON entry;
ALTER TABLE entry DISABLE ROW LEVEL SECURITY;
DROP FUNCTION acts_as(text);
DROP TABLE ledger_schema;
-- The roles are of the whole PostgreSQL cluster, and stay; their rights here go.
-- +goose StatementBegin
DO $$
DECLARE
    withdrawal text;
BEGIN
    FOR withdrawal IN
        SELECT format('REVOKE ALL ON %s FROM %I', c.oid::regclass, r.rolname)
        FROM pg_class c, pg_roles r
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE')
          AND r.rolname IN ('gpubank_webhook', 'gpubank_scheduler', 'gpubank_controller', 'gpubank_reader')
    LOOP
        EXECUTE withdrawal;
    END LOOP;
END
$$;
-- +goose StatementEnd
