-- Everything else: accounts, prices, grants and corrections, metering, settlement, reconciliation. What is written once
-- (entry, command, account_policy, rate, seal, device_fault) is not even its to change.
GRANT SELECT ON account, account_policy, rate, lot, reservation, allocation, metered_interval, compacted_time, device_hold, entry, spending, command,
                discrepancy, leadership, node_agent, seal, seal_progress, device_fault TO gpubank_controller;
GRANT INSERT ON account, account_policy, rate, lot, reservation, allocation, metered_interval, compacted_time, device_hold, entry, spending, command,
                discrepancy, leadership, node_agent, seal, device_fault TO gpubank_controller;
GRANT UPDATE (parent, policy, policy_version, frozen, balance, reserved, held, charged, running,
              subtree_balance, subtree_reserved, subtree_held, subtree_running, subtree_overspent, subtree_spent, spent_since,
              refilled_at, last_entry_at, due_at, revision) ON account TO gpubank_controller;
GRANT DELETE ON account TO gpubank_controller;
GRANT UPDATE (free, held, expired) ON lot TO gpubank_controller;
GRANT UPDATE (gpu_seconds, amount, takes, charged, state, reason, closed_at, class, rate_version, rate, max_gpus) ON reservation TO gpubank_controller;
GRANT UPDATE (pod_namespace, pod_name, node, class, rate_version, rate, gpus, gpu_uuids, leader_epoch, state, intended_at,
              started_at, ended_at, last_seen, charged, refunded, refunded_for, compacted) ON allocation TO gpubank_controller;
-- Derived intervals give way to measured ones, those of pods that ended to fewer rows, and these to the intervals again.
GRANT DELETE ON metered_interval, compacted_time TO gpubank_controller;
GRANT UPDATE (started_at, ended_at) ON device_hold TO gpubank_controller;
GRANT UPDATE (amount) ON spending TO gpubank_controller;
GRANT UPDATE (resolved_at, resolution, resolved_by) ON discrepancy TO gpubank_controller;
GRANT UPDATE (epoch, holder, acquired_at) ON leadership TO gpubank_controller;
GRANT UPDATE (epoch, holder, registered_at) ON node_agent TO gpubank_controller;
GRANT UPDATE (revision, account) ON seal_progress TO gpubank_controller;
-- What was answered, and who was metered on which GPU, is forgotten by these alone, which keep to the rules themselves.
GRANT EXECUTE ON FUNCTION forget_commands(timestamptz, timestamptz, bigint), forget_device_holds(timestamptz, bigint) TO gpubank_controller;
-- What became of those whom the scheduler stopped.
GRANT SELECT ON preemption TO gpubank_controller;
GRANT SELECT, INSERT ON preemption_outcome TO gpubank_controller;
