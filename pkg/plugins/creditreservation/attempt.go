package creditreservation

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// attempt is one try to place one pod on one node.
type attempt struct {
	pl    *CreditReservation
	pod   *corev1.Pod
	node  string
	facts facts
	since int64 // the catalog's latest change before the ledger was asked

	lane   *lane
	before <-chan struct{} // the pod's earlier attempts are over
	over   chan struct{}   // closed when nothing of this one can still change the ledger

	abandoned chan struct{} // closed by Unreserve
	answered  chan struct{} // closed when the fields below are final
	answer    answer
	epoch     int64
	sent      bool // the ledger was asked

	// end makes sure that only one of PostBind and Unreserve, which may come twice, ends the attempt.
	end sync.Once
	// bindable: PreBind let the pod pass, so it may have been bound. Written before Bind, read by Unreserve after it.
	bindable bool
}

// Clone returns the attempt itself: it is one, whoever looks at it.
func (a *attempt) Clone() fwk.StateData { return a }

func (pl *CreditReservation) newAttempt(pod *corev1.Pod, node string, f facts) *attempt {
	a := &attempt{
		pl: pl, pod: pod, node: node, facts: f, since: pl.catalog.Change(),
		over: make(chan struct{}), abandoned: make(chan struct{}), answered: make(chan struct{}),
	}
	a.lane, a.before = pl.lanes.enter(pod.UID, a.over)
	return a
}

// run finds the answer. It takes at most the ledger timeout.
func (a *attempt) run() {
	defer close(a.answered)
	ctx, cancel := context.WithTimeout(a.pl.ctx, a.pl.args.LedgerTimeout.Duration)
	defer cancel()
	start := a.pl.clock.Now()
	a.answer = a.ask(ctx)
	observe(a.answer, a.pl.clock.Since(start))
	if a.answer.err != nil && a.sent {
		a.pl.checkLedger(a.pl.ctx)
	}
}

func (a *attempt) ask(ctx context.Context) answer {
	select {
	case <-a.before:
	case <-a.abandoned:
		return answer{err: errAbandoned}
	case <-ctx.Done():
		return answer{err: fmt.Errorf("an earlier attempt is not settled: %w", ctx.Err())}
	}
	select {
	case <-a.abandoned:
		return answer{err: errAbandoned}
	default:
	}
	// From here on a failure is the ledger's.
	a.sent = true
	if verdict, err := a.lane.settle(ctx, a.pl.ledger); err != nil || verdict.Refusal != nil {
		return answer{verdict: verdict, err: err}
	}
	var err error
	if a.epoch, err = a.pl.leadership.get(ctx); err != nil {
		return answer{err: err}
	}
	if err := a.route(ctx); err != nil {
		return answer{err: err}
	}
	failpoint.Hit("scheduler.before-allocate")
	found := a.try(ctx)
	if found.err == nil && !a.lane.own && noHold(found.verdict) {
		// The Job it names has no open hold: it needs its own.
		a.lane.own = true
		found = a.try(ctx)
	}
	return found
}

// try sends one Allocate. A pod that is to have a reservation of its own brings what is needed to place it, in case there is none.
func (a *attempt) try(ctx context.Context) answer {
	// A fresh key: a refusal is to be decided afresh at the next attempt.
	command := a.allocate()
	command.Key = fmt.Sprintf("allocate:%s:%d:%d", a.pod.UID, a.epoch, a.pl.attempts.Add(1))
	var termsErr error
	if a.lane.own {
		var hold ledger.PlaceHold
		hold, termsErr = workload.PodHold(a.pod, a.facts.account.Name, a.facts.demand, workload.DefaultMaxRuntime(a.facts.account))
		if termsErr == nil {
			hold.Key = "hold:" + command.Key
			command.Hold = &hold
		}
	}
	verdict, err := a.lane.send(ctx, a.pl.ledger, command)
	if err == nil && termsErr != nil && noHold(verdict) {
		return answer{refusal: termsErr.Error()}
	}
	return answer{verdict: verdict, err: err}
}

// route settles which reservation covers the pod; see the package documentation.
func (a *attempt) route(ctx context.Context) error {
	uid := string(a.pod.UID)
	if a.lane.routed {
		return nil
	}
	if workload.HoldUID(a.pod) == uid {
		a.lane.routed, a.lane.own = true, true
		return nil
	}
	reservation, found, err := a.pl.ledger.Reservation(ctx, uid)
	if err != nil {
		return fmt.Errorf("look up a reservation of pod %s/%s: %w", a.pod.Namespace, a.pod.Name, err)
	}
	a.lane.routed, a.lane.own = true, found && reservation.Open()
	return nil
}

// allocate is the command, without its key.
func (a *attempt) allocate() ledger.Allocate {
	reservation := workload.HoldUID(a.pod)
	if a.lane.own {
		reservation = string(a.pod.UID)
	}
	return ledger.Allocate{
		PodUID:      string(a.pod.UID),
		Pod:         ledger.WorkloadRef{Kind: "Pod", Namespace: a.pod.Namespace, Name: a.pod.Name},
		Reservation: reservation,
		Account:     a.facts.account.Name,
		Node:        a.node,
		Class:       a.facts.demand.Class,
		GPUs:        a.facts.demand.GPUs,
		Leader:      a.pl.leadership.name,
		LeaderEpoch: a.epoch,
	}
}

// noHold reports that nothing was decided because no open hold covers the pod.
func noHold(v ledger.Verdict) bool {
	return v.Refusal != nil && (v.Refusal.Code == ledger.NoReservation || v.Refusal.Code == ledger.UnknownReservation || v.Refusal.Code == ledger.ReservationClosed)
}
