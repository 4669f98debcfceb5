package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Options adjusts a Store; the zero value is fine.
type Options struct {
	// Clock says when things are recorded. Default: the real one.
	Clock clock.PassiveClock
	// Logger receives what concerns no caller in particular, e.g. that PostgreSQL is away and is back.
	Logger logr.Logger
	// QueueLimit is how many commands may wait for a commit before ErrQueueFull. Default 65,536: room for one
	// command of each pod of a large cluster while PostgreSQL restarts, at below 1 kB each.
	QueueLimit int
	// BatchLimit is how many commands one commit takes. Default 1,024; see docs/designs/ledger-core.md for the figures.
	BatchLimit int
	// BatchSpacing is the least time from the start of one commit to the start of the next. Default 0: the next one starts as
	// soon as there is a command for it. A caller that can wait, and whose commands come one by one, gathers them into fewer
	// commits; a command that comes to an idle ledger is committed at once, whatever the spacing.
	BatchSpacing time.Duration
	// ReadConnections bounds the connections for reads and quotes; the group commit has one of its own. Default 4.
	ReadConnections int
}

const (
	defaultQueueLimit      = 65_536
	defaultBatchLimit      = 1_024
	defaultReadConnections = 4
	// connectTimeout bounds one attempt to connect, over all of the URL's hosts.
	connectTimeout = 5 * time.Second
	// batchTimeout bounds one attempt at a batch from here, where a statement_timeout on the server would not be heard
	// (a lost network). It is above the sum of what one transaction may take there.
	batchTimeout = 15 * time.Second
)

// Store is the ledger in one PostgreSQL database. It is safe for concurrent use.
type Store struct {
	pool       *pgxpool.Pool
	clock      clock.PassiveClock
	log        logr.Logger
	batchLimit int
	spacing    time.Duration

	queue    *queue
	stop     context.CancelFunc // ends what the worker has in flight
	stopped  chan struct{}      // closed when the worker is gone
	closing  sync.Once
	failures failureLog
	known    known       // the worker's
	distrust int         // likewise: for how many batches to look for holds that may not be new
	greeted  atomic.Bool // a connection has found the tables fit for this program
}

// Open prepares a store. It does not connect: it succeeds while PostgreSQL is down, and fails only on a URL that cannot
// be read. The error does not repeat the URL, which holds a password.
func Open(ctx context.Context, databaseURL string, opts Options) (*Store, error) {
	config, err := poolConfig(databaseURL, opts)
	if err != nil {
		return nil, err
	}
	return open(ctx, config, opts)
}

func open(ctx context.Context, config *pgxpool.Config, opts Options) (*Store, error) {
	s := &Store{
		clock: opts.Clock, log: opts.Logger,
		batchLimit: orDefault(opts.BatchLimit, defaultBatchLimit), spacing: opts.BatchSpacing,
		queue:   newQueue(orDefault(opts.QueueLimit, defaultQueueLimit)),
		stopped: make(chan struct{}),
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	if s.log.GetSink() == nil {
		s.log = logr.Discard()
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerColumns(conn.TypeMap())
		err := greet(ctx, conn)
		if err == nil {
			s.greeted.Store(true)
		}
		return err
	}
	var err error
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.New("open ledger: the connection pool refuses its configuration")
	}
	var work context.Context
	work, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.stopped)
		s.work(work)
	}()
	return s, nil
}

func poolConfig(databaseURL string, opts Options) (*pgxpool.Config, error) {
	config, err := connectionConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(orDefault(opts.ReadConnections, defaultReadConnections)) + 1
	return config, nil
}

func orDefault(value, otherwise int) int {
	if value > 0 {
		return value
	}
	return otherwise
}

// Close lets the batch in flight end, answers what waits with ErrClosed, and closes the connections. Commands that
// were started and not waited for may be lost: wait for what matters first.
func (s *Store) Close() {
	s.closing.Do(func() {
		s.queue.close()
		select {
		case <-s.stopped:
		case <-time.After(batchTimeout):
			s.stop()
			<-s.stopped
		}
		s.stop()
		s.pool.Close()
	})
}

// Submit decides one command and returns after the commit is durable. Refusals are in the verdict. The error is an
// UnavailableError when ctx ends first (the command may have been executed, or be executed yet), ErrQueueFull,
// ErrClosed, or a ConstraintError.
func (s *Store) Submit(ctx context.Context, cmd ledger.Command) (ledger.Verdict, error) {
	verdicts, err := s.SubmitAll(ctx, []ledger.Command{cmd})
	if err != nil {
		return ledger.Verdict{}, err
	}
	return verdicts[0], nil
}

// SubmitAll decides commands in order, all in one commit, and returns a verdict for each. A refused one does not
// affect the others. An error means that none, or unknown to the caller all of them, were executed.
func (s *Store) SubmitAll(ctx context.Context, cmds []ledger.Command) ([]ledger.Verdict, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, &UnavailableError{Cause: err}
	}
	sub := newSubmission(ctx, cmds)
	if err := s.queue.push(sub); err != nil {
		return nil, err
	}
	return s.wait(ctx, sub)
}

func (s *Store) wait(ctx context.Context, sub *submission) ([]ledger.Verdict, error) {
	select {
	case <-sub.done:
		return sub.verdicts, sub.err
	case <-ctx.Done():
		return nil, unavailable(ctx, s.failures.last())
	}
}

// Pending is a command that was queued by Start.
type Pending struct {
	store *Store
	sub   *submission
}

// Start queues a command and returns at once. It is tried until it is decided or the store is closed. Commands that
// one goroutine starts are decided in that order.
func (s *Store) Start(cmd ledger.Command) *Pending {
	sub := newSubmission(context.Background(), []ledger.Command{cmd})
	if err := s.queue.push(sub); err != nil {
		sub.fail(err)
	}
	return &Pending{store: s, sub: sub}
}

// Wait returns the verdict after the commit is durable; see Submit for the errors. It may be called again, also after
// its context ended.
func (p *Pending) Wait(ctx context.Context) (ledger.Verdict, error) {
	verdicts, err := p.store.wait(ctx, p.sub)
	if err != nil {
		return ledger.Verdict{}, err
	}
	return verdicts[0], nil
}
