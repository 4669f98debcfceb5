-- Places pods: Allocate, which may bring its hold along, ConfirmBound and ReleaseAllocation, as the leader of an epoch.
GRANT SELECT ON account, account_policy, lot, rate, reservation, allocation, command, leadership TO gpubank_scheduler;
-- An account's figures, never its settings (name, parent, policy, policy_version, frozen).
GRANT UPDATE (balance, reserved, held, charged, running,
              subtree_balance, subtree_reserved, subtree_held, subtree_running, subtree_overspent, subtree_spent, spent_since,
              refilled_at, last_entry_at, due_at, revision) ON account TO gpubank_scheduler;
GRANT UPDATE (free, held, expired) ON lot TO gpubank_scheduler;
GRANT INSERT ON reservation, allocation, entry, command, leadership TO gpubank_scheduler;
GRANT UPDATE (gpu_seconds, amount, takes, charged, state, reason, closed_at) ON reservation TO gpubank_scheduler;
GRANT UPDATE (pod_namespace, pod_name, node, class, rate_version, rate, gpus, gpu_uuids, leader_epoch, state, intended_at,
              started_at, ended_at, last_seen, charged, refunded, refunded_for) ON allocation TO gpubank_scheduler;
GRANT UPDATE (epoch, holder, acquired_at) ON leadership TO gpubank_scheduler;
-- Whom it stops for whom, before it does; and, at its start, whom it has stopped lately.
GRANT SELECT, INSERT ON preemption TO gpubank_scheduler;
GRANT SELECT ON preemption_outcome TO gpubank_scheduler;
