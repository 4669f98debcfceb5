-- name: fragment account
name, COALESCE(parent, ''), policy, policy_version, frozen, balance, reserved, held, charged, running,
       subtree_balance, subtree_reserved, subtree_held, subtree_running, subtree_overspent, subtree_spent, spent_since,
       refilled_at, last_entry_at, due_at, revision

-- name: fragment touched
-- Every account that commands touch, named ($1) or through a reservation ($2) or a pod ($3), with all its ancestors. A
-- reservation is paid for by its account or one above it, but a later SetAccount may have moved the account elsewhere.
WITH RECURSIVE named (name) AS (
    SELECT unnest($1::text[])
    UNION SELECT unnest(ARRAY[account, payer]) FROM reservation WHERE uid = ANY ($2::text[])
    UNION SELECT unnest(ARRAY[r.account, r.payer]) FROM allocation a JOIN reservation r ON r.uid = a.reservation
          WHERE a.pod_uid = ANY ($3::text[])
), closure (name) AS (
    SELECT name FROM named
    UNION
    SELECT a.parent FROM closure c JOIN account a ON a.name = c.name WHERE a.parent IS NOT NULL
)

-- name: AccountLock
-- Locks every account that the commands touch, named ($1) or through a reservation ($2) or a pod ($3), with all its
-- ancestors. Locks are taken in the order of names (LockRows runs above Sort), so that no two batches wait for each
-- other in a circle (L16). Parents may change between the snapshot and the lock: the caller compares the rows, which
-- are as of the lock, and repeats when an ancestor is missing. Reservations and pods never change their account.
{touched}
SELECT {account}
FROM account
WHERE name IN (SELECT name FROM closure)
ORDER BY name
FOR UPDATE;

-- name: AccountLockNamed
-- AccountLock for accounts ($1) that are thought to be all: the caller knew the rest from earlier batches.
SELECT {account}
FROM account
WHERE name = ANY ($1::text[])
ORDER BY name
FOR UPDATE;

-- name: AccountLoad
-- AccountLock without locks, for a quote.
{touched}
SELECT {account}
FROM account
WHERE name IN (SELECT name FROM closure)
ORDER BY name;

-- name: AccountInsert
-- No ON CONFLICT: if another process creates the account first, the batch is repeated and finds it.
INSERT INTO account (name, parent, policy, policy_version, frozen, balance, reserved, held, charged, running,
                     subtree_balance, subtree_reserved, subtree_held, subtree_running, subtree_overspent,
                     subtree_spent, spent_since, refilled_at, last_entry_at, due_at, revision)
SELECT name, NULLIF(parent, ''), policy, policy_version, frozen, balance, reserved, held, charged, running,
       subtree_balance, subtree_reserved, subtree_held, subtree_running, subtree_overspent, subtree_spent,
       spent_since, refilled_at, last_entry_at, due_at, revision
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
            $16::bigint[], $17::timestamptz[], $18::timestamptz[], $19::timestamptz[], $20::timestamptz[],
            $21::bigint[])
     WITH ORDINALITY
     AS n (name, parent, policy, policy_version, frozen, balance, reserved, held, charged, running, subtree_balance,
           subtree_reserved, subtree_held, subtree_running, subtree_overspent, subtree_spent, spent_since,
           refilled_at, last_entry_at, due_at, revision, position)
ORDER BY position;

-- name: AccountUpdate
-- The figures. What SetAccount and FreezeAccount change is in AccountSettings.
UPDATE account a
SET balance = n.balance, reserved = n.reserved, held = n.held, charged = n.charged, running = n.running,
    subtree_balance = n.subtree_balance, subtree_reserved = n.subtree_reserved, subtree_held = n.subtree_held,
    subtree_running = n.subtree_running, subtree_overspent = n.subtree_overspent, subtree_spent = n.subtree_spent,
    spent_since = n.spent_since, refilled_at = n.refilled_at, last_entry_at = n.last_entry_at, due_at = n.due_at,
    revision = n.revision
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::timestamptz[],
            $14::timestamptz[], $15::timestamptz[], $16::timestamptz[], $17::bigint[])
     AS n (name, balance, reserved, held, charged, running, subtree_balance, subtree_reserved, subtree_held,
           subtree_running, subtree_overspent, subtree_spent, spent_since, refilled_at, last_entry_at, due_at,
           revision)
WHERE a.name = n.name;

-- name: AccountSettings
UPDATE account a
SET parent = NULLIF(n.parent, ''), policy = n.policy, policy_version = n.policy_version, frozen = n.frozen
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) AS n (name, parent, policy, policy_version, frozen)
WHERE a.name = n.name;

-- name: PolicyInsert
INSERT INTO account_policy (account, version, policy, set_at)
SELECT account, version, policy, $4::timestamptz
FROM unnest($1::text[], $2::bigint[], $3::text[]) AS n (account, version, policy);

-- name: PolicyLast
-- An account that is created under the name of one that was removed counts on from there.
SELECT account, max(version) FROM account_policy WHERE account = ANY ($1::text[]) GROUP BY account;

-- name: AccountDelete
DELETE FROM account WHERE name = ANY ($1::text[]);

-- name: AccountUses
-- The conditions on system accounts are those of the indexes, which cannot be used without.
SELECT n.name,
       EXISTS (SELECT FROM entry e WHERE e.debit = n.name AND e.debit NOT LIKE 'system:%')
           OR EXISTS (SELECT FROM entry e WHERE e.credit = n.name AND e.credit NOT LIKE 'system:%'),
       EXISTS (SELECT FROM reservation r WHERE r.account = n.name)
           OR EXISTS (SELECT FROM reservation r WHERE r.payer = n.name AND r.payer <> r.account),
       (SELECT count(*) FROM account c WHERE c.parent = n.name)
FROM unnest($1::text[]) AS n (name);

-- name: AccountGet
SELECT {account}
FROM account
WHERE name = $1;

-- name: AccountsSince
-- A reader remembers the highest revision it was given and asks for what is above it. A change must therefore never
-- become visible with a revision at or below one that was already given out. A sequence would break this: a number
-- taken early may be committed late. A revision is at least its transaction's number, and no row is given out at or
-- above the lowest number still running (pg_snapshot_xmin). So whatever commits later has a number, hence a revision,
-- at or above that bound, and the reader will ask for it. What is held back meanwhile comes with a later call.
SELECT {account}
FROM account
WHERE revision > $1 AND revision < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY revision, name;

-- name: AccountsNudge
-- A row can be held back with a revision that no transaction has reached yet, after one that waited for the locks of a
-- younger one. Where nothing else happens, nothing would reach it: this uses up a number, and only then.
SELECT pg_current_xact_id()::text::bigint
WHERE EXISTS (SELECT FROM account WHERE revision >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint);

-- name: AccountAll
SELECT {account}
FROM account
ORDER BY name;

-- name: AccountLockAll
SELECT {account}
FROM account
ORDER BY name
FOR UPDATE;

-- name: AccountFold
-- Each account's own figures from the entries and open reservations: what the projection must say (I2).
-- sum(bigint) is numeric; the sums are bounded by the ledger's limits, so the cast back is exact or fails loudly.
SELECT a.name,
       (COALESCE(c.amount, 0) - COALESCE(d.amount, 0))::bigint,
       COALESCE(p.remaining, 0)::bigint,
       COALESCE(r.remaining, 0)::bigint,
       COALESCE(s.charged, 0)::bigint,
       COALESCE(r.running, 0)::bigint,
       greatest(c.last_at, d.last_at, s.last_at)
FROM account a
LEFT JOIN (SELECT credit AS name, sum(amount) AS amount, max(recorded_at) AS last_at FROM entry GROUP BY credit) c ON c.name = a.name
LEFT JOIN (SELECT debit AS name, sum(amount) AS amount, max(recorded_at) AS last_at FROM entry GROUP BY debit) d ON d.name = a.name
LEFT JOIN (SELECT spender AS name, sum(CASE kind WHEN 'Refund' THEN -amount ELSE amount END) AS charged, max(recorded_at) AS last_at
           FROM entry WHERE spender IS NOT NULL GROUP BY spender) s ON s.name = a.name
LEFT JOIN (SELECT payer AS name, sum(greatest(amount - charged, 0)) AS remaining
           FROM reservation WHERE state IN ('Held', 'Active') GROUP BY payer) p ON p.name = a.name
LEFT JOIN (SELECT account AS name, sum(greatest(amount - charged, 0)) AS remaining,
                  count(*) FILTER (WHERE state = 'Active') AS running
           FROM reservation WHERE state IN ('Held', 'Active') GROUP BY account) r ON r.name = a.name
ORDER BY a.name;

-- name: SpendingFold
-- What each spender was charged, less refunds, since its current spending period and those of its ancestors began is the sum
-- of its days since then (I2).
SELECT spender, (recorded_at AT TIME ZONE 'UTC')::date::timestamp AT TIME ZONE 'UTC', sum(CASE kind WHEN 'Refund' THEN -amount ELSE amount END)::bigint
FROM entry WHERE spender IS NOT NULL
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: AccountsDue
-- Accounts on which something falls due until then and nobody has touched since, longest overdue first.
SELECT {account}
FROM account
WHERE due_at <= $1
ORDER BY due_at, name
LIMIT $2;
-- name: AccountsFrozen
SELECT {account} FROM account WHERE frozen <> '' ORDER BY name;
