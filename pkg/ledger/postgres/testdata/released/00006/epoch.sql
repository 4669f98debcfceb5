-- name: LeadershipAcquire
-- Waits for batches that hold the row in share mode, so that whatever was written under the old epoch is committed and
-- visible before the new leader reads anything.
INSERT INTO leadership AS l (name, epoch, holder, acquired_at)
VALUES ($1, 1, $2, $3)
ON CONFLICT ON CONSTRAINT leadership_pkey
DO UPDATE SET epoch = l.epoch + 1, holder = excluded.holder, acquired_at = excluded.acquired_at
RETURNING epoch;

-- name: LeadershipShare
-- Keeps the epoch as it is until the batch is committed. After the accounts, in the order of names: every batch takes
-- its locks in the same order.
SELECT name, epoch FROM leadership WHERE name = ANY ($1::text[]) ORDER BY name FOR SHARE;

-- name: LeadershipLoad
SELECT name, epoch FROM leadership WHERE name = ANY ($1::text[]);

-- name: NodeAgentRegister
INSERT INTO node_agent AS n (node, epoch, holder, registered_at)
VALUES ($1, 1, $2, $3)
ON CONFLICT ON CONSTRAINT node_agent_pkey
DO UPDATE SET epoch = n.epoch + 1, holder = excluded.holder, registered_at = excluded.registered_at
RETURNING epoch;

-- name: NodeAgentLock
-- Exclusive, not shared: two batches that meter the same GPU for pods of unrelated accounts must see each other's
-- device holds, and a GPU belongs to one node.
SELECT node, epoch FROM node_agent WHERE node = ANY ($1::text[]) ORDER BY node FOR NO KEY UPDATE;

-- name: NodeAgentLoad
SELECT node, epoch FROM node_agent WHERE node = ANY ($1::text[]);
