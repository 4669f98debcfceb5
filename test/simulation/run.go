package simulation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
)

// Options say on what a plan is carried out.
type Options struct {
	// Postgres is killed and started again on the way; nothing else may depend on it.
	Postgres *cluster.Postgres
	// Counts, if set, is told of them once a second.
	Counts func(Counts)
}

// Report is what came of a run.
type Report struct {
	Counts Counts
	// Violations is what must not be, in words; none for a sound ledger.
	Violations []string
	// Entries, Reservations and Allocations are how many the ledger has in the end.
	Entries, Reservations, Allocations int
	// Took is real time: under faults, and to settle and check.
	Took, Checked time.Duration
}

// Run carries a plan out in a database of its own, which it removes. The error is about the run itself: PostgreSQL does
// not come up, ctx ended.
func Run(ctx context.Context, plan *Plan, options Options) (report Report, err error) {
	name := fmt.Sprintf("simulation_%d", plan.Seed)
	if err := options.Postgres.DropDatabase(ctx, name); err != nil {
		return Report{}, err
	}
	url, err := options.Postgres.CreateDatabase(ctx, name)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if dropErr := options.Postgres.DropDatabase(ctx, name); dropErr != nil && err == nil {
			err = dropErr
		}
	}()
	if err := postgres.Migrate(ctx, url); err != nil {
		return Report{}, err
	}
	r := &run{plan: plan, options: options, url: url, database: name, book: newBook(), epochs: &epochs{}, counter: newCounter()}
	return r.all(ctx)
}

type run struct {
	plan          *Plan
	options       Options
	url, database string
	book          *book
	epochs        *epochs
	counter       *counter

	proxies []*proxy
	writers []writer
	// observer reads and begins epochs past all network faults, like the operator's own connection.
	observer *postgres.Store
}

func (r *run) all(ctx context.Context) (report Report, err error) {
	began := time.Now()
	defer r.closeWriters()
	if err := r.open(ctx); err != nil {
		return Report{}, err
	}
	stop := r.tell()
	r.live(ctx)
	stop()
	r.closeWriters()
	if ctx.Err() != nil {
		return Report{Counts: r.counter.snapshot(), Violations: r.book.violations}, ctx.Err()
	}
	report.Took = time.Since(began)
	if err := r.settle(ctx); err != nil {
		return Report{}, err
	}
	if err := r.check(ctx, &report); err != nil {
		return Report{}, err
	}
	report.Checked = time.Since(began) - report.Took
	report.Counts, report.Violations = r.counter.snapshot(), r.book.violations
	return report, nil
}

// open starts the writers and sets the world up, in peace.
func (r *run) open(ctx context.Context) error {
	for n := range writers {
		p, err := newProxy(fmt.Sprintf("writer-%d", n), r.url)
		if err != nil {
			return err
		}
		r.proxies = append(r.proxies, p)
		var w writer
		if n < localWriters {
			w, err = newLocalWriter(p.url)
		} else {
			w, err = newChildWriter(p.url, func() {})
		}
		if err != nil {
			return err
		}
		r.writers = append(r.writers, w)
	}
	observer := newClock()
	var err error
	if r.observer, err = postgres.Open(ctx, r.url, postgres.Options{Clock: observer}); err != nil {
		return err
	}
	if err := r.beginEpochs(ctx); err != nil {
		return err
	}
	r.book.sent(r.plan.Setup)
	verdicts, err := r.observer.SubmitAll(ctx, r.plan.Setup)
	if err != nil {
		return fmt.Errorf("set the simulated world up: %w", err)
	}
	r.book.answered(r.plan.Setup, verdicts)
	for i, v := range verdicts {
		if v.Refusal != nil {
			return fmt.Errorf("set the simulated world up: %s: %w", r.plan.Setup[i].CommandKey(), v.Refusal)
		}
	}
	return nil
}

func (r *run) beginEpochs(ctx context.Context) error {
	for n := range leaderships {
		if err := r.newLeader(ctx, n); err != nil {
			return err
		}
	}
	for n := range nodes {
		if err := r.newAgent(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) newLeader(ctx context.Context, n int) error {
	epoch, err := r.observer.AcquireLeadership(ctx, leaderName(n), "simulation")
	if err == nil {
		r.epochs.begin(leaderName(n), epoch)
	}
	return err
}

func (r *run) newAgent(ctx context.Context, n int) error {
	epoch, err := r.observer.RegisterNodeAgent(ctx, nodeName(n), "simulation")
	if err == nil {
		r.epochs.begin(nodeName(n), epoch)
	}
	return err
}

// live delivers all lanes while faults strike. It returns when every lane is through and every fault is over.
func (r *run) live(ctx context.Context) {
	var callers, faults sync.WaitGroup
	lanesOver := make(chan struct{})
	faults.Go(func() { r.strike(ctx, lanesOver) })
	for _, deliveries := range r.plan.Lanes {
		c := &caller{writers: r.writers, book: r.book, epochs: r.epochs, counter: r.counter}
		callers.Go(func() { c.run(ctx, deliveries) })
	}
	callers.Wait()
	close(lanesOver)
	faults.Wait()
}

// tell reports counts until it is stopped.
func (r *run) tell() (stop func()) {
	over := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for r.options.Counts != nil {
			select {
			case <-tick.C:
				r.options.Counts(r.counter.snapshot())
			case <-over:
				return
			}
		}
	})
	return func() { close(over); telling.Wait() }
}

// closeWriters ends everything that could still write. It may be called again.
func (r *run) closeWriters() {
	var all sync.WaitGroup
	for _, w := range r.writers {
		all.Go(w.close)
	}
	if r.observer != nil {
		all.Go(r.observer.Close)
	}
	all.Wait()
	for _, p := range r.proxies {
		p.Stop()
	}
	r.writers, r.proxies, r.observer = nil, nil, nil
}

// commandsOf lists what a batch of records says.
func commandsOf(records []*record) []ledger.Command {
	commands := make([]ledger.Command, len(records))
	for i, r := range records {
		commands[i] = r.command
	}
	return commands
}
