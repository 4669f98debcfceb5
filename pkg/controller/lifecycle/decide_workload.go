package lifecycle

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// objectState is what became of a workload's object.
type objectState int

const (
	// objectThere: it exists and is not over.
	objectThere objectState = iota
	// objectFinished: it exists and is over.
	objectFinished
	// objectGone: the API server has confirmed that no object of this UID exists.
	objectGone
	// objectForeign: a kind that this controller does not follow; whoever placed the hold closes it.
	objectForeign
)

// workloadFacts is everything that decideWorkload may know.
type workloadFacts struct {
	now         time.Time
	reservation ledger.Reservation
	allocations []ledger.Allocation
	object      objectState
	// seen: the object is known to have existed.
	seen bool
	// holdExpiry is how old a hold must be before its object's absence means that the API server never stored it.
	holdExpiry time.Duration
}

// decideWorkload says whether a reservation is to be closed, and how; nil with a wait when it may be later.
func decideWorkload(facts workloadFacts) (*ledger.CloseReservation, time.Duration) {
	reservation := facts.reservation
	inUse := slices.ContainsFunc(facts.allocations, ledger.Allocation.Open)
	if !reservation.Open() || inUse || facts.object == objectThere || facts.object == objectForeign {
		return nil, 0
	}
	command := &ledger.CloseReservation{Key: "close:" + reservation.UID, UID: reservation.UID}
	everUsed := reservation.State == ledger.Active
	switch {
	case everUsed && facts.object == objectFinished:
		command.Outcome, command.Reason = ledger.Settled, reservation.Workload.Kind+" ended"
	case everUsed:
		command.Outcome, command.Reason = ledger.Settled, reservation.Workload.Kind+" is gone"
	case facts.object == objectFinished:
		command.Outcome, command.Reason = ledger.Released, reservation.Workload.Kind+" ended without using a GPU"
	case facts.seen || len(facts.allocations) > 0:
		command.Outcome, command.Reason = ledger.Released, reservation.Workload.Kind+" was deleted before it used a GPU"
	default:
		// The API server may be storing the object at this moment: its own request timeout is shorter than holdExpiry.
		if wait := reservation.CreatedAt.Add(facts.holdExpiry).Sub(facts.now); wait > 0 {
			return nil, wait
		}
		command.Outcome, command.Reason = ledger.Expired, "the API server has no such "+reservation.Workload.Kind
	}
	return command, 0
}

// jobState reads a Job. It is over only with a terminal condition, which the Job controller sets after its pods are.
func jobState(job *batchv1.Job) objectState {
	for _, condition := range job.Status.Conditions {
		terminal := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		if terminal && condition.Status == corev1.ConditionTrue {
			return objectFinished
		}
	}
	return objectThere
}

// podState reads a pod that has a reservation of its own. One that holds or held GPUs without an allocation is not over
// yet: the reservation is what its late allocation will be made under.
func podState(pod *corev1.Pod, allocations []ledger.Allocation) objectState {
	held := workload.Held(pod)
	accounted := slices.ContainsFunc(allocations, func(a ledger.Allocation) bool { return a.State == ledger.AllocationEnded })
	if held.Ended && (pod.Spec.NodeName == "" || held.NeverHeld() || accounted) {
		return objectFinished
	}
	return objectThere
}

// settlementSentence tells a reservation's user what it came to.
func settlementSentence(reservation ledger.Reservation) string {
	charged, held := ledger.DisplayCredits(reservation.Charged), ledger.DisplayCredits(reservation.Amount)
	if over := reservation.Overrun(); over > 0 {
		return fmt.Sprintf("charged %s credits, %s more than the %s held", charged, ledger.DisplayCredits(over), held)
	}
	return fmt.Sprintf("charged %s of %s credits held; %s given back", charged, held, ledger.DisplayCredits(reservation.Amount-reservation.Charged))
}
