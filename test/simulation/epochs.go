package simulation

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// epochs are the newest ones that anybody was told of.
type epochs struct {
	mu      sync.Mutex
	current map[string]int64
}

func (e *epochs) begin(name string, epoch int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		e.current = make(map[string]int64)
	}
	e.current[name] = max(e.current[name], epoch)
}

func (e *epochs) of(name string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current[name]
}

// fill puts the epoch into a step's command, and reports whether it is one that must be refused: a newer one was begun
// before the command leaves. A placement's key names its epoch, as the scheduler's does.
func (e *epochs) fill(s Step) (command ledger.Command, stale bool) {
	switch c := s.Command.(type) {
	case ledger.Allocate:
		c.LeaderEpoch = e.of(c.Leader)
		if s.Stale {
			c.LeaderEpoch--
		}
		c.Key = fmt.Sprintf("%s:%d", c.Key, c.LeaderEpoch)
		return c, s.Stale
	case ledger.AllocateGang:
		epoch := e.of(c.Members[0].Leader)
		if s.Stale {
			epoch--
		}
		c.Members = slices.Clone(c.Members)
		for i := range c.Members {
			c.Members[i].LeaderEpoch = epoch
		}
		c.Key = fmt.Sprintf("%s:%d", c.Key, epoch)
		return c, s.Stale
	case ledger.RecordInterval:
		c.OwnerEpoch = e.of(c.Node)
		if s.Stale {
			c.OwnerEpoch--
		}
		return c, s.Stale
	}
	return s.Command, false
}
