-- Statements, discrepancies, audits: kubectl credit, dashboards. It reads all and writes nothing.
GRANT SELECT ON account, account_policy, rate, lot, reservation, allocation, metered_interval, compacted_time, device_hold, entry, spending, command,
                discrepancy, leadership, node_agent, seal, seal_progress, device_fault, preemption, preemption_outcome TO gpubank_reader;
