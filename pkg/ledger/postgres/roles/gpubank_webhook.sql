-- Places holds when workloads are created, and quotes them.
GRANT SELECT ON account, account_policy, lot, rate, reservation, allocation, command TO gpubank_webhook;
-- An account's figures, never its settings (name, parent, policy, policy_version, frozen).
GRANT UPDATE (balance, reserved, held, charged, running,
              subtree_balance, subtree_reserved, subtree_held, subtree_running, subtree_overspent, subtree_spent, spent_since,
              refilled_at, last_entry_at, due_at, revision) ON account TO gpubank_webhook;
GRANT UPDATE (free, held, expired) ON lot TO gpubank_webhook;
GRANT INSERT ON reservation, entry, command TO gpubank_webhook;
