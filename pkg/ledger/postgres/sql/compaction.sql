-- name: CompactedLoad
-- After IntervalLoad in the transaction: whoever compacts meanwhile is seen here, also where its rows were not seen there.
SELECT pod_uid, starts, microseconds, counts, derived, received_at FROM compacted_time WHERE pod_uid = ANY ($1::text[]);

-- name: CompactedDelete
DELETE FROM compacted_time WHERE pod_uid = ANY ($1::text[]);

-- name: CompactedInsert
-- Runs of all pods in one list; $1 says whose each is, $6 and $7 have one for each run, too.
INSERT INTO compacted_time (pod_uid, starts, microseconds, counts, derived, received_at, compacted_at)
SELECT pod_uid, array_agg(start ORDER BY position), array_agg(micros ORDER BY position), array_agg(count ORDER BY position),
       array_agg(derived ORDER BY position), max(received_at), $7::timestamptz
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[], $5::boolean[], $6::timestamptz[])
     WITH ORDINALITY AS n (pod_uid, start, micros, count, derived, received_at, position)
GROUP BY pod_uid;

-- name: CompactionWork
-- The next allocations that ended before $1, behind ($2, $3), until the transaction ends. Whatever else changes their intervals
-- locks their rows too (refuse_overlap); whoever has one of them locked is not waited for.
SELECT {allocation}
FROM allocation
WHERE state = 'Ended' AND NOT compacted AND ended_at < $1 AND (ended_at, pod_uid) > ($2, $3)
ORDER BY ended_at, pod_uid LIMIT $4
FOR NO KEY UPDATE SKIP LOCKED;

-- name: CompactionPatience
-- Writers wait for nobody; compaction waits for writers, and not long, since it could be a circle.
SELECT set_config('lock_timeout', '50ms', true);

-- name: CompactionIntervals
SELECT pod_uid, started_at, ended_at, source, charge, received_at
FROM metered_interval
WHERE pod_uid = ANY ($1::text[])
ORDER BY pod_uid, started_at;

-- name: IntervalDeleteOf
DELETE FROM metered_interval WHERE pod_uid = ANY ($1::text[]);

-- name: AllocationCompacted
UPDATE allocation SET compacted = true WHERE pod_uid = ANY ($1::text[]);

-- name: AllocationLoosen
UPDATE allocation SET compacted = false WHERE pod_uid = ANY ($1::text[]) AND compacted;

-- name: CompactionWaiting
-- Allocations that ended before $1 and are not compacted, at most $2.
SELECT count(*) FROM (SELECT FROM allocation WHERE state = 'Ended' AND NOT compacted AND ended_at < $1 LIMIT $2) AS waiting;

-- name: ForgetCommands
SELECT examined, forgotten, last_at FROM forget_commands($1, $2, $3);

-- name: ForgetDeviceHolds
SELECT forget_device_holds($1, $2);
