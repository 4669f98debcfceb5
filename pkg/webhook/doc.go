// Package webhook is gpubank's admission webhook: it sets credits aside when a GPU workload is created, and refuses what
// could not be paid, placed or metered.
//
// Each request is handled as gather → decide → apply. Gathering reads the namespace's label, the account and the GPU classes from
// a cache (live when the cache lacks them) and, for pods of Jobs, the Job's reservation. The decision is a pure
// function. Applying it is at most one ledger command, placed under the object's UID, so a repeat is the same hold (I6). Where the
// account holds at placement, nothing is placed: one pod's hold is quoted, so that what could never be placed is refused now.
//
//   - Mutating sets what a GPU workload needs to be placed and metered: scheduler name, account label, a pod's
//     metering finalizer, and the bound on a pod's run time that its hold is computed from: as a deadline, or, where the account
//     lets work outlast its hold, as an annotation.
//   - Validating trusts none of that: a workload that the mutating step would still change is refused.
//   - A dry run asks for a quote and writes nothing.
//   - A ledger that cannot be reached is an error of its own (503, "Ledger: …"), never "not enough credits".
//
// What a failure leaves behind: a hold whose object the API server never stored. The controller expires it once the API
// server confirms that there is no such object.
//
// Only GPU workloads of enrolled namespaces are ever sent here (manifests/webhook): namespaceSelector and CEL match conditions
// keep everything else, and every system namespace, out of its reach even while it is down.
package webhook
