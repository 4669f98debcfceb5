// Package failpoint lets a test stop a real process at one exact place: killed, as by a power cut, or paused.
//
// In an ordinary build Hit is an empty function. In a binary built with -tags failpoints it reads the file that the
// environment variable GPUBANK_FAILPOINTS names, on every hit, so that a test arms and disarms points while the
// process runs; without the variable, or without the file, nothing happens. Each line of the file is one point:
//
//	scheduler.after-allocate=kill     SIGKILL to this process at the next hit
//	controller.before-settle=kill@3   at the third hit since the process started
//	meter.before-ack=pause            the caller waits until the line is gone; <file>.meter.before-ack says that it does
//
// A killed process would be killed again after its restart: take the line out of the file first. Lines that start
// with # and empty lines are skipped; anything else is a mistake in the test, and panics with the line.
//
// # Points
//
//	webhook.after-hold                  the hold is committed, the API server has not been answered
//	scheduler.before-allocate           the pod is reserved in memory, nothing is committed
//	scheduler.after-allocate            the allocation is committed, the pod is not bound
//	scheduler.after-bind                the pod is bound, the ledger has not been told
//	scheduler.before-preemption-record  whom a pod stops is decided, nothing is recorded
//	scheduler.after-preemption-record   it is recorded in the ledger, nobody is evicted
//	meter.before-ack                    the intake has answered, the spool still holds the interval
//	controller.after-charge-before-ack  the charge is committed, the node agent has not been answered
//	controller.before-settle            all intervals are charged, the reservation is open
//	controller.after-end-before-finalizer  the pod's time is settled, its object still has the metering finalizer
//	controller.before-renew              a renewal of a hold is decided, nothing is committed
//	controller.after-renew               the renewal is committed, nobody has been told
//	controller.before-stop               a pod whose hold is used up is about to be deleted
//	controller.after-stop                its deletion is accepted by the API server
//	controller.before-refund             an attempt is settled and its refund decided, nothing of it is committed
//	controller.after-refund              the refund is committed, the pod still has the metering finalizer
//	kueue.after-hold                     a hold is committed at Kueue's admission, the check does not say so
//	kueue.after-pause                    a hold is given back after an eviction, nobody has been told
package failpoint
