// Package kueue answers Kueue's admission checks whose controller is gpubank.io/credit: a workload that has reserved quota is
// admitted once its credits are set aside. See docs/designs/kueue.md.
//
// Everything about one batch/v1 Job is decided together, under the Job's UID, which is also its hold's: gather → decide → apply.
// Gathering reads the Job's Workloads, the Job itself, who pays for its namespace, and the hold. The decision (decide) is pure. Applying it is
// at most a pause and a hold in the ledger, and then the states of the checks:
//
//   - A Workload with quota whose hold is set aside: Ready. Not enough credits: Pending, with the numbers, until there are.
//   - No Workload with quota, and nothing of the Job runs: what its hold still sets aside goes back (PauseHold), exactly and once
//     (A4, L1). First the check is made Pending, so that Kueue cannot admit it on the strength of a hold that is gone.
//   - A Workload whose owner is not there is Rejected: its owner reference is false, and stays so.
//
// # Failures
//
// Everything is found again from the cluster and the ledger. Killed between the ledger's commit and the status patch, the next one finds
// the hold there and only patches. A command carries what was seen of the hold (From), so that one who is late changes
// nothing. A Workload that has finished is not looked at (A1). A hold is at least what was admitted, never less (A2), and one for
// all slices of an elastic Job (A5). If the ledger does not answer, nothing is concluded and the check stays as it is.
//
// What is not under a Job (JobSet, Ray and others; plain pods) is Ready: the webhook holds for each Job or pod that comes of it.
//
// Kueue admits and preempts its own Workloads; gpubank neither unsuspends nor evicts one.
package kueue
