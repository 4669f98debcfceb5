package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

const (
	// answerDeadline is how long a command may go without an answer, over all its attempts: PostgreSQL's recovery and
	// the longest timeouts of a batch take far less.
	answerDeadline = 3 * time.Minute
	// longestPatience is above the 15 s after which a store gives a batch up.
	longestPatience = 20 * time.Second
	// secondTries is how often a caller repeats what was refused only for now: a stale epoch, a clock that is behind.
	secondTries = 4
)

// unexpected reports whether a store's error says something else than that there is no answer yet: a broken constraint, rows
// that contradict each other. No fault explains that.
func unexpected(err error) bool {
	var unavailable *postgres.UnavailableError
	return !errors.As(err, &unavailable) && !errors.Is(err, postgres.ErrClosed) && !errors.Is(err, postgres.ErrQueueFull) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.Is(err, errChildDied) && !errors.Is(err, errNoAnswer)
}

// caller delivers a lane.
type caller struct {
	writers []writer
	book    *book
	epochs  *epochs
	counter *counter
}

func (c *caller) run(ctx context.Context, deliveries []Delivery) {
	for _, d := range deliveries {
		if ctx.Err() != nil {
			return
		}
		c.counter.sent(len(d.Steps))
		if d.Twin < 0 {
			c.deliver(ctx, d, d.Writer)
			continue
		}
		var both sync.WaitGroup
		both.Go(func() { c.deliver(ctx, d, d.Twin) })
		c.deliver(ctx, d, d.Writer)
		both.Wait()
	}
}

// deliver sends commands until each has an answer, through one writer after the other.
func (c *caller) deliver(ctx context.Context, d Delivery, through int) {
	steps, patience := d.Steps, d.Patience
	giveUp := time.Now().Add(answerDeadline)
	for tries := 0; len(steps) > 0 && ctx.Err() == nil; through = (through + 1) % writers {
		commands, stale := c.fill(steps)
		verdicts, err := c.send(ctx, through, d, patience, commands)
		switch {
		case err == nil:
			c.checkStale(commands, verdicts, stale)
			if steps = onceMore(steps, verdicts); tries == secondTries {
				return
			}
			tries++
			continue
		case ctx.Err() != nil:
			return
		case unexpected(err):
			c.book.violate("%T %s failed: %s", commands[0], commands[0].CommandKey(), err)
			return
		case time.Now().After(giveUp):
			c.book.violate("%T %s got no answer in %s: %s", commands[0], commands[0].CommandKey(), answerDeadline, err)
			return
		}
		c.counter.add(func(n *Counts) { n.Retries += len(commands) })
		patience = min(patience*3/2, longestPatience)
		if errors.Is(err, errChildDied) || errors.Is(err, postgres.ErrClosed) {
			rest(ctx, 5*time.Millisecond) // the next one may not be there yet either
		}
	}
}

func (c *caller) fill(steps []Step) (commands []ledger.Command, stale []bool) {
	for _, s := range steps {
		command, isStale := c.epochs.fill(s)
		commands, stale = append(commands, command), append(stale, isStale)
	}
	return commands, stale
}

// send is one attempt, kept in the book before and after.
func (c *caller) send(ctx context.Context, through int, d Delivery, patience time.Duration, commands []ledger.Command) ([]ledger.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.book.sent(commands)
	verdicts, err := c.writers[through].submit(ctx, d.At, d.Async, commands)
	if err != nil {
		return nil, err
	}
	c.book.answered(commands, verdicts)
	c.counter.add(func(n *Counts) { n.Answers += len(verdicts) })
	for _, v := range verdicts {
		if v.Refusal != nil {
			c.counter.refused(string(v.Refusal.Code))
		}
	}
	return verdicts, nil
}

// checkStale is I7.
func (c *caller) checkStale(commands []ledger.Command, verdicts []ledger.Verdict, stale []bool) {
	for i, v := range verdicts {
		if stale[i] && (v.Refusal == nil || v.Refusal.Code != ledger.StaleEpoch && v.Refusal.Code != ledger.Invalid) {
			c.book.violate("I7: %T %s came under a stale epoch and was answered %s", commands[i], commands[i].CommandKey(), describe(v))
		}
	}
}

// onceMore is what the caller sends again although it was answered: under the epoch that is current now, or because the
// ledger's clock was behind. What was stale on purpose comes back as what it would have been.
func onceMore(steps []Step, verdicts []ledger.Verdict) []Step {
	var again []Step
	for i, v := range verdicts {
		if v.Refusal != nil && (v.Refusal.Code == ledger.StaleEpoch || v.Refusal.Code == ledger.InTheFuture) {
			s := steps[i]
			s.Stale = false
			again = append(again, s)
		}
	}
	return again
}
