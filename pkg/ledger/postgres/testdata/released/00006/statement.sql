-- name: StatementOpening
-- The balance that entries recorded before a moment add up to.
SELECT COALESCE(sum(CASE WHEN credit = $1 THEN amount ELSE -amount END), 0)::bigint
FROM (SELECT credit, amount FROM entry WHERE credit = $1 AND credit <> 'system:revenue' AND recorded_at < $2
      UNION ALL
      SELECT credit, amount FROM entry WHERE debit = $1 AND recorded_at < $2) AS e;

-- name: StatementEntries
-- One page of an account's entries, by keyset: after the page's last (recorded_at, id), so that equal times neither
-- skip nor repeat rows (L35). Each arm of the union walks its own index.
SELECT id, kind, amount, reservation, allocation, occurred_at, recorded_at, reason, actor,
       COALESCE(workload_kind, ''), COALESCE(workload_namespace, ''), COALESCE(workload_name, '')
FROM (
    (SELECT id, kind, amount, reservation, allocation, occurred_at, recorded_at, reason, actor
     FROM entry
     WHERE credit = $1 AND credit <> 'system:revenue' AND recorded_at < $2 AND (recorded_at, id) > ($3, $4)
     ORDER BY recorded_at, id LIMIT $5)
    UNION ALL
    (SELECT id, kind, -amount, reservation, allocation, occurred_at, recorded_at, reason, actor
     FROM entry
     WHERE debit = $1 AND recorded_at < $2 AND (recorded_at, id) > ($3, $4)
     ORDER BY recorded_at, id LIMIT $5)
    ORDER BY recorded_at, id LIMIT $5
) AS e
LEFT JOIN LATERAL (
    SELECT workload_kind, workload_namespace, workload_name FROM reservation r WHERE r.uid = e.reservation
) AS w ON true
ORDER BY recorded_at, id;

-- name: StatementReserved
SELECT reserved FROM account WHERE name = $1;

-- name: StatementWorkloads
-- Reservations that were open at some time of the period, or had a charge recorded in it.
SELECT r.uid, r.workload_kind, r.workload_namespace, r.workload_name, r.class, r.rate, r.state, r.amount, r.charged,
       r.created_at, r.closed_at,
       COALESCE((SELECT sum(e.amount) FROM allocation a JOIN entry e ON e.allocation = a.pod_uid
                 WHERE a.reservation = r.uid AND e.recorded_at >= $2 AND e.recorded_at < $3), 0)::bigint,
       COALESCE((SELECT sum(i.charge) FROM allocation a JOIN metered_interval i ON i.pod_uid = a.pod_uid
                 WHERE a.reservation = r.uid AND i.source = 'Derived'), 0)::bigint
FROM reservation r
WHERE r.account = $1 AND r.created_at < $3
  AND (r.closed_at IS NULL OR r.closed_at >= $2
       OR EXISTS (SELECT FROM allocation a JOIN entry e ON e.allocation = a.pod_uid
                  WHERE a.reservation = r.uid AND e.recorded_at >= $2 AND e.recorded_at < $3))
ORDER BY r.created_at, r.uid;
