-- A statement is a part of an account's entries in the order of (recorded_at, id): behind ($2, $3), up to and with ($4, $5).
-- A whole period [from, to) is what lies behind (from, 0) up to (to, 0), since ids begin with 1. Conditions on "system:" repeat
-- those of the partial indexes, which the planner would not use otherwise.

-- name: fragment own entries
-- What an account received and paid. Each arm walks its own index; amounts as the account sees them.
SELECT id, amount AS moved, recorded_at FROM entry
WHERE credit = $1 AND credit NOT LIKE 'system:%' AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
UNION ALL
SELECT id, -amount, recorded_at FROM entry
WHERE debit = $1 AND debit NOT LIKE 'system:%' AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)

-- name: StatementBalance
-- The balance behind a place, and what else the account says of itself: its balance less what it received and paid since
-- (I2), which reads no more of its history than a statement of the time since then. $4 and $5 are beyond all entries.
SELECT a.balance - (SELECT COALESCE(sum(moved), 0) FROM ({own entries}) e)::bigint, a.reserved, a.frozen
FROM account a WHERE a.name = $1;

-- name: StatementPaidSum
-- What others paid for the account's workloads in the statement's part.
SELECT COALESCE(sum(CASE kind WHEN 'Refund' THEN -amount ELSE amount END), 0)::bigint
FROM entry
WHERE spender = $1 AND spender <> debit AND spender <> credit AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5);

-- name: StatementEnd
-- Where a page ends that has $6 entries, own ones and those that others paid; and whether there are more.
SELECT recorded_at, id, count(*) OVER () > $6 AS more
FROM (
    (SELECT recorded_at, id FROM entry
     WHERE credit = $1 AND credit NOT LIKE 'system:%' AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
     ORDER BY recorded_at, id LIMIT $6 + 1)
    UNION ALL
    (SELECT recorded_at, id FROM entry
     WHERE debit = $1 AND debit NOT LIKE 'system:%' AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
     ORDER BY recorded_at, id LIMIT $6 + 1)
    UNION ALL
    (SELECT recorded_at, id FROM entry
     WHERE spender = $1 AND spender <> debit AND spender <> credit AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
     ORDER BY recorded_at, id LIMIT $6 + 1)
    ORDER BY recorded_at, id LIMIT $6 + 1
) AS e
ORDER BY recorded_at, id OFFSET $6 - 1 LIMIT 1;

-- name: fragment statement entry
id, kind, event_key, amount, debit, credit, COALESCE(spender, '') AS spender, COALESCE(reservation, '') AS reservation,
       COALESCE(allocation, '') AS allocation, COALESCE(corrects, 0) AS corrects, draws, occurred_at, recorded_at, reason, actor

-- name: fragment with workload
SELECT e.*, COALESCE(r.workload_kind, ''), COALESCE(r.workload_namespace, ''), COALESCE(r.workload_name, '')

-- name: StatementEntries
-- One chunk of the account's own entries, $6 at most, by keyset: behind the last one's (recorded_at, id), so that equal times
-- neither skip nor repeat rows (L35).
{with workload}
FROM (
    (SELECT {statement entry} FROM entry
     WHERE credit = $1 AND credit NOT LIKE 'system:%' AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
     ORDER BY recorded_at, id LIMIT $6)
    UNION ALL
    (SELECT {statement entry} FROM entry
     WHERE debit = $1 AND debit NOT LIKE 'system:%' AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
     ORDER BY recorded_at, id LIMIT $6)
    ORDER BY recorded_at, id LIMIT $6
) AS e
LEFT JOIN reservation r ON r.uid = e.reservation
ORDER BY e.recorded_at, e.id;

-- name: StatementPaid
-- Likewise of what others paid.
{with workload}
FROM (
    SELECT {statement entry} FROM entry
    WHERE spender = $1 AND spender <> debit AND spender <> credit AND (recorded_at, id) > ($2, $3) AND (recorded_at, id) <= ($4, $5)
    ORDER BY recorded_at, id LIMIT $6
) AS e
LEFT JOIN reservation r ON r.uid = e.reservation
ORDER BY e.recorded_at, e.id;

-- name: StatementLots
-- When the lots expire that entries brought or took.
SELECT {lot} FROM lot WHERE key = ANY ($1::text[]);

-- name: StatementCorrected
-- Entries that adjustments correct, as account $2 sees them.
SELECT id, kind, CASE credit WHEN $2 THEN amount ELSE -amount END, recorded_at FROM entry WHERE id = ANY ($1::bigint[]);

-- name: StatementWorkloads
-- Reservations of the account's own workloads, and of others that it pays for, that were open at some time of the period;
-- and those that an entry of the period is for, its own or another's payment.
SELECT r.uid, r.workload_kind, r.workload_namespace, r.workload_name, r.account, r.payer, r.class, r.rate, r.state, r.amount, r.charged,
       r.created_at, r.closed_at, COALESCE(p.policy, ''),
       COALESCE((SELECT sum(a.refunded) FROM allocation a WHERE a.reservation = r.uid), 0)::bigint,
       COALESCE((SELECT sum(e.amount) FROM allocation a JOIN entry e ON e.allocation = a.pod_uid
                 WHERE a.reservation = r.uid AND e.kind = 'Charge' AND e.recorded_at >= $2 AND e.recorded_at < $3), 0)::bigint,
       COALESCE((SELECT sum(i.charge) FROM allocation a JOIN metered_interval i ON i.pod_uid = a.pod_uid
                 WHERE a.reservation = r.uid AND i.source = 'Derived'), 0)::bigint
FROM reservation r
LEFT JOIN account_policy p ON p.account = r.account AND p.version = r.policy_version
WHERE r.uid IN (
    SELECT uid FROM reservation WHERE account = $1 AND closed_at IS NULL AND created_at < $3
    UNION
    SELECT uid FROM reservation WHERE account = $1 AND closed_at >= $2 AND created_at < $3
    UNION
    SELECT uid FROM reservation WHERE payer = $1 AND payer <> account AND (closed_at IS NULL OR closed_at >= $2) AND created_at < $3
    UNION
    SELECT reservation FROM entry
    WHERE debit = $1 AND debit NOT LIKE 'system:%' AND reservation IS NOT NULL AND recorded_at >= $2 AND recorded_at < $3
    UNION
    SELECT reservation FROM entry
    WHERE credit = $1 AND credit NOT LIKE 'system:%' AND reservation IS NOT NULL AND recorded_at >= $2 AND recorded_at < $3
    UNION
    SELECT reservation FROM entry
    WHERE spender = $1 AND spender <> debit AND spender <> credit AND recorded_at >= $2 AND recorded_at < $3
)
ORDER BY r.created_at, r.uid;
