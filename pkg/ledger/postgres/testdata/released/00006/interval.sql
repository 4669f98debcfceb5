-- name: IntervalLoad
-- For each pod the intervals that share time with a window; one window per pod.
SELECT i.pod_uid, i.started_at, i.ended_at, i.source, i.charge, i.received_at
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS w (pod_uid, started_at, ended_at)
JOIN metered_interval i
  ON i.pod_uid = w.pod_uid
 AND tstzrange(i.started_at, i.ended_at, '[)') && tstzrange(w.started_at, w.ended_at, '[)');

-- name: IntervalDelete
-- Derived intervals that give way to measured ones, or to what is left of them.
DELETE FROM metered_interval i
USING unnest($1::text[], $2::timestamptz[]) AS n (pod_uid, started_at)
WHERE i.pod_uid = n.pod_uid AND i.started_at = n.started_at;

-- name: IntervalInsert
INSERT INTO metered_interval (pod_uid, started_at, ended_at, source, charge, received_at)
SELECT pod_uid, started_at, ended_at, source, charge, received_at
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::bigint[], $6::timestamptz[])
     AS n (pod_uid, started_at, ended_at, source, charge, received_at);

-- name: IntervalLastEnd
SELECT ended_at FROM metered_interval WHERE pod_uid = $1 ORDER BY started_at DESC LIMIT 1;
