package accounts

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// sweepEvery is the longest pause between two sweeps: how late something may show that came to be due after the last
	// one, by a command of another process.
	sweepEvery = time.Minute
	// sweepLimit is how many accounts one sweep touches. More are touched by the next, which follows at once.
	sweepLimit = 1_000
	// sweepAtOnce is how many accounts are touched together, so that they share commits: at the beginning of a month every
	// account with a limit for it is due.
	sweepAtOnce = 64
	// sweepTimeout bounds one sweep, so that a database that hangs does not stop the loop for good.
	sweepTimeout = 30 * time.Second
	// sweepRetry is the pause after a failure.
	sweepRetry = 5 * time.Second
)

// DueLedger is what the sweeper needs of the store.
type DueLedger interface {
	submission.Ledger
	// AccountsDue returns at most limit accounts on which something falls due at or before until, longest overdue first.
	AccountsDue(ctx context.Context, until time.Time, limit int) ([]ledger.Account, error)
}

// Sweeper touches accounts on which something has fallen due: a lot expires, a refill or spending period begins. Whatever
// touches an account has that done, so nothing is decided by the sweeper: it only keeps what people read current. It
// implements manager.Runnable and runs on the leader.
type Sweeper struct {
	ledger DueLedger
	clock  clock.Clock
	logger logr.Logger
	wake   chan struct{}
	// touched is what the last sweep touched, and the time for which each was due.
	touched map[string]time.Time
}

// NewSweeper returns a sweeper.
func NewSweeper(store DueLedger, clk clock.Clock, logger logr.Logger) *Sweeper {
	return &Sweeper{ledger: store, clock: clk, logger: logger, wake: make(chan struct{}, 1)}
}

// Wake has the sweeper look at once: something may fall due before it would look by itself.
func (s *Sweeper) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// NeedLeaderElection is true: one is enough.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends.
func (s *Sweeper) Start(ctx context.Context) error {
	failing := false
	for {
		pause, err := s.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			s.logger.Error(err, "What has fallen due is not posted; trying again until it is")
		case err == nil && failing:
			s.logger.Info("What has fallen due is posted again")
		}
		failing = err != nil
		if pause == 0 {
			continue
		}
		timer := s.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-s.wake:
		}
		timer.Stop()
	}
}

// sweep touches what is due and returns how long to wait for the next.
func (s *Sweeper) sweep(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	now := s.clock.Now()
	rows, err := s.ledger.AccountsDue(ctx, now.Add(sweepEvery), sweepLimit)
	if err != nil {
		return sweepRetry, fmt.Errorf("read accounts that are due: %w", err)
	}
	due, pause := planSweep(now, rows, s.touched)
	touching, ctx := errgroup.WithContext(ctx)
	touching.SetLimit(sweepAtOnce)
	for name := range due {
		touching.Go(func() error {
			// An account that was removed meanwhile is refused, and has nothing due.
			if _, err := s.ledger.Submit(ctx, ledger.PostDue{Key: "due:" + name, Account: name}); err != nil {
				return fmt.Errorf("post what has fallen due on account %s: %w", name, err)
			}
			return nil
		})
	}
	if err := touching.Wait(); err != nil {
		return sweepRetry, err
	}
	s.touched = due
	return pause, nil
}

// planSweep says which of rows to touch, with the time for which each is due, and how long to wait afterwards. An account
// that is touched may be due again soon, so the next sweep follows at once; but for one that the last sweep touched and
// that is still due for the same time, which the ledger could not post (its sums are at their limit): that waits.
func planSweep(now time.Time, rows []ledger.Account, touched map[string]time.Time) (due map[string]time.Time, pause time.Duration) {
	due, pause = make(map[string]time.Time), sweepEvery
	for _, row := range rows {
		if row.DueAt.After(now) {
			pause = min(pause, row.DueAt.Sub(now))
			continue
		}
		due[row.Name] = row.DueAt
		if before, again := touched[row.Name]; !again || !before.Equal(row.DueAt) {
			pause = 0
		}
	}
	return due, pause
}
