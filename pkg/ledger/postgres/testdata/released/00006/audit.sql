-- Each statement returns (invariant, subject, detail) for what is broken; no row means sound. What is checked is what
-- the rows say, whatever wrote them.

-- name: AuditReserved
SELECT 'I1', name, format('reserves %s itself and %s with its subtree', reserved, subtree_reserved)
FROM account WHERE reserved < 0 OR subtree_reserved < 0
ORDER BY name;

-- name: AuditProjections
-- What reservations and allocations say was charged, against the entries.
SELECT 'I2', 'reservation ' || r.uid, format('says %s charged, its entries add up to %s', r.charged, COALESCE(e.amount, 0))
FROM reservation r
LEFT JOIN (SELECT reservation, sum(amount) AS amount FROM entry WHERE kind = 'Charge' GROUP BY reservation) e ON e.reservation = r.uid
WHERE r.charged <> COALESCE(e.amount, 0)
UNION ALL
SELECT 'I2', 'allocation ' || a.pod_uid, format('says %s charged, its entries add up to %s', a.charged, COALESCE(e.amount, 0))
FROM allocation a
LEFT JOIN (SELECT allocation, sum(amount) AS amount FROM entry WHERE kind = 'Charge' GROUP BY allocation) e ON e.allocation = a.pod_uid
WHERE a.charged <> COALESCE(e.amount, 0)
ORDER BY 2;

-- name: AuditOverlaps
SELECT 'I3', 'allocation ' || pod_uid, format('an interval starts at %s, before the one before it ends at %s', started_at, previous_end)
FROM (SELECT pod_uid, started_at, max(ended_at) OVER (PARTITION BY pod_uid ORDER BY started_at
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_end
      FROM metered_interval) i
WHERE started_at < previous_end
ORDER BY 2;

-- name: AuditSharedDevices
-- Two pods on one GPU at once is a fact to keep, and a violation only where it was not kept. The key is the one of
-- ledger.GPUChargedTwiceKey.
SELECT 'I3', 'GPU ' || a.gpu_uuid, format('pods %s and %s were metered on it at once, and no discrepancy says so', a.pod_uid, b.pod_uid)
FROM device_hold a
JOIN device_hold b ON b.gpu_uuid = a.gpu_uuid AND b.pod_uid COLLATE "C" > a.pod_uid COLLATE "C"
                  AND a.started_at < b.ended_at AND b.started_at < a.ended_at
WHERE NOT EXISTS (SELECT FROM discrepancy d WHERE d.key = 'gpu-twice:' || a.gpu_uuid || ':' || a.pod_uid || ':' || b.pod_uid)
ORDER BY 2;

-- name: AuditCharges
-- I4 for each interval: its charge is floor(rate × gpus × (end − start of the allocation)) minus the same up to its
-- start. numeric throughout; extract(epoch) is exact in numeric.
SELECT 'I4', 'allocation ' || pod_uid, format('[%s, %s) is charged %s, its price is %s', started_at, ended_at, charge, price)
FROM (
    SELECT i.pod_uid, i.started_at, i.ended_at, i.charge,
           floor(a.rate::numeric * a.gpus * extract(epoch FROM i.ended_at - a.started_at))
         - floor(a.rate::numeric * a.gpus * extract(epoch FROM i.started_at - a.started_at)) AS price
    FROM metered_interval i JOIN allocation a ON a.pod_uid = i.pod_uid
) p
WHERE price IS NULL OR price <> charge
ORDER BY 2, started_at;

-- name: AuditAllocationSums
-- I4 for each allocation: intervals and entries add up to the same; and one that ended is covered without a gap from
-- its start to its end.
SELECT 'I4', 'allocation ' || a.pod_uid,
       format('intervals add up to %s, charged is %s; %s of %s are covered', COALESCE(i.charge, 0), a.charged, i.covered, a.ended_at - a.started_at)
FROM allocation a
LEFT JOIN (
    SELECT m.pod_uid, sum(m.charge) AS charge,
           sum(greatest(least(m.ended_at, b.ended_at) - greatest(m.started_at, b.started_at), interval '0')) AS covered
    FROM metered_interval m JOIN allocation b ON b.pod_uid = m.pod_uid
    GROUP BY m.pod_uid
) i ON i.pod_uid = a.pod_uid
WHERE COALESCE(i.charge, 0) <> a.charged
   OR (a.state = 'Ended' AND a.started_at IS NOT NULL
       AND COALESCE(i.covered, interval '0') <> a.ended_at - a.started_at)
ORDER BY 2;

-- name: AuditReservations
SELECT 'I5', 'reservation ' || uid, format('is %s, closed at %s', state, closed_at)
FROM reservation
WHERE (state IN ('Held', 'Active')) <> (closed_at IS NULL)
UNION ALL
SELECT 'I5', 'reservation ' || r.uid, format('is %s although pod %s was allocated under it', r.state, min(a.pod_uid))
FROM reservation r JOIN allocation a ON a.reservation = r.uid
WHERE r.state NOT IN ('Active', 'Settled')
GROUP BY r.uid, r.state
ORDER BY 2;

-- name: AuditEpochs
SELECT 'I7', 'allocation ' || pod_uid, format('was written under epoch %s, no leader ever had one above %s', leader_epoch, highest)
FROM allocation, (SELECT COALESCE(max(epoch), 0) AS highest FROM leadership) l
WHERE leader_epoch > highest
ORDER BY 2;

-- name: AuditGuards
-- The triggers and constraints that keep other clients from breaking the invariants are there and switched on.
SELECT g.invariant, g.name, 'its trigger is missing or switched off'
FROM (VALUES ('I8', 'entry', 'entry_is_append_only'), ('I8', 'entry', 'entry_is_never_truncated'),
             ('I8', 'account', 'account_with_entries_stays'),
             ('I6', 'command', 'command_is_never_edited'),
             ('I5', 'reservation', 'reservation_ends_once'), ('I5', 'reservation', 'reservation_terms_never_change'),
             ('I5', 'reservation', 'reservation_is_never_deleted'),
             ('I5', 'allocation', 'allocation_moves_by_the_rules'), ('I4', 'allocation', 'allocation_terms_never_change'),
             ('I4', 'rate', 'rate_version_is_never_edited'),
             ('I7', 'leadership', 'leadership_epoch_only_grows'), ('I7', 'node_agent', 'node_agent_epoch_only_grows')
     ) AS g (invariant, tab, name)
WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgname = g.name AND t.tgrelid = g.tab::regclass AND t.tgenabled IN ('O', 'A'))
UNION ALL
SELECT g.invariant, g.name, 'its constraint is missing'
FROM (VALUES ('I3', 'metered_interval', 'interval_overlaps_no_other_of_its_pod'), ('I3', 'metered_interval', 'interval_is_not_empty'),
             ('I6', 'entry', 'entry_key_is_used_once'), ('I6', 'command', 'command_key_is_used_once'),
             ('I10', 'entry', 'entry_sides_differ'), ('I10', 'entry', 'entry_amount_is_positive'),
             ('I1', 'account', 'account_reserves_nothing_negative')
     ) AS g (invariant, tab, name)
WHERE NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = g.name AND c.conrelid = g.tab::regclass)
ORDER BY 2;

-- name: AuditUnbilled
-- I9: every priced interval has its money, whoever measured it: nothing that was metered is missing from the entries.
SELECT 'I9', 'ledger', format('intervals add up to %s, charges to %s', i.charge, e.amount)
FROM (SELECT COALESCE(sum(charge), 0) AS charge FROM metered_interval) i,
     (SELECT COALESCE(sum(amount), 0) AS amount FROM entry WHERE kind = 'Charge') e
WHERE i.charge <> e.amount;

-- name: AuditZeroSum
-- I10: over all accounts, the system's included, every entry adds up to zero; and each side is an account that exists.
SELECT 'I10', 'ledger', format('accounts hold %s, issued %s less revenue %s', held, issued, revenue)
FROM (SELECT COALESCE(sum(balance), 0) AS held FROM account) a,
     (SELECT COALESCE(sum(amount) FILTER (WHERE debit = 'system:issuance'), 0) AS issued,
             COALESCE(sum(amount) FILTER (WHERE credit = 'system:revenue'), 0) AS revenue FROM entry) e
WHERE held <> issued - revenue
UNION ALL
SELECT 'I10', 'entry ' || e.id, format('moves %s from %s to %s, and one of them does not exist', e.amount, e.debit, e.credit)
FROM entry e
WHERE amount <= 0 OR debit = credit
   OR (debit <> 'system:issuance' AND NOT EXISTS (SELECT FROM account a WHERE a.name = e.debit))
   OR (credit <> 'system:revenue' AND NOT EXISTS (SELECT FROM account a WHERE a.name = e.credit))
ORDER BY 2;

-- name: AuditSize
SELECT (SELECT count(*) FROM account), (SELECT count(*) FROM reservation), (SELECT count(*) FROM allocation),
       (SELECT count(*) FROM metered_interval), (SELECT count(*) FROM entry);
