-- Each statement returns (invariant, subject, accounts, mark, detail) for what is broken; no row means sound. What is checked is
-- what the rows say, whatever wrote them. Accounts are those to freeze; mark stays the same for as long as the violation lasts:
-- see ledger.Violation.

-- name: AuditReserved
SELECT 'I1', name, ARRAY[name], '', format('reserves %s itself and %s with its subtree, holds %s and %s', reserved, subtree_reserved, held, subtree_held)
FROM account WHERE reserved < 0 OR subtree_reserved < 0 OR held < 0 OR subtree_held < 0
ORDER BY name;

-- name: AuditProjections
-- What reservations and allocations say was charged and refunded, against the entries. The spender is the one to freeze: it is
-- whose workload it was.
SELECT 'I2', 'reservation ' || r.uid, ARRAY[r.account], format('charged:%s', r.charged - COALESCE(e.amount, 0)),
       format('says %s charged, its entries add up to %s', r.charged, COALESCE(e.amount, 0))
FROM reservation r
LEFT JOIN (SELECT reservation, sum(amount) AS amount FROM entry WHERE kind = 'Charge' GROUP BY reservation) e ON e.reservation = r.uid
WHERE r.charged <> COALESCE(e.amount, 0)
UNION ALL
SELECT 'I2', 'allocation ' || a.pod_uid, ARRAY[a.account],
       format('charged:%s refunded:%s', a.charged - COALESCE(e.charged, 0), a.refunded - COALESCE(e.refunded, 0)),
       format('says %s charged and %s refunded, its entries add up to %s and %s', a.charged, a.refunded, COALESCE(e.charged, 0), COALESCE(e.refunded, 0))
FROM allocation a
LEFT JOIN (SELECT allocation, sum(amount) FILTER (WHERE kind = 'Charge') AS charged, sum(amount) FILTER (WHERE kind = 'Refund') AS refunded
           FROM entry WHERE allocation IS NOT NULL GROUP BY allocation) e ON e.allocation = a.pod_uid
WHERE a.charged <> COALESCE(e.charged, 0) OR a.refunded <> COALESCE(e.refunded, 0)
   OR COALESCE(e.refunded, 0) > COALESCE(e.charged, 0)
ORDER BY 2;

-- name: AuditSpending
-- The spenders' days against the entries: the days themselves are what moved accounts take along.
SELECT 'I2', 'spending of account ' || COALESCE(s.account, e.spender), ARRAY[COALESCE(s.account, e.spender)],
       format('%s:%s', COALESCE(s.day, e.day), COALESCE(s.amount, 0) - COALESCE(e.amount, 0)),
       format('on %s says %s, its entries add up to %s', COALESCE(s.day, e.day) AT TIME ZONE 'UTC', COALESCE(s.amount, 0), COALESCE(e.amount, 0))
FROM spending s
FULL JOIN (
    SELECT spender, (recorded_at AT TIME ZONE 'UTC')::date::timestamp AT TIME ZONE 'UTC' AS day,
           sum(CASE kind WHEN 'Refund' THEN -amount ELSE amount END) AS amount
    FROM entry WHERE spender IS NOT NULL GROUP BY 1, 2
) e ON e.spender = s.account AND e.day = s.day
WHERE COALESCE(s.amount, 0) <> COALESCE(e.amount, 0)
ORDER BY 2;

-- name: AuditPolicies
-- Every account goes by its newest policy, and none of its policies is missing.
SELECT 'I2', 'account ' || a.name, ARRAY[a.name], format('policy:%s', a.policy_version),
       format('goes by policy %s: %s; its newest is %s of %s: %s', a.policy_version, a.policy, p.newest, p.versions, p.policy)
FROM account a
LEFT JOIN (
    SELECT account, max(version) AS newest, count(*) AS versions, (array_agg(policy ORDER BY version DESC))[1] AS policy
    FROM account_policy GROUP BY account
) p ON p.account = a.name
WHERE p.newest IS DISTINCT FROM a.policy_version OR p.policy IS DISTINCT FROM a.policy OR p.versions IS DISTINCT FROM a.policy_version
ORDER BY 2;

-- name: AuditLotOrigins
-- Every lot comes from an entry: a grant, or a transfer of one. When it expires is in no entry.
SELECT 'I2', 'lot ' || l.key, ARRAY[l.account], 'origin',
       format('of %s in account %s comes from no grant or transfer that says so', l.amount, l.account)
FROM lot l
LEFT JOIN entry g ON g.kind = 'Grant' AND l.key = 'grant:' || g.event_key
LEFT JOIN entry t ON t.kind = 'Transfer' AND l.key LIKE 'transfer:%' AND t.event_key = regexp_replace(substr(l.key, 10), '#[0-9]+$', '')
WHERE NOT (COALESCE(g.credit = l.account AND g.amount = l.amount, false) OR COALESCE(t.credit = l.account AND t.amount >= l.amount, false))
ORDER BY 2;

-- name: AuditOverlaps
SELECT 'I3', 'allocation ' || i.pod_uid, ARRAY[a.account], i.started_at::text,
       format('an interval starts at %s, before the one before it ends at %s', i.started_at, i.previous_end)
FROM (SELECT pod_uid, started_at, max(ended_at) OVER (PARTITION BY pod_uid ORDER BY started_at
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_end
      FROM metered_interval) i
JOIN allocation a ON a.pod_uid = i.pod_uid
WHERE i.started_at < i.previous_end
ORDER BY 2;

-- name: AuditSharedDevices
-- Two pods on one GPU at once is a fact to keep, and a violation only where it was not kept. The key is the one of
-- ledger.GPUChargedTwiceKey.
SELECT 'I3', 'GPU ' || a.gpu_uuid, ARRAY[p.account, q.account], a.pod_uid || ':' || b.pod_uid,
       format('pods %s and %s were metered on it at once, and no discrepancy says so', a.pod_uid, b.pod_uid)
FROM device_hold a
JOIN device_hold b ON b.gpu_uuid = a.gpu_uuid AND b.pod_uid COLLATE "C" > a.pod_uid COLLATE "C"
                  AND a.started_at < b.ended_at AND b.started_at < a.ended_at
JOIN allocation p ON p.pod_uid = a.pod_uid
JOIN allocation q ON q.pod_uid = b.pod_uid
WHERE NOT EXISTS (SELECT FROM discrepancy d WHERE d.key = 'gpu-twice:' || a.gpu_uuid || ':' || a.pod_uid || ':' || b.pod_uid)
ORDER BY 2;

-- name: AuditCharges
-- I4 for each interval: its charge is floor(rate × gpus × (end − start of the allocation)) minus the same up to its
-- start. numeric throughout; extract(epoch) is exact in numeric.
SELECT 'I4', 'allocation ' || pod_uid, ARRAY[account], format('%s:%s', started_at, charge - price),
       format('[%s, %s) is charged %s, its price is %s', started_at, ended_at, charge, price)
FROM (
    SELECT i.pod_uid, a.account, i.started_at, i.ended_at, i.charge,
           floor(a.rate::numeric * a.gpus * extract(epoch FROM i.ended_at - a.started_at))
         - floor(a.rate::numeric * a.gpus * extract(epoch FROM i.started_at - a.started_at)) AS price
    FROM metered_interval i JOIN allocation a ON a.pod_uid = i.pod_uid
) p
WHERE price IS NULL OR price <> charge
ORDER BY 2, started_at;

-- name: AuditAllocationSums
-- I4 for each allocation: intervals and entries add up to the same; and one that ended is covered without a gap from
-- its start to its end.
SELECT 'I4', 'allocation ' || a.pod_uid, ARRAY[a.account], format('%s', COALESCE(i.charge, 0) - a.charged),
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

-- name: AuditCompacted
-- I3: rows that stand for others are exactly what those were: the runs, put together where one follows another of the same source,
-- are the rows; and an allocation that has such rows is marked, and has ended.
WITH run AS (
    SELECT c.pod_uid, r.derived, r.position, r.start AS started_at,
           r.start + (r.micros * r.count) * interval '1 microsecond' AS ended_at
    FROM compacted_time c, unnest(c.starts, c.microseconds, c.counts, c.derived) WITH ORDINALITY AS r (start, micros, count, derived, position)
), joint AS (
    SELECT *, lag(ended_at) OVER pod IS DISTINCT FROM started_at OR lag(derived) OVER pod IS DISTINCT FROM derived AS begins
    FROM run WINDOW pod AS (PARTITION BY pod_uid ORDER BY position)
), stretch AS (
    SELECT pod_uid, CASE WHEN derived THEN 'Derived' ELSE 'Agent' END AS source, min(started_at) AS started_at, max(ended_at) AS ended_at
    FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY pod_uid ORDER BY position) AS number FROM joint) j
    GROUP BY pod_uid, number, derived
), metered AS (
    SELECT i.pod_uid, i.source, i.started_at, i.ended_at
    FROM metered_interval i WHERE EXISTS (SELECT FROM compacted_time c WHERE c.pod_uid = i.pod_uid)
)
SELECT 'I3', 'allocation ' || COALESCE(s.pod_uid, m.pod_uid), ARRAY[a.account], format('compacted:%s', COALESCE(s.started_at, m.started_at)),
       format('was compacted from %s [%s, %s), its interval is %s [%s, %s)', s.source, s.started_at, s.ended_at, m.source, m.started_at, m.ended_at)
FROM stretch s
FULL JOIN metered m ON m.pod_uid = s.pod_uid AND m.source = s.source AND m.started_at = s.started_at AND m.ended_at = s.ended_at
LEFT JOIN allocation a ON a.pod_uid = COALESCE(s.pod_uid, m.pod_uid)
WHERE s.pod_uid IS NULL OR m.pod_uid IS NULL
UNION ALL
SELECT 'I3', 'allocation ' || c.pod_uid, ARRAY[a.account], 'compacted', format('was compacted, is %s and marked %s', a.state, a.compacted)
FROM compacted_time c LEFT JOIN allocation a ON a.pod_uid = c.pod_uid
WHERE a.state IS DISTINCT FROM 'Ended' OR NOT a.compacted
ORDER BY 2;

-- name: AuditCompactedCharges
-- I4: charges, which are sealed, were made interval by interval: each ends where an interval ended that was compacted. Times that
-- never were cannot be put into compacted rows.
SELECT 'I4', 'allocation ' || e.allocation, ARRAY[e.spender], 'compacted charge',
       format('charge %s ends at %s, where none of its compacted intervals ended', min(e.id), min(e.occurred_at))
FROM entry e JOIN compacted_time c ON c.pod_uid = e.allocation
WHERE e.kind = 'Charge' AND NOT EXISTS (
    SELECT FROM unnest(c.starts, c.microseconds, c.counts) AS r (start, micros, count)
    WHERE e.occurred_at > r.start AND e.occurred_at <= r.start + (r.micros * r.count) * interval '1 microsecond'
      AND (extract(epoch FROM e.occurred_at - r.start) * 1000000)::bigint % r.micros = 0)
GROUP BY e.allocation, e.spender
ORDER BY 2;

-- name: AuditReservations
SELECT 'I5', 'reservation ' || uid, ARRAY[account], 'closed', format('is %s, closed at %s', state, closed_at)
FROM reservation
WHERE (state IN ('Held', 'Active')) <> (closed_at IS NULL)
UNION ALL
SELECT 'I5', 'reservation ' || r.uid, ARRAY[r.account], r.state, format('is %s although pod %s was allocated under it', r.state, min(a.pod_uid))
FROM reservation r JOIN allocation a ON a.reservation = r.uid
WHERE r.state NOT IN ('Active', 'Settled')
GROUP BY r.uid, r.account, r.state
UNION ALL
SELECT 'I4', 'reservation ' || uid, ARRAY[account], 'amount', format('holds %s, the price of %s GPU-seconds at %s is %s', amount, gpu_seconds, rate, rate::numeric * gpu_seconds)
FROM reservation
WHERE amount <> rate::numeric * gpu_seconds
UNION ALL
SELECT 'I4', 'allocation ' || a.pod_uid, CASE a.account WHEN r.account THEN ARRAY[a.account] ELSE ARRAY[a.account, r.account] END, 'terms',
       format('is of account %s at rate %s (version %s), its reservation %s of %s at %s (version %s)', a.account, a.rate, a.rate_version, r.uid, r.account, r.rate, r.rate_version)
FROM allocation a JOIN reservation r ON r.uid = a.reservation
WHERE a.account <> r.account
   -- A hold that is set aside anew between two attempts may have another price than what has ended.
   OR a.state NOT IN ('Ended', 'Released') AND (a.class, a.rate, a.rate_version) IS DISTINCT FROM (r.class, r.rate, r.rate_version)
ORDER BY 2;

-- name: AuditEpochs
SELECT 'I7', 'allocation ' || pod_uid, ARRAY[account], '', format('was written under epoch %s, no leader ever had one above %s', leader_epoch, highest)
FROM allocation, (SELECT COALESCE(max(epoch), 0) AS highest FROM leadership) l
WHERE leader_epoch > highest
ORDER BY 2;

-- name: AuditGuards
-- The triggers and constraints that keep other clients from breaking the invariants are there and switched on. They concern
-- every account, so none in particular.
SELECT g.invariant, g.name, NULL::text[], '', 'its trigger is missing or switched off'
FROM (VALUES ('I8', 'entry', 'entry_is_append_only'), ('I8', 'entry', 'entry_is_never_truncated'),
             ('I8', 'account', 'account_with_entries_stays'), ('I8', 'account', 'account_that_pays_stays'),
             ('I8', 'seal', 'seal_is_append_only'), ('I8', 'seal', 'seal_is_never_truncated'),
             ('I8', 'seal_progress', 'seal_progress_is_never_deleted'),
             ('I2', 'account_policy', 'policy_version_is_never_edited'),
             ('I2', 'lot', 'lot_terms_never_change'), ('I2', 'lot', 'lot_is_never_deleted'),
             ('I3', 'discrepancy', 'discrepancy_keeps_both_sides'), ('I3', 'discrepancy', 'discrepancy_is_never_deleted'),
             ('I8', 'account', 'account_with_reservations_stays'),
             ('I3', 'metered_interval', 'interval_overlaps_no_other_of_its_pod'), ('I3', 'metered_interval', 'interval_is_never_edited'),
             ('I3', 'metered_interval', 'interval_is_expanded_before_it_goes'), ('I3', 'compacted_time', 'compacted_time_is_never_edited'),
             ('I3', 'compacted_time', 'compacted_time_is_never_truncated'), ('I3', 'compacted_time', 'compacted_time_names_its_allocation'),
             ('I9', 'metered_interval', 'interval_names_its_allocation'), ('I9', 'device_hold', 'device_hold_names_its_allocation'),
             ('I2', 'reservation', 'reservation_names_what_exists'), ('I2', 'allocation', 'allocation_names_its_reservation'),
             ('I6', 'command', 'command_is_never_edited'),
             ('I5', 'reservation', 'reservation_ends_once'), ('I5', 'reservation', 'reservation_terms_never_change'),
             ('I5', 'reservation', 'reservation_is_never_deleted'), ('I4', 'reservation', 'reservation_price_is_its_pods'),
             ('I5', 'allocation', 'allocation_moves_by_the_rules'), ('I4', 'allocation', 'allocation_terms_never_change'),
             ('I9', 'allocation', 'allocation_is_never_deleted'), ('I6', 'allocation', 'allocation_is_refunded_once'),
             ('I4', 'rate', 'rate_version_is_never_edited'),
             ('I8', 'preemption', 'preemption_is_append_only'), ('I8', 'preemption_outcome', 'preemption_outcome_is_append_only'),
             ('I7', 'leadership', 'leadership_epoch_only_grows'), ('I7', 'leadership', 'leadership_is_never_forgotten'),
             ('I7', 'node_agent', 'node_agent_epoch_only_grows'), ('I7', 'node_agent', 'node_agent_is_never_forgotten')
     ) AS g (invariant, tab, name)
WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgname = g.name AND t.tgrelid = g.tab::regclass AND t.tgenabled IN ('O', 'A'))
UNION ALL
SELECT g.invariant, g.name, NULL, '', 'its constraint is missing'
FROM (VALUES ('I3', 'metered_interval', 'interval_is_not_empty'),
             ('I3', 'metered_interval', 'interval_source_is_known'), ('I3', 'metered_interval', 'interval_charge_is_not_negative'),
             ('I3', 'compacted_time', 'compacted_time_has_whole_runs'), ('I3', 'compacted_time', 'compacted_time_takes_time'),
             ('I3', 'device_hold', 'device_hold_is_not_empty'),
             ('I6', 'entry', 'entry_key_is_used_once'), ('I6', 'command', 'command_key_is_used_once'),
             ('I10', 'entry', 'entry_sides_differ'), ('I10', 'entry', 'entry_amount_is_positive'), ('I10', 'entry', 'entry_kind_is_known'),
             ('I2', 'entry', 'entry_charge_names_its_allocation'), ('I8', 'entry', 'entry_adjustment_has_a_reason'),
             ('I8', 'entry', 'entry_corrects_by_adjustment'),
             ('I1', 'account', 'account_reserves_nothing_negative'), ('I1', 'account', 'account_holds_and_runs_nothing_negative'),
             ('I2', 'account', 'account_charged_is_not_negative'), ('I2', 'account', 'account_policy_counts_from_one'),
             ('I10', 'account', 'account_name_is_a_dns_subdomain'),
             ('I5', 'reservation', 'reservation_state_is_known'), ('I5', 'reservation', 'reservation_is_closed_when_it_ends'),
             ('I4', 'reservation', 'reservation_amount_is_its_price'), ('I4', 'reservation', 'reservation_amount_is_not_negative'),
             ('I2', 'reservation', 'reservation_charged_is_not_negative'),
             ('I5', 'allocation', 'allocation_state_is_known'), ('I5', 'allocation', 'allocation_has_no_end_before_it_ended'),
             ('I5', 'allocation', 'allocation_is_metered_from_its_start'),
             ('I4', 'allocation', 'allocation_ends_after_its_start'), ('I4', 'allocation', 'allocation_has_gpus'),
             ('I2', 'allocation', 'allocation_charged_is_not_negative'), ('I2', 'allocation', 'allocation_refund_is_within_its_charge'),
             ('I2', 'lot', 'lot_has_nothing_negative'), ('I2', 'lot', 'lot_has_no_more_than_its_amount'),
             ('I3', 'discrepancy', 'discrepancy_is_closed_with_a_reason'),
             ('I8', 'seal', 'seal_follows_the_one_before'), ('I8', 'seal', 'seal_hash_is_sha256')
     ) AS g (invariant, tab, name)
WHERE NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = g.name AND c.conrelid = g.tab::regclass AND c.convalidated)
UNION ALL
SELECT g.invariant, g.name, NULL, '', 'its policy is missing, or row level security is switched off'
FROM (VALUES ('I8', 'entry', 'entry_of_this_kind_is_the_controllers'),
             ('I5', 'reservation', 'reservation_begins_without_charges'), ('I5', 'reservation', 'reservation_goes_on_by_the_controller'),
             ('I5', 'allocation', 'allocation_begins_without_charges'), ('I5', 'allocation', 'allocation_goes_on_by_the_controller')
     ) AS g (invariant, tab, name)
WHERE NOT EXISTS (SELECT FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
                  WHERE p.polname = g.name AND p.polrelid = g.tab::regclass AND NOT p.polpermissive AND c.relrowsecurity)
UNION ALL
SELECT 'I8', g.tab, NULL, r.rolname, format('role %s may change or remove its rows, which are written once; migrate again to renew the rights', r.rolname)
FROM (VALUES ('entry'), ('command'), ('account_policy'), ('rate'), ('seal')) AS g (tab), pg_roles r
WHERE r.rolname IN ('gpubank_controller', 'gpubank_reader', 'gpubank_scheduler', 'gpubank_webhook')
  AND (has_table_privilege(r.oid, g.tab::regclass, 'DELETE, TRUNCATE, TRIGGER') OR has_any_column_privilege(r.oid, g.tab::regclass, 'UPDATE'))
UNION ALL
-- A session that takes several ids in advance would use lower ones after another session's higher ones.
SELECT 'I8', 'entry', NULL, 'cache', format('its ids are handed out %s at a time, so that they do not follow the order of commits', s.seqcache)
FROM pg_sequence s
WHERE s.seqrelid = pg_get_serial_sequence('entry', 'id')::regclass AND s.seqcache <> 1
ORDER BY 2;

-- name: AuditUnbilled
-- I9: every priced interval has its money, whoever measured it: nothing that was metered is missing from the entries.
SELECT 'I9', 'ledger', NULL::text[], format('%s', i.charge - e.amount), format('intervals add up to %s, charges to %s', i.charge, e.amount)
FROM (SELECT COALESCE(sum(charge), 0) AS charge FROM metered_interval) i,
     (SELECT COALESCE(sum(amount), 0) AS amount FROM entry WHERE kind = 'Charge') e
WHERE i.charge <> e.amount;

-- name: AuditZeroSum
-- I10: over all accounts, the system's included, every entry adds up to zero: what accounts hold is what came from the system's
-- accounts less what went to them.
SELECT 'I10', 'ledger', NULL::text[], format('%s', held - came + went),
       format('accounts hold %s; %s came from the system accounts and %s went to them', held, came, went)
FROM (SELECT COALESCE(sum(balance), 0) AS held FROM account) a,
     (SELECT COALESCE(sum(amount) FILTER (WHERE debit LIKE 'system:%'), 0) AS came,
             COALESCE(sum(amount) FILTER (WHERE credit LIKE 'system:%'), 0) AS went FROM entry) e
WHERE held <> came - went;

-- name: AuditEntries
-- I10: each entry has the two sides that its kind has, both exist, and it belongs to the workload that it names. Spenders move
-- within the tree, so that the payer was above the spender cannot be told afterwards; that it is the reservation's can.
SELECT 'I10', 'entry ' || e.id,
       (SELECT array_agg(n ORDER BY n) FROM unnest(ARRAY[e.debit, e.credit, e.spender]) n WHERE EXISTS (SELECT FROM account a WHERE a.name = n)),
       e.kind, format('%s moves %s from %s to %s for %s, and that is not what a %s does', e.event_key, e.amount, e.debit, e.credit, COALESCE(e.spender, 'nobody'), e.kind)
FROM entry e
LEFT JOIN account d ON d.name = e.debit
LEFT JOIN account c ON c.name = e.credit
WHERE e.amount <= 0 OR e.debit = e.credit OR NOT COALESCE(CASE e.kind
    WHEN 'Grant' THEN e.debit = 'system:issuance' AND c.name IS NOT NULL
    WHEN 'Refill' THEN e.debit = 'system:issuance' AND c.name IS NOT NULL
    WHEN 'Expiry' THEN d.name IS NOT NULL AND e.credit = 'system:expired'
    WHEN 'Charge' THEN d.name IS NOT NULL AND e.credit = 'system:revenue'
    WHEN 'Refund' THEN e.debit = 'system:revenue' AND c.name IS NOT NULL
    WHEN 'Adjustment' THEN (e.debit = 'system:adjustments' AND c.name IS NOT NULL) OR (d.name IS NOT NULL AND e.credit = 'system:adjustments')
    WHEN 'Transfer' THEN d.name IS NOT NULL AND c.name IS NOT NULL
    END, false)
UNION ALL
SELECT 'I10', 'entry ' || e.id,
       (SELECT array_agg(n ORDER BY n) FROM unnest(ARRAY[e.debit, e.credit, e.spender]) n WHERE EXISTS (SELECT FROM account a WHERE a.name = n)),
       'workload', format('%s names pod %s of workload %s, payer %s and spender %s; the ledger has workload %s of %s, paid by %s',
           e.event_key, e.allocation, e.reservation, CASE e.kind WHEN 'Charge' THEN e.debit ELSE e.credit END, e.spender, a.reservation, r.account, r.payer)
FROM entry e
LEFT JOIN allocation a ON a.pod_uid = e.allocation
LEFT JOIN reservation r ON r.uid = e.reservation
WHERE e.kind IN ('Charge', 'Refund')
  AND (a.reservation, r.account, r.payer) IS DISTINCT FROM (e.reservation, e.spender, CASE e.kind WHEN 'Charge' THEN e.debit ELSE e.credit END)
UNION ALL
SELECT 'I10', 'entry ' || e.id, ARRAY[CASE WHEN e.debit LIKE 'system:%' THEN e.credit ELSE e.debit END], 'corrects',
       format('corrects entry %s, which is not an earlier one of the same account', e.corrects)
FROM entry e
LEFT JOIN entry w ON w.id = e.corrects
WHERE e.corrects IS NOT NULL
  AND NOT COALESCE(w.id < e.id AND CASE WHEN e.debit LIKE 'system:%' THEN e.credit ELSE e.debit END IN (w.debit, w.credit), false)
ORDER BY 2;

-- name: AuditDraws
-- What entries took out of lots; it is read here, since a damaged list is a finding and not the end of the audit.
SELECT id, kind, event_key, debit, credit, amount, draws FROM entry WHERE draws <> '' ORDER BY id;

-- name: AuditTakes
-- What reservations have set aside of lots.
SELECT uid, account, payer, state IN ('Held', 'Active'), amount, charged, takes FROM reservation WHERE takes <> '' ORDER BY uid;

-- name: AuditSize
SELECT (SELECT count(*) FROM account), (SELECT count(*) FROM reservation), (SELECT count(*) FROM allocation),
       (SELECT count(*) FROM metered_interval), (SELECT count(*) FROM entry);
