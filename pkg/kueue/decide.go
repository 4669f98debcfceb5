package kueue

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// plan is what to do about a Job, in this order.
type plan struct {
	// before are check states to write before the ledger is told anything.
	before []answer
	// pause gives back what the hold sets aside.
	pause *ledger.PauseHold
	// hold sets credits aside; its verdict decides about the Workloads of waiting (see conclude).
	hold    *ledger.EnsureHold
	waiting []admission
	// after are check states to write at the end.
	after []answer
	// lookAgain is when to ask again if nothing happens; 0 for never.
	lookAgain time.Duration
}

// answer is a state for the checks of one Workload.
type answer struct {
	workload admission
	state    kueuev1beta2.CheckState
	message  string
}

// recheck is how soon a Workload that waits for credits, or for something that no watch shows, is asked about again.
const recheck = time.Minute

// decide says what to do.
func decide(f facts) plan {
	if f.job == nil {
		return plan{after: answers(f, isOpen, kueuev1beta2.CheckStateRejected,
			"Rejected for good: the Job that this Workload names as its controller does not exist under that UID, so there is nobody to set credits aside for; create the Job, and let Kueue make its Workload")}
	}
	if !f.ours() && !workload.InKueue(f.job) || over(f.job) || f.reservation != nil && !f.reservation.Open() {
		return plan{} // what is left of it is settled by its end (A1)
	}
	var active []admission
	for _, a := range f.workloads {
		if a.active() && len(a.checks) > 0 {
			active = append(active, a)
		}
	}
	if len(active) == 0 {
		return giveBack(f)
	}
	return setAside(f, active)
}

// giveBack decides about a Job of which nothing is admitted.
func giveBack(f facts) plan {
	p := plan{before: answers(f, func(a admission) bool { return !a.reserved && !a.finished && a.anyReady() },
		kueuev1beta2.CheckStatePending, "Credits are set aside once quota is reserved")}
	r := f.reservation
	if f.holdAt != ledger.HoldAtAdmission || r == nil || !workload.InKueue(f.job) || !suspended(f.job) || f.job.Status.Active > 0 {
		return p // a Job that still runs is told about again when it is suspended
	}
	for _, a := range f.workloads {
		if a.reserved && !a.finished {
			return p // Kueue has yet to take its quota
		}
	}
	switch {
	case paused(*r):
	case f.inUse:
		p.lookAgain = inUseRecheck // its pods are not seen to have ended yet
	default:
		p.pause = &ledger.PauseHold{Key: fmt.Sprintf("pause:%s:%d", attempt(f), r.GPUSeconds), UID: r.UID, From: r.GPUSeconds}
	}
	return p
}

// inUseRecheck is how soon to look whether a Job's last pods have ended.
const inUseRecheck = 2 * time.Second

// setAside decides about a Job of which some Workload has quota.
func setAside(f facts, active []admission) plan {
	if allAnswered(active) && !neverHeld(f) {
		return plan{} // what becomes of the hold of a running Job is decided by its account's overrun policy
	}
	ready := func(message string) plan {
		return plan{after: answersOf(active, kueuev1beta2.CheckStateReady, message)}
	}
	if f.account == "" && f.claimed == "" {
		return ready("The namespace is not enrolled with an account, so nothing is to be paid")
	}
	holds := make([]ledger.PlaceHold, 0, len(active))
	for _, a := range active {
		if len(a.podSets) != 1 {
			return wait(f, active, fmt.Sprintf("Workload %s has %d pod sets; the one of a Job has 1", a.name, len(a.podSets)))
		}
		hold, free, err := wanted(f, a.podSets[0])
		switch {
		case err != nil:
			return wait(f, active, fmt.Sprintf("What the Job may cost cannot be told: %v", err))
		case free:
			return ready("It asks for no GPU, so nothing is to be paid")
		}
		holds = append(holds, hold)
	}
	if f.account == "" {
		return wait(f, active, fmt.Sprintf("Account %s, which the namespace's label names, does not exist or does not list the namespace: ask the account's owner to add it", f.claimed))
	}
	if f.holdAt == ledger.HoldAtPlacement {
		return ready("Each pod sets its own credits aside when it is placed, as the account's policy says")
	}
	if f.holdAt == ledger.HoldAtAdmission && f.inUse && suspended(f.job) {
		// Until they have ended nobody knows what they take of the hold.
		return wait(f, active, "The last pods of the admission before are still to end")
	}
	hold := most(holds)
	if covered(f, hold) {
		return ready(fmt.Sprintf("%s credits are set aside under the Job's hold", ledger.DisplayCredits(f.reservation.Remaining())))
	}
	p := plan{waiting: active}
	from := int64(0)
	if r := f.reservation; r != nil {
		from = r.GPUSeconds
		if r.Class != hold.Class && r.Remaining() > 0 && !f.inUse {
			// Of the class that it had before; what it needs now is decided anew.
			seconds := int64(r.Charged) / int64(r.Rate)
			p.pause = &ledger.PauseHold{Key: fmt.Sprintf("pause:%s:%d", attempt(f), from), UID: r.UID, From: from}
			from = min(from, seconds)
		}
	}
	p.hold = &ledger.EnsureHold{
		Key:  fmt.Sprintf("admit:%s:%d:%s:%d:%d", attempt(f), from, hold.Class, hold.MaxGPUs, hold.GPUSeconds),
		Hold: hold, From: from,
	}
	return p
}

// neverHeld reports that nothing was ever set aside for a Job that needs a hold of its own (A2): its checks are Ready and the ledger does not
// know why.
func neverHeld(f facts) bool {
	r := f.reservation
	return f.holdAt != ledger.HoldAtPlacement && f.account != "" && (r == nil || r.Amount == 0 && r.Charged == 0)
}

func allAnswered(active []admission) bool {
	return !slices.ContainsFunc(active, func(a admission) bool { return !a.allReady() })
}

// covered reports whether the Job's hold covers what was admitted. One that was placed at submission is the whole Job's, whatever of
// it is used. One that is placed at admission covers what may be used from now on, but for a Job that runs and is to grow: what runs is
// using it.
func covered(f facts, hold ledger.PlaceHold) bool {
	r := f.reservation
	switch {
	case r == nil || paused(*r):
		return false
	case f.holdAt != ledger.HoldAtAdmission || !suspended(f.job):
		return r.Class == hold.Class && r.MaxGPUs >= hold.MaxGPUs
	}
	return covers(*r, hold)
}

// covers reports whether as much as a hold asks for may be used from now on.
func covers(r ledger.Reservation, hold ledger.PlaceHold) bool {
	price, err := ledger.HoldPrice(r.Rate, hold.GPUSeconds)
	return err == nil && r.Class == hold.Class && r.MaxGPUs >= hold.MaxGPUs && r.Remaining() >= price
}

// conclude turns the ledger's verdict on the hold into check states.
func conclude(f facts, p plan, verdict ledger.Verdict) plan {
	if refusal := verdict.Refusal; refusal != nil {
		return wait(f, p.waiting, fmt.Sprintf("Credit: %s (%d GPU-seconds of class %s, %s)", refusal.Message, p.hold.Hold.GPUSeconds, p.hold.Hold.Class, refusal.Code))
	}
	message := "The credits are set aside"
	if r := verdict.Reservation; r != nil {
		message = fmt.Sprintf("%s credits of account %s are set aside for up to %d GPU-seconds of class %s",
			ledger.DisplayCredits(r.Remaining()), r.Account, p.hold.Hold.GPUSeconds, r.Class)
	}
	return plan{after: answersOf(p.waiting, kueuev1beta2.CheckStateReady, message)}
}

// wait is the answer to Workloads that cannot be admitted now. They keep their quota, and are asked about again when something changes that may help
// them, or soon. Those that are Ready stay so: what they have is set aside.
func wait(f facts, active []admission, message string) plan {
	p := plan{lookAgain: recheck, after: answersOf(unready(active), kueuev1beta2.CheckStatePending, message)}
	if f.inUse {
		p.lookAgain = inUseRecheck // it may be the last pods of the attempt before that stand in the way
	}
	return p
}

func unready(workloads []admission) []admission {
	return slices.DeleteFunc(slices.Clone(workloads), admission.allReady)
}

// answers are the same answer to every Workload that which selects; Ready ones stay Ready where Ready is the answer.
func answers(f facts, which func(admission) bool, state kueuev1beta2.CheckState, message string) []answer {
	var selected []admission
	for _, a := range f.workloads {
		if which(a) {
			selected = append(selected, a)
		}
	}
	return answersOf(selected, state, message)
}

func answersOf(workloads []admission, state kueuev1beta2.CheckState, message string) []answer {
	var all []answer
	for _, a := range workloads {
		if state == kueuev1beta2.CheckStateReady && a.allReady() {
			continue
		}
		all = append(all, answer{workload: a, state: state, message: message})
	}
	return all
}

func isOpen(a admission) bool { return !a.finished && len(a.checks) > 0 }

// paused reports whether the hold sets nothing aside that EnsureHold would not set aside anew: it has shrunk to what was charged.
func paused(r ledger.Reservation) bool {
	return r.Remaining() == 0 && r.GPUSeconds <= int64(r.Charged)/int64(r.Rate)
}

// attempt names one admission of one Workload, by what happened to it: what has quota now or, if nothing has, what had it last.
func attempt(f facts) string {
	var last admission
	for _, a := range f.workloads {
		if last.uid == "" || a.reservedSince.After(last.reservedSince) {
			last = a
		}
	}
	if last.uid == "" {
		return string(f.job.UID)
	}
	return fmt.Sprintf("%s:%d:%d", last.uid, last.reservedSince.Unix(), last.evictions)
}

func suspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

// over reports whether the Job has ended.
func over(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
