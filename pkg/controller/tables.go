package controller

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	// tablesRetryLeast is soon, since a restarting PostgreSQL takes a second or two; tablesRetryMost is a rate that one
	// which recovers does not notice.
	tablesRetryLeast = time.Second
	tablesRetryMost  = 15 * time.Second
)

// tables waits for the ledger's tables, which a migration before this program makes and which this program's role could not:
// until they are there, and at a start during an outage, the replica is not ready and its log says why. A process that ended
// instead would be started again with growing pauses, and after an outage of both nobody would take in what nodes measure
// for minutes more. It implements manager.Runnable and runs on every replica.
type tables struct {
	fit     func(context.Context) error
	clock   clock.Clock
	logger  logr.Logger
	current atomic.Bool
	problem string // what the last attempt failed with, so that it is logged when it changes
}

// NeedLeaderElection is false: a replica without tables would answer nothing.
func (t *tables) NeedLeaderElection() bool { return false }

// attempt is one try.
func (t *tables) attempt(ctx context.Context) {
	err := t.fit(ctx)
	switch {
	case err == nil:
		t.current.Store(true)
		t.logger.Info("Ledger's tables fit this program")
	case ctx.Err() == nil && err.Error() != t.problem:
		t.problem = err.Error()
		t.logger.Error(err, "Waiting for the ledger's tables")
	}
}

// Start returns once the tables fit or ctx ends.
func (t *tables) Start(ctx context.Context) error {
	for pause := tablesRetryLeast; !t.current.Load(); pause = min(2*pause, tablesRetryMost) {
		select {
		case <-ctx.Done():
			return nil
		case <-t.clock.After(pause):
			t.attempt(ctx)
		}
	}
	return nil
}

// Ready is a readiness check.
func (t *tables) Ready(*http.Request) error {
	if !t.current.Load() {
		return errors.New("the ledger's tables have not been seen in a state that fits this program; the log says why")
	}
	return nil
}
