package lifecycle

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// deadlineGrace is how long a kubelet is given to enforce a pod's own activeDeadlineSeconds: it looks every second, and
	// a busy one later. A pod that ends by its own deadline reports why, which one that is deleted does not.
	deadlineGrace = 15 * time.Second
	// renewalRetryLeast is how soon a refused renewal is asked for again: a grant may come in time. With a long lead it is
	// a tenth of it, so that one renewal is asked for ten times at most.
	renewalRetryLeast = 30 * time.Second
)

// overrunFacts is everything that decideOverrun may know about an open reservation.
type overrunFacts struct {
	now         time.Time
	reservation ledger.Reservation
	allocations []ledger.Allocation
	// overrun is what the spender's policy says now.
	overrun ledger.Overrun
	// payerRoom is what the payer's available credits are above its overdraft limit; only gathered for OverrunOverdraft.
	payerRoom ledger.Microcredits
	// pods are those of the running allocations, as far as the API server still has them.
	pods []runningPod
	// refused is the ledger's answer to the renewal that the same facts without it asked for.
	refused *ledger.Refusal
}

// runningPod is what a stop depends on.
type runningPod struct {
	key PodKey
	// deadline is when its own activeDeadlineSeconds is over; zero if it has none.
	deadline time.Time
	// deleting: somebody has asked it to stop already.
	deleting bool
}

// overrunPlan is what is to be done about a reservation whose pods may outlast it.
type overrunPlan struct {
	// renew extends the hold; nothing else is planned with it.
	renew *ledger.RenewHold
	// endsAt is when the pods of announce are stopped; zero when nobody needs to be told yet.
	endsAt   time.Time
	announce []PodKey
	// stop are the pods to delete now, with their own grace period.
	stop []PodKey
	// lookAgain is 0 when the next event or sweep is soon enough.
	lookAgain time.Duration
}

// decideOverrun says whether a hold is to be renewed, or its pods stopped, and when.
func decideOverrun(facts overrunFacts) overrunPlan {
	usage := usageOf(facts)
	if !facts.reservation.Open() || usage.perSecond == 0 {
		return overrunPlan{}
	}
	lead := time.Duration(facts.overrun.LeadSeconds) * time.Second
	if facts.overrun.Action == ledger.OverrunRenew && facts.refused == nil {
		return decideRenewal(facts, usage, lead)
	}
	limit := facts.reservation.Amount
	if facts.overrun.Action == ledger.OverrunOverdraft {
		// The payer's available credits have paid for what was charged beyond the hold already.
		limit = saturatingAdd(max(limit, facts.reservation.Charged), max(0, facts.payerRoom))
	}
	// Pod times are whole seconds. Stopped within the last one, a pod would leave a remainder of its hold, on which its
	// Job's next attempt would be placed, to be stopped at once.
	endsAt := ceilSecond(facts.now.Add(usage.until(limit)))
	plan := decideStop(facts, endsAt, lead)
	if facts.refused != nil && facts.now.Before(endsAt) {
		plan.lookAgain = soonest(plan.lookAgain, max(renewalRetryLeast, lead/10))
	}
	return plan
}

// decideRenewal extends the hold by whole steps, lead before it is used up; by more than one only when it could not be
// done in time, so that it is not late again at once. The key holds what the hold was, so that a renewal whose answer was lost
// is the same renewal.
func decideRenewal(facts overrunFacts, usage usage, lead time.Duration) overrunPlan {
	early := usage.until(facts.reservation.Amount) - lead
	if early > 0 {
		return overrunPlan{lookAgain: early}
	}
	step := max(1, facts.overrun.StepSeconds)
	steps := int64(-early/time.Second)/step + 1
	return overrunPlan{renew: &ledger.RenewHold{
		Key: fmt.Sprintf("renew:%s:%d", facts.reservation.UID, facts.reservation.GPUSeconds),
		UID: facts.reservation.UID, GPUSeconds: steps * step * usage.gpus,
	}}
}

// decideStop announces and stops the pods that would run beyond endsAt. A pod whose own deadline comes first is its
// kubelet's to stop.
func decideStop(facts overrunFacts, endsAt time.Time, lead time.Duration) overrunPlan {
	plan := overrunPlan{}
	var next []time.Time
	for _, pod := range facts.pods {
		if pod.deleting {
			continue
		}
		stopAt, byItself := endsAt, false
		if enforced := pod.deadline.Add(deadlineGrace); !pod.deadline.IsZero() && !pod.deadline.After(endsAt) {
			stopAt, byItself = enforced, true
		}
		announceAt := endsAt.Add(-lead)
		if facts.now.Before(stopAt) {
			next = append(next, stopAt)
		} else {
			plan.stop = append(plan.stop, pod.key)
		}
		switch {
		case byItself:
		case facts.refused != nil, !facts.now.Before(announceAt):
			plan.announce, plan.endsAt = append(plan.announce, pod.key), endsAt
		default:
			next = append(next, announceAt)
		}
	}
	if len(next) > 0 {
		plan.lookAgain = slices.MinFunc(next, time.Time.Compare).Sub(facts.now)
	}
	return plan
}

// usage is what a reservation's attempts have used by now, also where it is not charged yet, and how fast that grows.
type usage struct {
	used ledger.Microcredits
	// gpus are those of the running allocations; perSecond is what they cost.
	gpus      int64
	perSecond ledger.Microcredits
}

// usageOf does not wait for intervals to be charged: a hold is used up by time, on a node with an agent as on one without.
func usageOf(facts overrunFacts) usage {
	u := usage{}
	for _, a := range facts.allocations {
		if !holdsGPUs(a) {
			u.used = saturatingAdd(u.used, a.Charged)
			continue
		}
		accrued, err := ledger.Price(a.Rate, a.GPUs, max(0, facts.now.Sub(a.StartedAt)))
		if err != nil {
			accrued = ledger.MaxAmount // beyond any hold
		}
		u.used = saturatingAdd(u.used, max(accrued, a.Charged))
		u.gpus += a.GPUs
		perSecond, err := ledger.Price(a.Rate, a.GPUs, time.Second)
		if err != nil {
			perSecond = ledger.MaxAmount
		}
		u.perSecond = saturatingAdd(u.perSecond, perSecond)
	}
	return u
}

// holdsGPUs reports whether an allocation's time is running. A suspect one's may be.
func holdsGPUs(a ledger.Allocation) bool { return a.Open() && !a.StartedAt.IsZero() }

// until is how long it takes until the usage has reached limit; negative when it did before. Beyond a century it is a
// century.
func (u usage) until(limit ledger.Microcredits) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	ahead, sign := uint64(0), time.Duration(1)
	if limit >= u.used {
		ahead = uint64(limit) - uint64(u.used)
	} else {
		ahead, sign = uint64(u.used)-uint64(limit), -1
	}
	high, low := bits.Mul64(ahead, uint64(time.Second/time.Microsecond))
	if high >= uint64(u.perSecond) {
		return sign * century
	}
	microseconds, _ := bits.Div64(high, low, uint64(u.perSecond))
	if microseconds > uint64(century/time.Microsecond) {
		return sign * century
	}
	return sign * time.Duration(microseconds) * time.Microsecond
}

// saturatingAdd is for amounts of 0 or more.
func saturatingAdd(a, b ledger.Microcredits) ledger.Microcredits {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func ceilSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

// soonest is the lesser of two waits, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
