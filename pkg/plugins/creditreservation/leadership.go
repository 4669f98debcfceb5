package creditreservation

import (
	"context"
	"fmt"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ledger is what the plugin needs of the ledger. An implementation answers with a verdict only once the decision is durable,
// and with an error only when there is no answer; repeating a command with the same key must be safe (I6).
type Ledger interface {
	// Submit returns after the command is committed.
	Submit(ctx context.Context, command ledger.Command) (ledger.Verdict, error)
	// Reservation looks one up by its workload's UID.
	Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error)
	// AcquireLeadership makes every earlier holder's epoch stale.
	AcquireLeadership(ctx context.Context, name, holder string) (epoch int64, err error)
	// Ping tells whether the ledger can be reached.
	Ping(ctx context.Context) error
}

// leadership is this process's epoch, acquired at the first need and never again: only the leader comes to place pods, and a
// process whose epoch has become stale has no business acquiring another. See docs/designs/scheduler-epoch.md.
type leadership struct {
	ledger       Ledger
	name, holder string
	// turn is held while acquiring, and afterwards for the length of a read.
	turn  chan struct{}
	epoch int64 // 0 until acquired
}

func newLeadership(l Ledger, name, holder string) *leadership {
	return &leadership{ledger: l, name: name, holder: holder, turn: make(chan struct{}, 1)}
}

func (l *leadership) get(ctx context.Context) (int64, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if l.epoch != 0 {
		return l.epoch, nil
	}
	epoch, err := l.ledger.AcquireLeadership(ctx, l.name, l.holder)
	if err != nil {
		return 0, fmt.Errorf("acquire the leadership %s in the ledger: %w", l.name, err)
	}
	l.epoch = epoch
	return epoch, nil
}
