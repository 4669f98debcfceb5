package creditreservation

import (
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

// saw takes over the outcome of a ping, and reports whether it differs from the one before.
func (h *health) saw(err error, now time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = (err == nil) != (h.err == nil)
	if changed {
		h.since = now
	}
	h.err = err
	return changed
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
