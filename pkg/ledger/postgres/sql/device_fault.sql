-- name: DeviceFaultRecord
-- Only the node's current agent is believed ($2); no row comes back for any other. Repeats change nothing.
WITH agent AS (
    SELECT node FROM node_agent WHERE node = $1 AND epoch = $2 FOR SHARE
), recorded AS (
    INSERT INTO device_fault (node, gpu_uuid, xid, since, at, received_at)
    SELECT agent.node, f.gpu_uuid, f.xid, f.since, f.at, $7
    FROM agent, unnest($3::text[], $4::bigint[], $5::timestamptz[], $6::timestamptz[]) AS f (gpu_uuid, xid, since, at)
    ON CONFLICT ON CONSTRAINT device_fault_is_reported_once DO NOTHING
)
SELECT node FROM agent;

-- name: DeviceFaultsOfNode
SELECT node, gpu_uuid, xid, since, at FROM device_fault
WHERE node = $1 AND at >= $2 AND since <= $3
ORDER BY at, gpu_uuid, xid;
