// Package creditreservation binds no GPU pod before the ledger has committed who pays for it.
//
// # Path of a pod
//
//	PreEnqueue   keeps a refused pod out of the queue until something it waits for has changed
//	PreFilter    decides from memory whether the pod may be placed at all (judge), and refuses without preempting anyone
//	Reserve      starts an attempt: a goroutine that asks the ledger; the scheduling cycle goes on
//	PreBind      waits for the attempt's verdict, which is the durable commit
//	PostBind     tells the ledger that the pod is bound, without waiting
//	Unreserve    abandons the attempt: what was committed is released, unless the API server shows the pod bound
//
// # Which hold covers a pod
//
// The attempt settles it, where I/O is allowed. A pod without a Job uses the reservation under its own UID: the webhook's, or, if it
// bypassed the webhook, one that the same Allocate command places first. A pod that names a Job as its controller has a reservation
// of its own exactly if the webhook did not believe the name, so the ledger is asked for that one first; otherwise it draws
// on the Job's, whose MaxGPUs bounds what a false name could gain. Where the Job has no open hold, the pod places its own.
// The answer is kept per pod, so a retry does not ask again.
//
// # One command at a time
//
// No command for a pod is sent while the outcome of an earlier one for it is unknown, because a late commit of the
// earlier one would undo the later. After a failure of the world the earlier command is repeated with its own key, which tells
// what became of it (I6), before anything else is asked. Attempts of one pod therefore queue behind each other (lane), the
// release of one before the next begins.
//
// # Gangs
//
// The members of a gang's round (package gang) are asked for in one AllocateGang, once the round is closed; until then nothing of them is in
// the ledger. They are one party: one question, one answer for all, and each goes on or gives back by itself.
//
// # Saying why
//
// A refusal reaches the pod through PreBind, as that is the only place whose words begin the condition's message:
// "Credit: …" with the numbers, "Quota: …" where as many jobs run as a limit allows, or "Ledger: …" while there is no answer. What PreFilter refuses follows kube-scheduler's own
// words, "0/5 nodes are available: Credit: …".
//
// # Waking up
//
// Events of accounts, classes, namespaces and ended pods wake the pods they can help (events.go). Because the catalog and the queue
// learn of the same change at different moments, and because a ledger that is back sends no event, a sweep looks over all
// waiting pods every second and activates those whose wait is over.
//
// # Failures
//
// A stale leader epoch (I7) means that another scheduler leads: the process exits. A ledger that cannot be reached binds nothing. If
// this process dies, whatever is Intended stays so: the next scheduler re-targets it when it places the same pod, and the
// controller releases it when the pod is gone.
package creditreservation
