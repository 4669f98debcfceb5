-- name: PreemptionRecord
-- Only the leadership's current epoch may decide ($1, $2); no row comes back for any other (I7). Repeats change nothing. The lock
-- keeps a newer leader from beginning before this has committed.
WITH leader AS (
    SELECT name, epoch FROM leadership WHERE name = $1 AND epoch = $2 FOR SHARE
), recorded AS (
    INSERT INTO preemption (key, decided_at, leader, leader_epoch, node,
        preemptor_uid, preemptor_namespace, preemptor_name, preemptor_workload, preemptor_account, preemptor_gpus, preemptor_priority,
        victim_uid, victim_namespace, victim_name, victim_workload, victim_account, victim_gpus, victim_priority,
        reason, lost_since, restart_seconds, lost_gpu_seconds)
    SELECT $3, $4, leader.name, leader.epoch, $5, $6, $7, $8, $9, $10, $11, $12,
        v.uid, v.namespace, v.name, v.workload, v.account, v.gpus, v.priority, v.reason, v.lost_since, v.restart_seconds, v.lost_gpu_seconds
    FROM leader, unnest($13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::bigint[], $19::bigint[],
        $20::text[], $21::timestamptz[], $22::bigint[], $23::bigint[])
        AS v (uid, namespace, name, workload, account, gpus, priority, reason, lost_since, restart_seconds, lost_gpu_seconds)
    ON CONFLICT ON CONSTRAINT preemption_is_recorded_once DO NOTHING
)
SELECT name FROM leader;

-- name: PreemptionsSince
SELECT p.key, p.decided_at, p.leader, p.leader_epoch, p.reason, p.node,
    p.preemptor_uid, p.preemptor_namespace, p.preemptor_name, p.preemptor_workload, p.preemptor_account, p.preemptor_gpus, p.preemptor_priority,
    p.victim_uid, p.victim_namespace, p.victim_name, p.victim_workload, p.victim_account, p.victim_gpus, p.victim_priority,
    p.lost_since, p.restart_seconds, p.lost_gpu_seconds, o.preempted, o.stopped_at, o.checkpointed_at, o.lost_gpu_seconds
FROM preemption p LEFT JOIN preemption_outcome o USING (key, victim_uid)
WHERE p.decided_at >= $1
ORDER BY p.decided_at, p.key, p.victim_uid;

-- name: PreemptionsOfVictim
SELECT p.key, p.decided_at, p.leader, p.leader_epoch, p.reason, p.node,
    p.preemptor_uid, p.preemptor_namespace, p.preemptor_name, p.preemptor_workload, p.preemptor_account, p.preemptor_gpus, p.preemptor_priority,
    p.victim_uid, p.victim_namespace, p.victim_name, p.victim_workload, p.victim_account, p.victim_gpus, p.victim_priority,
    p.lost_since, p.restart_seconds, p.lost_gpu_seconds, o.preempted, o.stopped_at, o.checkpointed_at, o.lost_gpu_seconds
FROM preemption p LEFT JOIN preemption_outcome o USING (key, victim_uid)
WHERE p.victim_uid = $1
ORDER BY p.decided_at, p.key;

-- name: PreemptionOutcomeRecord
-- The first finding stands.
INSERT INTO preemption_outcome (key, victim_uid, preempted, stopped_at, checkpointed_at, lost_gpu_seconds)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT ON CONSTRAINT preemption_outcome_is_found_once DO NOTHING
RETURNING key;
