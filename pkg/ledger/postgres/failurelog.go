package postgres

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// failureLog remembers why PostgreSQL gives no answer, for callers who ask, and logs the change, not each attempt.
type failureLog struct {
	mu      sync.Mutex
	current error
	since   time.Time
	count   int
}

func (f *failureLog) note(log logr.Logger, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		f.since = time.Now()
		log.Error(err, "Ledger database gives no answer, commands wait")
	}
	f.current = err
	f.count++
}

func (f *failureLog) recovered(log logr.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		log.Info("Ledger database answers again", "attempts", f.count, "after", time.Since(f.since).Round(time.Millisecond).String())
	}
	f.current, f.count = nil, 0
}

// last is the failure that stands, nil if PostgreSQL answers.
func (f *failureLog) last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}
