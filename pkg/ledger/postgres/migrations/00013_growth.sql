-- What keeps tables from growing with time: intervals of allocations that ended become one row, and what was answered is forgotten
-- when it can do no harm any more. Nothing here goes over rows. See docs/designs/growth.md.
-- +goose Up

-- Whether the allocation's intervals are as few rows as they can be. Programs that know nothing of it leave it alone.
ALTER TABLE allocation ADD COLUMN compacted boolean NOT NULL DEFAULT false;

-- Which intervals the rows in metered_interval stand for (ledger.CompactedTime): run by run, where it starts, how long each of
-- its intervals is, how many there are, and whether they are derived.
CREATE TABLE compacted_time (
    pod_uid      text COLLATE "C" PRIMARY KEY,
    starts       timestamptz[] NOT NULL,
    microseconds bigint[] NOT NULL,
    counts       bigint[] NOT NULL,
    derived      boolean[] NOT NULL,
    received_at  timestamptz NOT NULL,
    compacted_at timestamptz NOT NULL,
    CONSTRAINT compacted_time_has_whole_runs CHECK (
        cardinality(starts) >= 1 AND cardinality(microseconds) = cardinality(starts)
        AND cardinality(counts) = cardinality(starts) AND cardinality(derived) = cardinality(starts)),
    CONSTRAINT compacted_time_takes_time CHECK (1 <= ALL (microseconds) AND 1 <= ALL (counts))
);
CREATE TRIGGER compacted_time_is_never_edited BEFORE UPDATE ON compacted_time
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER compacted_time_is_never_truncated BEFORE TRUNCATE ON compacted_time
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER compacted_time_names_its_allocation AFTER INSERT ON compacted_time
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unknown_pod();

-- Rows that stand for others go only after what says for which: a program that does not know it cannot replace half of them.
-- What it was handed fails, is charged to nobody twice, and is sent again until a newer program takes it.
-- +goose StatementBegin
CREATE FUNCTION refuse_half_expansion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM compacted_time c WHERE c.pod_uid IN (SELECT pod_uid FROM removed)) THEN
        RAISE EXCEPTION 'intervals of a pod are compacted, and are expanded before one of them changes'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER interval_is_expanded_before_it_goes AFTER DELETE ON metered_interval
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION refuse_half_expansion();

-- When an answer may be forgotten (ledger.ForgetRule); NULL for never, which is also what older programs leave.
ALTER TABLE command ADD COLUMN forget text;

-- Forgets answers that were decided before a moment, and at least a day ago, and whose rule is met; from behind after_at on, about
-- as many as asked for. It runs as the owner of the tables: nobody else may delete from command, and this deletes nothing else.
-- What the rules wait for is final. Intervals of programs that knew no rules are told by their keys.
-- +goose StatementBegin
CREATE FUNCTION forget_commands(before timestamptz, after_at timestamptz, most bigint,
    OUT examined bigint, OUT forgotten bigint, OUT last_at timestamptz) LANGUAGE sql SECURITY DEFINER AS $$
    WITH old AS MATERIALIZED (
        SELECT key, decided_at, COALESCE(forget, 'age') AS rule FROM command
        WHERE (forget IS NOT NULL OR NOT lasting AND key ^@ 'interval:')
          AND decided_at < least(before, now() - interval '1 day') AND decided_at > after_at
        -- All of a moment, which is at most a commit of each process: the next step begins behind it.
        ORDER BY decided_at FETCH FIRST (most) ROWS WITH TIES
    ), gone AS (
        DELETE FROM command c USING old o
        WHERE c.key = o.key AND CASE
            WHEN o.rule = 'age' THEN true
            WHEN o.rule ^@ 'pod/' THEN EXISTS (SELECT FROM allocation a WHERE a.pod_uid = substr(o.rule, 5) AND a.state = 'Ended')
            WHEN o.rule ^@ 'intent/' THEN EXISTS (
                SELECT FROM allocation a JOIN reservation r ON r.uid = a.reservation
                WHERE a.pod_uid = substr(o.rule, 8) AND (a.state = 'Ended' OR a.state = 'Released' AND r.closed_at IS NOT NULL))
            WHEN o.rule ^@ 'workload/' THEN EXISTS (SELECT FROM reservation r WHERE r.uid = substr(o.rule, 10) AND r.closed_at IS NOT NULL)
            WHEN o.rule ^@ 'leader/' THEN EXISTS (
                SELECT FROM leadership l
                WHERE l.name = substring(o.rule FROM '^leader/(.*)/[0-9]+$') AND l.epoch > substring(o.rule FROM '/([0-9]+)$')::bigint)
            ELSE false
        END
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone), (SELECT max(decided_at) FROM old)
$$;

-- Likewise for the GPUs that pods were metered on: for how long one GPU in two pods at once is still noticed. GPU by GPU, since the
-- index is.
CREATE FUNCTION forget_device_holds(before timestamptz, most bigint) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
    WITH RECURSIVE gpu (uuid) AS (
        (SELECT gpu_uuid FROM device_hold ORDER BY gpu_uuid LIMIT 1)
        UNION ALL
        SELECT (SELECT d.gpu_uuid FROM device_hold d WHERE d.gpu_uuid > g.uuid ORDER BY d.gpu_uuid LIMIT 1) FROM gpu g WHERE g.uuid IS NOT NULL
    ), old AS MATERIALIZED (
        SELECT o.gpu_uuid, o.pod_uid FROM gpu, LATERAL (
            SELECT d.gpu_uuid, d.pod_uid FROM device_hold d JOIN allocation a ON a.pod_uid = d.pod_uid AND a.state = 'Ended'
            WHERE d.gpu_uuid = gpu.uuid AND d.ended_at < least(before, now() - interval '1 day') ORDER BY d.ended_at LIMIT most
        ) o LIMIT most
    ), gone AS (
        DELETE FROM device_hold d USING old o WHERE d.gpu_uuid = o.gpu_uuid AND d.pod_uid = o.pod_uid RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

-- Nobody calls them but who is told to in roles/, and they look for tables where the ledger's are.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION forget_commands(timestamptz, timestamptz, bigint) SET search_path = pg_catalog, %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION forget_device_holds(timestamptz, bigint) SET search_path = pg_catalog, %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION forget_commands(timestamptz, timestamptz, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION forget_device_holds(timestamptz, bigint) FROM PUBLIC;

-- +goose Down
DROP FUNCTION forget_device_holds(timestamptz, bigint);
DROP FUNCTION forget_commands(timestamptz, timestamptz, bigint);
ALTER TABLE command DROP COLUMN forget;
DROP TRIGGER interval_is_expanded_before_it_goes ON metered_interval;
DROP FUNCTION refuse_half_expansion();
-- Every interval comes back as it was, but for when each was received.
DELETE FROM metered_interval i USING compacted_time c WHERE i.pod_uid = c.pod_uid;
INSERT INTO metered_interval (pod_uid, started_at, ended_at, source, charge, received_at)
SELECT p.pod_uid, p.started_at, p.ended_at, p.source,
       (floor(a.rate::numeric * a.gpus * extract(epoch FROM p.ended_at - a.started_at))
      - floor(a.rate::numeric * a.gpus * extract(epoch FROM p.started_at - a.started_at)))::bigint, p.received_at
FROM (
    SELECT c.pod_uid, r.start + n * r.micros * interval '1 microsecond' AS started_at, r.start + (n + 1) * r.micros * interval '1 microsecond' AS ended_at,
           CASE WHEN r.derived THEN 'Derived' ELSE 'Agent' END AS source, c.received_at
    FROM compacted_time c, unnest(c.starts, c.microseconds, c.counts, c.derived) AS r (start, micros, count, derived), generate_series(0, r.count - 1) AS n
) p
JOIN allocation a ON a.pod_uid = p.pod_uid;
DROP TABLE compacted_time;
ALTER TABLE allocation DROP COLUMN compacted;
