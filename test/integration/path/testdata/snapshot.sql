-- Everything the ledger says about one account ($1), without what differs between two equal runs: UIDs, wall-clock
-- times (given as seconds after the pod's start), epochs, and holds of objects that the API server never stored.
SELECT line FROM (
    SELECT 1 AS part, 0::numeric AS at, format('account balance=%s reserved=%s charged=%s subtree_balance=%s subtree_reserved=%s',
        balance, reserved, charged, subtree_balance, subtree_reserved) AS line
    FROM account WHERE name = $1
    UNION ALL
    SELECT 2, 0, format('reservation %s %s/%s class=%s amount=%s charged=%s max_gpus=%s %s (%s)',
        workload_kind, workload_namespace, workload_name, class, amount, charged, max_gpus, state, reason)
    FROM reservation WHERE account = $1 AND state <> 'Expired'
    UNION ALL
    SELECT 3, 0, format('allocation node=%s gpus=%s charged=%s rate=%s %s lasted=%s uuids=%s',
        node, gpus, charged, rate, state, extract(epoch FROM ended_at - started_at)::bigint, gpu_uuids)
    FROM allocation WHERE account = $1
    UNION ALL
    SELECT 4, extract(epoch FROM i.started_at - a.started_at), format('interval %s..%s %s charge=%s',
        extract(epoch FROM i.started_at - a.started_at)::bigint, extract(epoch FROM i.ended_at - a.started_at)::bigint, i.source, i.charge)
    FROM metered_interval i JOIN allocation a USING (pod_uid) WHERE a.account = $1
    UNION ALL
    SELECT 5, amount, format('entry %s %s -> %s amount=%s %s', kind, debit, credit, amount, reason)
    FROM entry WHERE debit = $1 OR credit = $1
    UNION ALL
    SELECT 6, 0, format('discrepancy %s: %s / %s', kind, ledger, other)
    FROM discrepancy WHERE account = $1
) AS lines ORDER BY part, at, line
