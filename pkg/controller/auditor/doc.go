// Package auditor keeps watch over the ledger while it is in use. On the leader, and without any writer waiting for it, it
//
//   - seals new entries every few seconds, so that none can be changed unnoticed afterwards;
//   - verifies every seal and audits every invariant, every hour or so. An account that a violation concerns is frozen, alone,
//     with a reason that names the first entry that differs, or the figure with both of its values; a Warning event tells
//     who watches the account, and metrics tell who watches the ledger;
//   - compares what ledger, scheduler, pod status and node agents say about the same GPUs and time. What they disagree about for
//     longer than things take to settle is kept as a discrepancy with both sides, once, until an adjustment closes it.
//
// Each is gather → decide → apply, and remembers nothing that matters: what an audit has frozen is told from the ledger's own
// memory of the command, so that a person's unfreezing stands and another violation still freezes. If the ledger's database is
// away, nothing is concluded, and the timestamps of the last success stand still: that is what to alert on.
//
// See docs/designs/seals.md and docs/designs/discrepancies.md.
package auditor
