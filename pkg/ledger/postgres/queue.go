package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// submission is what one caller submitted: commands that share a commit.
type submission struct {
	ctx      context.Context // the caller's; when it ends before a batch takes the submission, nothing is executed
	commands []ledger.Prepared
	verdicts []ledger.Verdict
	err      error
	done     chan struct{}
}

// newSubmission panics on a command that the ledger does not know (a nil, a pointer to one): a caller's bug stops the
// caller, not the worker that serves everybody.
func newSubmission(ctx context.Context, commands []ledger.Command) *submission {
	sub := &submission{ctx: ctx, commands: make([]ledger.Prepared, len(commands)), done: make(chan struct{})}
	for i, command := range commands {
		sub.commands[i] = ledger.Prepare(command)
	}
	return sub
}

func (s *submission) answer(verdicts []ledger.Verdict) {
	s.verdicts = verdicts
	close(s.done)
}

func (s *submission) fail(err error) {
	s.err = err
	close(s.done)
}

// queue holds submissions in the order in which they came, up to a limit of commands.
type queue struct {
	limit int

	mu       sync.Mutex
	waiting  []*submission
	commands int
	closed   bool
	// enough is closed when wanted submissions wait; nil if nobody wants to know.
	enough chan struct{}
	wanted int
	// closing is closed when the queue is.
	closing chan struct{}
	// ready has room for one signal; whoever takes it looks at the whole queue.
	ready chan struct{}
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, closing: make(chan struct{}), ready: make(chan struct{}, 1)}
}

func (q *queue) push(sub *submission) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.commands+len(sub.commands) > q.limit:
		return ErrQueueFull
	}
	q.waiting = append(q.waiting, sub)
	q.commands += len(sub.commands)
	if q.enough != nil && len(q.waiting) >= q.wanted {
		close(q.enough)
		q.enough = nil
	}
	q.signal()
	return nil
}

// putBack returns submissions that were taken to the head of the queue, whatever the limit says; if it was closed
// meanwhile, they fail.
func (q *queue) putBack(subs []*submission) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		for _, sub := range subs {
			sub.fail(ErrClosed)
		}
		return
	}
	q.waiting = append(subs[:len(subs):len(subs)], q.waiting...)
	q.commands += countCommands(subs)
	q.signal()
}

// gather waits until count more submissions wait than now, or it is closed, but no longer than most.
func (q *queue) gather(count int, most time.Duration) {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	q.mu.Lock()
	q.wanted, q.enough = len(q.waiting)+count, make(chan struct{})
	enough := q.enough
	q.mu.Unlock()
	select {
	case <-enough:
	case <-q.closing:
	case <-deadline.C:
	}
	q.mu.Lock()
	q.enough = nil
	q.mu.Unlock()
}

// take returns the submissions at the head, whole, up to limit commands but at least one; those that nobody waits for
// any more are dropped. It waits until there are some, and returns nil once the queue is closed.
func (q *queue) take(limit int) []*submission {
	for range q.ready {
		q.mu.Lock()
		batch, closed := q.takeWaiting(limit), q.closed
		q.mu.Unlock()
		if len(batch) > 0 || closed {
			return batch
		}
	}
	panic("postgres: queue signal channel closed")
}

func (q *queue) takeWaiting(limit int) []*submission {
	if q.closed {
		return nil
	}
	var batch []*submission
	size := 0
	for len(q.waiting) > 0 {
		next := q.waiting[0]
		if len(batch) > 0 && size+len(next.commands) > limit {
			q.signal()
			break
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		q.commands -= len(next.commands)
		if next.ctx.Err() != nil {
			next.fail(&UnavailableError{Cause: next.ctx.Err()})
			continue
		}
		batch = append(batch, next)
		size += len(next.commands)
	}
	return batch
}

// close refuses what comes and fails what waits.
func (q *queue) close() {
	q.mu.Lock()
	waiting := q.waiting
	q.waiting, q.commands, q.closed = nil, 0, true
	close(q.closing)
	q.signal()
	q.mu.Unlock()
	for _, sub := range waiting {
		sub.fail(ErrClosed)
	}
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func countCommands(subs []*submission) int {
	count := 0
	for _, sub := range subs {
		count += len(sub.commands)
	}
	return count
}
