-- What changes a row's figures or state stays within its page and leaves its indexes alone (a heap-only update). Figures in
-- docs/designs/ledger-speed.md. Indexes are made while others write, which no transaction can: a migration that was cut off begins
-- again.
-- +goose NO TRANSACTION
-- +goose Up

-- An end is set when it ends; the few that were released, or ended without ever having held anything, have none.
ALTER TABLE allocation DROP CONSTRAINT IF EXISTS allocation_has_no_end_before_it_ended;
ALTER TABLE allocation ADD CONSTRAINT allocation_has_no_end_before_it_ended CHECK (ended_at IS NULL OR state = 'Ended') NOT VALID;
ALTER TABLE allocation VALIDATE CONSTRAINT allocation_has_no_end_before_it_ended;
-- Columns in an index's condition count as indexed: with the state there, each step of an allocation was written to all indexes.
DROP INDEX IF EXISTS allocation_open;
CREATE INDEX CONCURRENTLY allocation_open ON allocation (reservation) WHERE ended_at IS NULL;
DROP INDEX IF EXISTS allocation_loose;
CREATE INDEX CONCURRENTLY allocation_loose ON allocation (ended_at, pod_uid) WHERE ended_at IS NOT NULL AND NOT compacted;

-- Agents cut their intervals at the same moments, so that all rows of a page change in one commit: there has to be room for each.
ALTER TABLE reservation SET (fillfactor = 50);
ALTER TABLE allocation SET (fillfactor = 50);

-- The guard of I3 refuses what it did before, for less. Whoever charges an interval has updated its allocation before, in the same
-- transaction (the row's xmin), and so holds its lock: only the others are locked. And one look at the index for each new interval
-- is enough, at the last other one that begins before it ends. Of two that overlap, let s be the first to begin after the other, x,
-- has begun. If s is new, the last one to begin before s ends is x itself, which ends after s begins, or one that begins within s. If
-- only x is new, it is s or one that begins between s and the end of x. Either way it ends after the new one begins.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_overlap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'repeatable read' THEN
        RAISE EXCEPTION 'intervals cannot be inserted under REPEATABLE READ, which does not see what others insert meanwhile'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    PERFORM FROM allocation WHERE pod_uid IN (SELECT pod_uid FROM added) AND xmin <> pg_current_xact_id()::xid
        ORDER BY pod_uid FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM added n
        WHERE (SELECT i.ended_at FROM metered_interval i
               WHERE i.pod_uid = n.pod_uid AND i.started_at < n.ended_at AND i.started_at <> n.started_at
               ORDER BY i.started_at DESC LIMIT 1) > n.started_at
    ) THEN
        RAISE EXCEPTION 'an interval overlaps another one of its pod'
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_overlap() RETURNS trigger LANGUAGE plpgsql AS $$
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
ALTER TABLE reservation SET (fillfactor = 70);
ALTER TABLE allocation SET (fillfactor = 70);
DROP INDEX IF EXISTS allocation_open;
CREATE INDEX CONCURRENTLY allocation_open ON allocation (reservation) WHERE state NOT IN ('Ended', 'Released');
DROP INDEX IF EXISTS allocation_loose;
CREATE INDEX CONCURRENTLY allocation_loose ON allocation (ended_at, pod_uid) WHERE state = 'Ended' AND NOT compacted;
ALTER TABLE allocation DROP CONSTRAINT IF EXISTS allocation_has_no_end_before_it_ended;
