-- name: SpendingAdd
-- Blind additions, under the lock on the spender's account.
INSERT INTO spending AS s (account, day, amount)
SELECT account, day, amount FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) AS n (account, day, amount)
ON CONFLICT ON CONSTRAINT spending_pkey DO UPDATE SET amount = s.amount + excluded.amount;

-- name: SpendingLoad
-- What the subtrees of accounts whose parent or policy changes have spent on each day since $4. The accounts are locked,
-- and a charge below them needs that lock. DISTINCT: a batch may change one account twice.
WITH RECURSIVE changing (root) AS (
    SELECT DISTINCT a.name FROM account a JOIN unnest($1::text[], $2::text[], $3::text[]) AS n (name, parent, policy) ON n.name = a.name
    WHERE COALESCE(a.parent, '') <> n.parent OR a.policy <> n.policy
), subtree (root, name) AS (
    SELECT root, root FROM changing
    UNION ALL
    SELECT s.root, a.name FROM subtree s JOIN account a ON a.parent = s.name
)
SELECT t.root, s.day, COALESCE(sum(s.amount), 0)::bigint
FROM subtree t LEFT JOIN spending s ON s.account = t.name AND s.day >= $4::timestamptz
GROUP BY t.root, s.day;

-- name: SpendingOfAccount
-- Its own, by day, in [$2, $3).
SELECT account, day, amount FROM spending WHERE account = $1 AND day >= $2 AND day < $3 ORDER BY day;

-- name: SpendingAll
SELECT account, day, amount FROM spending ORDER BY account, day;

-- name: SpendingRebuild
-- Every day as the entries have it; touches only what differs.
WITH fold AS (
    SELECT spender AS account, (recorded_at AT TIME ZONE 'UTC')::date::timestamp AT TIME ZONE 'UTC' AS day,
           sum(CASE kind WHEN 'Refund' THEN -amount ELSE amount END)::bigint AS amount
    FROM entry WHERE spender IS NOT NULL GROUP BY 1, 2
), right_now AS (
    SELECT account, day, amount FROM fold
    UNION ALL
    SELECT account, day, 0 FROM spending s WHERE NOT EXISTS (SELECT FROM fold f WHERE f.account = s.account AND f.day = s.day)
)
INSERT INTO spending AS s (account, day, amount)
SELECT account, day, amount FROM right_now
ON CONFLICT ON CONSTRAINT spending_pkey DO UPDATE SET amount = excluded.amount WHERE s.amount <> excluded.amount;
