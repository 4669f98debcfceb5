package creditreservation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/plugins/gang"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Round is a gang's try to be placed, as package gang runs it.
type Round interface {
	// Decided is closed when it is known who goes together, or that nobody does.
	Decided() <-chan struct{}
	// Members are then those who do, none if nobody does.
	Members() []types.UID
}

var _ Round = &gang.Round{}

// party is the attempts of a gang's members in one round. The ledger is asked once, for all of them, when the round is closed; if it is
// given up nobody asks.
type party struct {
	pl    *CreditReservation
	round Round

	mu       sync.Mutex
	attempts map[types.UID]*attempt
}

// parties are those whose rounds are not decided.
type parties struct {
	mu      sync.Mutex
	byRound map[Round]*party
}

// join adds an attempt, which the party answers. The first one waits for the round.
func (pl *CreditReservation) join(round Round, a *attempt) {
	pl.parties.mu.Lock()
	defer pl.parties.mu.Unlock()
	p := pl.parties.byRound[round]
	if p == nil {
		p = &party{pl: pl, round: round, attempts: map[types.UID]*attempt{}}
		if pl.parties.byRound == nil {
			pl.parties.byRound = map[Round]*party{}
		}
		pl.parties.byRound[round] = p
		go p.run()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts[a.pod.UID] = a
}

// run answers all attempts. After the decision it takes at most the ledger timeout.
func (p *party) run() {
	select {
	case <-p.round.Decided():
	case <-p.pl.ctx.Done():
	}
	p.pl.parties.mu.Lock()
	delete(p.pl.parties.byRound, p.round) // nobody joins a round that is over
	p.pl.parties.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	members, found := p.membersInOrder()
	for _, a := range p.attempts {
		a.answer = answer{err: errAbandoned}
	}
	if found != nil {
		for _, a := range members {
			a.answer = answer{err: found}
		}
	} else if len(members) > 0 {
		p.askFor(members)
	}
	for _, a := range p.attempts {
		close(a.answered)
	}
}

// membersInOrder are the attempts of those who go together; none if the round was given up.
func (p *party) membersInOrder() (members []*attempt, err error) {
	select {
	case <-p.round.Decided():
	default:
		return nil, nil
	}
	for _, uid := range p.round.Members() {
		a := p.attempts[uid]
		if a == nil { // it has no GPUs and needs no credits
			continue
		}
		members = append(members, a)
	}
	return members, p.pl.health.down()
}

func (p *party) askFor(members []*attempt) {
	ctx, cancel := context.WithTimeout(p.pl.ctx, p.pl.args.LedgerTimeout.Duration)
	defer cancel()
	start := p.pl.clock.Now()
	found, epoch, sent := p.ask(ctx, members)
	observe(found, p.pl.clock.Since(start))
	for _, a := range members {
		a.answer, a.epoch, a.sent = found, epoch, sent
	}
	if found.err != nil && sent {
		p.pl.checkLedger(p.pl.ctx)
	}
}

// ask is attempt.ask for all members.
func (p *party) ask(ctx context.Context, members []*attempt) (found answer, epoch int64, sent bool) {
	for _, a := range members {
		select {
		case <-a.before:
		case <-a.abandoned:
		case <-ctx.Done():
			return answer{err: fmt.Errorf("an earlier attempt of a member is not settled: %w", ctx.Err())}, 0, false
		}
		select {
		case <-a.abandoned:
			return answer{err: errMemberLeft}, 0, false
		default:
		}
	}
	// From here on a failure is the ledger's.
	for _, a := range members {
		if verdict, err := a.lane.settle(ctx, p.pl.ledger); err != nil || verdict.Refusal != nil {
			return answer{verdict: verdict, err: err}, 0, true
		}
	}
	epoch, err := p.pl.leadership.get(ctx)
	if err != nil {
		return answer{err: err}, 0, true
	}
	for _, a := range members {
		a.epoch = epoch
		if err := a.route(ctx); err != nil {
			return answer{err: err}, epoch, true
		}
	}
	failpoint.Hit("scheduler.before-allocate")
	found = p.try(ctx, members)
	if found.err == nil && found.refusal == "" && noHold(found.verdict) {
		changed, err := p.reroute(ctx, members)
		if err != nil {
			return answer{err: err}, epoch, true
		}
		if changed {
			found = p.try(ctx, members)
		}
	}
	return found, epoch, true
}

// try sends one AllocateGang for all members.
func (p *party) try(ctx context.Context, members []*attempt) answer {
	command := ledger.AllocateGang{Key: fmt.Sprintf("gang:%s:%d:%d", members[0].pod.UID, members[0].epoch, p.pl.attempts.Add(1))}
	if len(members) > ledger.MaxGangMembers {
		return answer{refusal: fmt.Sprintf("the gang has %d pods with GPUs, and at most %d are allocated together; make it of fewer", len(members), ledger.MaxGangMembers)}
	}
	var termsErr error
	for _, a := range members {
		member := a.allocate()
		if a.lane.own {
			hold, err := workload.PodHold(a.pod, a.facts.account.Name, a.facts.demand, workload.DefaultMaxRuntime(a.facts.account))
			if err == nil {
				member.Hold = &hold
			} else if termsErr == nil {
				termsErr = fmt.Errorf("pod %s: %w", a.pod.Name, err)
			}
		}
		command.Members = append(command.Members, member)
	}
	// One for all lanes: whoever settles it first settles it for everybody.
	shared := &pending{command: command}
	verdict, err := p.pl.ledger.Submit(ctx, command)
	if err != nil {
		for _, a := range members {
			a.lane.unknown = append(a.lane.unknown, shared)
		}
	}
	if err == nil && termsErr != nil && noHold(verdict) {
		return answer{refusal: termsErr.Error()}
	}
	return answer{verdict: verdict, err: err}
}

// reroute finds the members whose Job has no open hold: they need their own.
func (p *party) reroute(ctx context.Context, members []*attempt) (changed bool, err error) {
	open := map[string]bool{}
	for _, a := range members {
		if a.lane.own {
			continue
		}
		uid := workload.HoldUID(a.pod)
		isOpen, asked := open[uid]
		if !asked {
			reservation, found, err := p.pl.ledger.Reservation(ctx, uid)
			if err != nil {
				return false, fmt.Errorf("look up the reservation of pod %s/%s: %w", a.pod.Namespace, a.pod.Name, err)
			}
			isOpen = found && reservation.Open()
			open[uid] = isOpen
		}
		if !isOpen {
			a.lane.own, changed = true, true
		}
	}
	return changed, nil
}

// errMemberLeft says that a member was unreserved after the round was closed and before the ledger was asked.
var errMemberLeft = errors.New("a member of the gang gave its node up")
