-- name: AccountLock
-- Locks every account that the commands touch, named ($1) or through a reservation ($2) or a pod ($3), with all its
-- ancestors. Locks are taken in the order of names (LockRows runs above Sort), so that no two batches wait for each
-- other in a circle (L16). Parents may change between the snapshot and the lock: the caller compares the rows, which
-- are as of the lock, and repeats when an ancestor is missing. Reservations and pods never change their account.
WITH RECURSIVE named (name) AS (
    SELECT unnest($1::text[])
    UNION SELECT account FROM reservation WHERE uid = ANY ($2::text[])
    UNION SELECT account FROM allocation WHERE pod_uid = ANY ($3::text[])
), closure (name) AS (
    SELECT name FROM named
    UNION
    SELECT a.parent FROM closure c JOIN account a ON a.name = c.name WHERE a.parent IS NOT NULL
)
SELECT name, COALESCE(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM account
WHERE name IN (SELECT name FROM closure)
ORDER BY name
FOR UPDATE;

-- name: AccountLoad
-- AccountLock without locks, for a quote.
WITH RECURSIVE named (name) AS (
    SELECT unnest($1::text[])
    UNION SELECT account FROM reservation WHERE uid = ANY ($2::text[])
    UNION SELECT account FROM allocation WHERE pod_uid = ANY ($3::text[])
), closure (name) AS (
    SELECT name FROM named
    UNION
    SELECT a.parent FROM closure c JOIN account a ON a.name = c.name WHERE a.parent IS NOT NULL
)
SELECT name, COALESCE(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM account
WHERE name IN (SELECT name FROM closure)
ORDER BY name;

-- name: AccountInsert
-- No ON CONFLICT: if another process creates the account first, the batch is repeated and finds it.
INSERT INTO account (name, parent, overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
                     subtree_balance, subtree_reserved, subtree_overspent, revision)
SELECT name, NULLIF(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
     WITH ORDINALITY
     AS n (name, parent, overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
           subtree_balance, subtree_reserved, subtree_overspent, revision, position)
ORDER BY position;

-- name: AccountUpdate
UPDATE account a
SET parent = NULLIF(n.parent, ''), overdraft_limit = n.overdraft_limit,
    default_max_runtime_seconds = n.default_max_runtime_seconds,
    balance = n.balance, reserved = n.reserved, charged = n.charged,
    subtree_balance = n.subtree_balance, subtree_reserved = n.subtree_reserved,
    subtree_overspent = n.subtree_overspent, revision = n.revision
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
     AS n (name, parent, overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
           subtree_balance, subtree_reserved, subtree_overspent, revision)
WHERE a.name = n.name;

-- name: AccountDelete
DELETE FROM account WHERE name = ANY ($1::text[]);

-- name: AccountUses
SELECT n.name,
       EXISTS (SELECT FROM entry e WHERE e.debit = n.name)
           OR EXISTS (SELECT FROM entry e WHERE e.credit = n.name AND e.credit <> 'system:revenue'),
       EXISTS (SELECT FROM reservation r WHERE r.account = n.name),
       (SELECT count(*) FROM account c WHERE c.parent = n.name)
FROM unnest($1::text[]) AS n (name);

-- name: AccountGet
SELECT name, COALESCE(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM account
WHERE name = $1;

-- name: AccountsSince
-- A reader remembers the highest revision it was given and asks for what is above it. A change must therefore never
-- become visible with a revision at or below one that was already given out. A sequence would break this: a number
-- taken early may be committed late. A revision is at least its transaction's number, and no row is given out at or
-- above the lowest number still running (pg_snapshot_xmin). So whatever commits later has a number, hence a revision,
-- at or above that bound, and the reader will ask for it. What is held back meanwhile comes with a later call.
SELECT name, COALESCE(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM account
WHERE revision > $1 AND revision < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY revision, name;

-- name: AccountsNudge
-- A row can be held back with a revision that no transaction has reached yet, after one that waited for the locks of a
-- younger one. Where nothing else happens, nothing would reach it: this uses up a number, and only then.
SELECT pg_current_xact_id()::text::bigint
WHERE EXISTS (SELECT FROM account WHERE revision >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint);

-- name: AccountAll
SELECT name, COALESCE(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM account
ORDER BY name;

-- name: AccountLockAll
SELECT name, COALESCE(parent, ''), overdraft_limit, default_max_runtime_seconds, balance, reserved, charged,
       subtree_balance, subtree_reserved, subtree_overspent, revision
FROM account
ORDER BY name
FOR UPDATE;

-- name: AccountFold
-- Each account's own figures from the entries and open reservations: what the projection must say (I2).
-- sum(bigint) is numeric; the sums are bounded by the ledger's limits, so the cast back is exact or fails loudly.
SELECT a.name,
       (COALESCE(c.amount, 0) - COALESCE(d.amount, 0))::bigint,
       COALESCE(r.remaining, 0)::bigint,
       COALESCE(d.charged, 0)::bigint
FROM account a
LEFT JOIN (SELECT credit AS name, sum(amount) AS amount FROM entry GROUP BY credit) c ON c.name = a.name
LEFT JOIN (SELECT debit AS name, sum(amount) AS amount, sum(amount) FILTER (WHERE kind = 'Charge') AS charged
           FROM entry GROUP BY debit) d ON d.name = a.name
LEFT JOIN (SELECT account AS name, sum(greatest(amount - charged, 0)) AS remaining
           FROM reservation WHERE state IN ('Held', 'Active') GROUP BY account) r ON r.name = a.name
ORDER BY a.name;
