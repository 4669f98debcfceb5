-- name: IntervalLoad
-- For each pod the intervals that share time with a window; one window per pod. They do not overlap each other, so at most one
-- that began before the window reaches into it: the last one.
SELECT i.pod_uid, i.started_at, i.ended_at, i.source, i.charge, i.received_at
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS w (pod_uid, started_at, ended_at), LATERAL (
    SELECT * FROM (
        SELECT * FROM metered_interval m
        WHERE m.pod_uid = w.pod_uid AND m.started_at <= w.started_at ORDER BY m.started_at DESC LIMIT 1
    ) AS before WHERE before.ended_at > w.started_at
    UNION ALL
    SELECT * FROM metered_interval m
    WHERE m.pod_uid = w.pod_uid AND m.started_at > w.started_at AND m.started_at < w.ended_at
) AS i;

-- name: IntervalDelete
-- Derived intervals that give way to measured ones, or to what is left of them.
DELETE FROM metered_interval i
USING unnest($1::text[], $2::timestamptz[]) AS n (pod_uid, started_at)
WHERE i.pod_uid = n.pod_uid AND i.started_at = n.started_at;

-- name: IntervalInsert
INSERT INTO metered_interval (pod_uid, started_at, ended_at, source, charge, received_at)
SELECT unnest($1::text[]), unnest($2::timestamptz[]), unnest($3::timestamptz[]), unnest($4::text[]), unnest($5::bigint[]), unnest($6::timestamptz[]);

-- name: IntervalLastEnd
SELECT ended_at FROM metered_interval WHERE pod_uid = $1 ORDER BY started_at DESC LIMIT 1;
