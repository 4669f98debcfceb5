package creditreservation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// health is whether the ledger answered when last asked.
type health struct {
	mu    sync.Mutex
	err   error // nil: it answered
	since time.Time
}

// saw takes over the outcome of a call to the ledger.
func (h *health) saw(err error, now time.Time) {
	if errors.Is(err, errAbandoned) || errors.Is(err, context.Canceled) {
		return // not the ledger's doing
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.err == nil {
		h.since = now
	}
	h.err = err
}

// down returns nil, or why the ledger cannot be asked.
func (h *health) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return nil
	}
	return fmt.Errorf("since %s: %w", h.since.UTC().Format(time.TimeOnly), cause(h.err))
}
