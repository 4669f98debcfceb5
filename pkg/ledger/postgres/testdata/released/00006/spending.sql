-- name: SpendingAdd
-- Blind additions, under the lock on the spender's account.
INSERT INTO spending AS s (account, day, amount)
SELECT account, day, amount FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) AS n (account, day, amount)
ON CONFLICT ON CONSTRAINT spending_pkey DO UPDATE SET amount = s.amount + excluded.amount;

-- name: SpendingLoad
-- What the subtrees of accounts whose parent or policy changes have spent since each of five moments. The accounts are
-- locked, and a charge below them needs that lock.
WITH RECURSIVE changing (root) AS (
    SELECT a.name FROM account a JOIN unnest($1::text[], $2::text[], $3::text[]) AS n (name, parent, policy) ON n.name = a.name
    WHERE COALESCE(a.parent, '') <> n.parent OR a.policy <> n.policy
), subtree (root, name) AS (
    SELECT root, root FROM changing
    UNION ALL
    SELECT s.root, a.name FROM subtree s JOIN account a ON a.parent = s.name
)
SELECT t.root,
       COALESCE(sum(s.amount) FILTER (WHERE s.day >= $4::timestamptz), 0)::bigint,
       COALESCE(sum(s.amount) FILTER (WHERE s.day >= $5::timestamptz), 0)::bigint,
       COALESCE(sum(s.amount) FILTER (WHERE s.day >= $6::timestamptz), 0)::bigint,
       COALESCE(sum(s.amount) FILTER (WHERE s.day >= $7::timestamptz), 0)::bigint,
       COALESCE(sum(s.amount) FILTER (WHERE s.day >= $8::timestamptz), 0)::bigint
FROM subtree t LEFT JOIN spending s ON s.account = t.name AND s.day >= least($4::timestamptz, $5::timestamptz, $6::timestamptz, $7::timestamptz, $8::timestamptz)
GROUP BY t.root;

-- name: SpendingOfAccount
-- Its own, by day, in [$2, $3).
SELECT account, day, amount FROM spending WHERE account = $1 AND day >= $2 AND day < $3 ORDER BY day;

-- name: SpendingAll
SELECT account, day, amount FROM spending ORDER BY account, day;
