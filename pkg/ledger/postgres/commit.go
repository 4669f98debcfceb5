package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// conflictAttempts is how often a batch that lost against another process is repeated as a whole. Each repetition
	// sees what the winner did, so more than two or three in a row mean that single commands are the trouble.
	conflictAttempts = 8
	// While PostgreSQL is away: soon at first, since a restart takes a second or two, then a rate that a recovering
	// server does not notice.
	awayPauseLeast = 50 * time.Millisecond
	awayPauseMost  = 2 * time.Second
	// Callers that got their answers are often back at once with the next command. A small batch waits for them as long as it
	// takes them to come, since a commit costs a few milliseconds however much is in it: without, 64 callers end up in two
	// halves that take turns. Many callers need longer to come back than they would save.
	returnWait        = 300 * time.Microsecond
	returnWaitCallers = 128
)

// work is the one worker: it takes what has gathered and commits it, until the queue is closed.
func (s *Store) work(ctx context.Context) {
	// After a failure with half as many commands, after a success with twice as many again: a server so busy that a full
	// batch runs into its timeouts still gets somewhere.
	pause, limit := awayPauseLeast, s.batchLimit
	for {
		batch := s.queue.take(limit)
		if batch == nil {
			return
		}
		began := time.Now()
		away := s.process(ctx, batch)
		if away == nil {
			s.failures.recovered(s.log)
			pause, limit = awayPauseLeast, min(2*limit, s.batchLimit)
			s.sleep(ctx, s.spacing-time.Since(began))
			if s.spacing == 0 && len(batch) > 1 && len(batch) <= returnWaitCallers {
				s.queue.gather(len(batch), returnWait)
			}
			continue
		}
		s.failures.note(s.log, away.err)
		s.queue.putBack(away.undecided)
		s.rest(ctx, pause)
		pause, limit = min(2*pause, awayPauseMost), max(1, limit/2)
	}
}

// rest waits about pause, or until the store closes. Random, so that processes do not come back all at once.
func (s *Store) rest(ctx context.Context, pause time.Duration) { s.sleep(ctx, pause/2+rand.N(pause)) }

// sleep waits for a duration, or until the store closes.
func (s *Store) sleep(ctx context.Context, duration time.Duration) {
	if duration <= 0 {
		return
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.queue.closing:
	case <-ctx.Done():
	}
}

// databaseAway says that PostgreSQL gave no answer and what is still to be decided.
type databaseAway struct {
	undecided []*submission
	err       error
}

// process decides a batch. What conflicts or is at fault is tried one by one in the end, so that one caller's trouble
// is not everybody's. It returns what has to wait for PostgreSQL.
func (s *Store) process(ctx context.Context, batch []*submission) *databaseAway {
	thorough := false
	for attempt := 1; ; attempt++ {
		err := s.attempt(ctx, batch, thorough)
		if err == nil {
			return nil
		}
		kind := classify(err)
		if kind == failureConflict {
			s.distrust = distrustedBatches
		}
		switch {
		case kind == failureAway:
			return &databaseAway{undecided: batch, err: err}
		case kind == failureConflict && attempt < conflictAttempts:
			thorough = true
			if attempt > 1 {
				s.rest(ctx, awayPauseLeast) // let whoever keeps winning finish
			}
			s.log.V(1).Info("Ledger batch conflicts with another process, repeating it", "attempt", attempt, "reason", err.Error())
		case len(batch) == 1 && kind == failureConflict && !brokenConstraint(err) && !errors.Is(err, errStaleLocks):
			// A serialization failure or a deadlock again and again: that is the weather, never a caller's answer (L15).
			return &databaseAway{undecided: batch, err: err}
		case len(batch) == 1: // also rows that refer to accounts which are not there: whoever waits behind must not wait for them
			s.log.Error(err, "Ledger command failed", "key", batch[0].commands[0].Command.CommandKey())
			batch[0].fail(meaning(err))
			return nil
		default:
			for i := range batch {
				if away := s.process(ctx, batch[i:i+1:i+1]); away != nil {
					away.undecided = batch[i:]
					return away
				}
			}
			return nil
		}
	}
}

// attempt carries a batch out in one transaction of two round trips and answers its callers after the commit. thorough: see
// footprint.
func (s *Store) attempt(ctx context.Context, batch []*submission, thorough bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	var commands []ledger.Prepared
	for _, sub := range batch {
		commands = append(commands, sub.commands...)
	}
	var state *ledger.State
	var verdicts []ledger.Verdict
	if err := s.onConnection(ctx, func(conn *pgx.Conn) error {
		memory, trusting := &s.known, s.trusts(thorough)
		if thorough {
			memory = new(known)
		}
		var err error
		state, err = lockingLoad.load(ctx, conn, ledger.Instant(s.clock.Now()), footprintOf(commands, thorough, trusting), memory)
		if err != nil {
			return err
		}
		now := ledger.Instant(s.clock.Now()) // read again: the locks may have been long in coming
		out, err := decide(state, now, commands)
		if err != nil {
			return err
		}
		if trusting && !allNew(commands, out.Verdicts) {
			return errNotNew
		}
		verdicts = out.Verdicts
		return save(ctx, conn, out, now)
	}); err != nil {
		return err
	}
	s.known.learn(state)
	for _, sub := range batch {
		sub.answer(verdicts[:len(sub.commands):len(sub.commands)])
		verdicts = verdicts[len(sub.commands):]
	}
	return nil
}

// distrustedBatches is for how many batches holds are looked for after one was not new: where repetitions or refusals are common,
// one batch in a hundred is decided twice for it.
const distrustedBatches = 100

// trusts reports whether new holds are taken to be new, without a look for their keys and workloads, which would find nothing and
// be a quarter of what PostgreSQL has to do for them. It is exact: a hold that is accepted inserts its key and its workload, and
// where either exists already the unique constraint refuses the batch, which is then repeated without trust. One that is refused
// inserts nothing of the kind, so the batch is repeated too (allNew).
func (s *Store) trusts(thorough bool) bool {
	if s.distrust > 0 {
		s.distrust--
		return false
	}
	return !thorough
}

// allNew reports whether every hold was accepted. Repetitions within the batch are of one that was.
func allNew(commands []ledger.Prepared, verdicts []ledger.Verdict) bool {
	for i, one := range commands {
		if _, hold := one.Command.(ledger.PlaceHold); hold && one.Malformed == nil && verdicts[i].Refusal != nil {
			return false
		}
	}
	return true
}

// decide turns a panic of Decide into an error: corrupt rows of one account must not stop the process for all others.
func decide(state *ledger.State, now time.Time, commands []ledger.Prepared) (out ledger.Outcome, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &faultError{fmt.Errorf("the rows contradict each other, run an audit and a rebuild: %v", reason)}
		}
	}()
	return ledger.DecidePrepared(state, now, commands), nil
}

// onConnection runs a transaction on a connection of its own. If it fails, the connection is closed: then the
// transaction is over for the server too, also when the outcome of its COMMIT is unknown here.
func (s *Store) onConnection(ctx context.Context, transaction func(*pgx.Conn) error) error {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the ledger's database: %w", err)
	}
	defer pooled.Release()
	err = transaction(pooled.Conn())
	if err == nil {
		return nil
	}
	var server *pgconn.PgError
	if ctx.Err() == nil && !pooled.Conn().IsClosed() && !errors.As(err, &server) && !overtaken(err) {
		err = &faultError{err} // the connection is fine and the server did not complain: the fault is here
	}
	s.abandon(pooled, server)
	return err
}

// abandon ends a failed transaction. A short context of its own: the caller's may have ended. server is what PostgreSQL said,
// nil if it said nothing.
func (s *Store) abandon(pooled *pgxpool.Conn, server *pgconn.PgError) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := pooled.Exec(ctx, "ROLLBACK"); err != nil || server != nil && server.Code == stalePlan {
		_ = pooled.Conn().Close(ctx) // it is broken; the server ends the transaction when it notices
	}
}
