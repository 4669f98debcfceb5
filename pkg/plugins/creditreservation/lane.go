package creditreservation

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// lane orders what is sent to the ledger about one pod: one attempt after the other. Its fields below tail belong to the attempt
// whose turn it is.
type lane struct {
	// tail is closed when the latest attempt is over.
	tail <-chan struct{}

	// unknown are commands whose outcome is not known, oldest first.
	unknown []*pending
	// routed: it is known which reservation covers the pod; own: it is the one under the pod's UID.
	routed, own bool
}

// send asks the ledger, and remembers the command if no answer came.
func (l *lane) send(ctx context.Context, to Ledger, command ledger.Command) (ledger.Verdict, error) {
	verdict, err := to.Submit(ctx, command)
	if err != nil {
		l.unknown = append(l.unknown, &pending{command: command})
	}
	return verdict, err
}

// settle repeats the commands whose outcome is unknown, with their own keys. It reports StaleEpoch as a verdict, and
// other refusals not at all: whatever was refused changed nothing.
func (l *lane) settle(ctx context.Context, with Ledger) (ledger.Verdict, error) {
	for len(l.unknown) > 0 {
		verdict, err := l.unknown[0].settle(ctx, with)
		if err != nil {
			return ledger.Verdict{}, err
		}
		l.unknown = l.unknown[1:]
		if refusal := verdict.Refusal; refusal != nil && refusal.Code == ledger.StaleEpoch {
			return verdict, nil
		}
	}
	return ledger.Verdict{}, nil
}

// pending is a command of unknown outcome. A gang's is one in the lanes of all its members: it is repeated once, since a repetition
// after one of them went on would undo what came after.
type pending struct {
	command ledger.Command

	mu      sync.Mutex
	settled bool
}

// settle repeats the command with its own key, unless that was done.
func (p *pending) settle(ctx context.Context, with Ledger) (ledger.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled {
		return ledger.Verdict{}, nil
	}
	verdict, err := with.Submit(ctx, p.command)
	p.settled = err == nil
	return verdict, err
}

// lanes are the pods that are being placed, or were and may be again.
type lanes struct {
	mu    sync.Mutex
	byUID map[types.UID]*lane
}

// enter queues an attempt behind the pod's earlier ones: it has its turn when before is closed, and over lets the next in.
func (ls *lanes) enter(uid types.UID, over <-chan struct{}) (l *lane, before <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l = ls.byUID[uid]
	if l == nil {
		first := make(chan struct{})
		close(first)
		l = &lane{tail: first}
		ls.byUID[uid] = l
	}
	before, l.tail = l.tail, over
	return l, before
}

// leave forgets a bound pod: it is never placed again.
func (ls *lanes) leave(uid types.UID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.byUID, uid)
}

// prune forgets the lanes of pods that are gone. What is unknown about them the controller finds out.
func (ls *lanes) prune(alive func(types.UID) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for uid, l := range ls.byUID {
		select {
		case <-l.tail:
			if !alive(uid) {
				delete(ls.byUID, uid)
			}
		default: // an attempt is under way
		}
	}
}
