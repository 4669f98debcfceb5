// Package lifecycle keeps the ledger and the cluster of one mind about what runs: pods and their allocations, Jobs and
// their reservations, nodes that fall silent.
//
// Two reconcilers, each gather → decide → apply, with pure decisions (decidePod, decideRefund, decideWorkload, decideOverrun):
//
//   - PodReconciler follows one attempt, a pod by UID: bound, started, ended, gone, on a silent or deleted node. It
//     holds the metering finalizer until the held time is settled, so that a finish cannot be missed (L32), and charges
//     what another scheduler bound (I9).
//   - WorkloadReconciler follows one reservation: it is closed when its workload is over and no allocation is open, and
//     renewed, or its pods stopped, when it is used up while they run (decideOverrun).
//
// Both are driven by watches, and by the Sweeper, which at start and every resync asks about everything that the ledger
// holds open: what happened while nobody watched is found there (A1, A2, B11, B14). NodeMonitor turns lease renewals
// into questions about the pods of a node.
//
// "Gone" is only ever the API server's own live answer for that UID. If it cannot be asked, nothing is released. Every
// timeout leads to such a question and never to a release by itself. See docs/designs/lifecycle.md and
// docs/designs/pod-finalizer.md.
package lifecycle
