package simulation

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// strike lets every fault strike when its time has come. It returns when all are over, early when the lanes are.
func (r *run) strike(ctx context.Context, lanesOver <-chan struct{}) {
	var lasting sync.WaitGroup
	defer lasting.Wait()
	for number, f := range r.plan.Faults {
		for {
			sent, more := r.counter.progress()
			if sent >= f.After {
				break
			}
			select {
			case <-more:
			case <-lanesOver:
				return
			case <-ctx.Done():
				return
			}
		}
		r.counter.fault(f.Kind)
		if f.Kind == FaultPostgresKilled { // those that last wait for it: what they touch is gone meanwhile
			r.killPostgres(ctx)
			continue
		}
		lasting.Go(func() {
			if err := r.fault(ctx, f, number); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "simulation: fault %d (%s) did not strike: %v\n", number, f.Kind, err)
			}
		})
	}
}

func (r *run) killPostgres(ctx context.Context) {
	if err := r.options.Postgres.Kill(); err != nil {
		r.book.violate("the simulation cannot kill PostgreSQL: %s", err)
	}
	if err := r.options.Postgres.Start(ctx); err != nil && ctx.Err() == nil {
		r.book.violate("PostgreSQL does not come back: %s", err)
	}
}

// fault strikes, and returns when it is over.
func (r *run) fault(ctx context.Context, f Fault, number int) error {
	switch f.Kind {
	case FaultTerminate:
		return r.terminateBackends(ctx, number)
	case FaultWriterKilled:
		r.writers[f.Writer].(*childWriter).kill()
	case FaultDiesBeforeReply:
		r.writers[f.Writer].(*childWriter).dieBeforeReply(f.Number)
	case FaultWriterRestarted:
		return r.writers[f.Writer].restart()
	case FaultClockJump:
		r.writers[f.Writer].jump(f.Offset)
	case FaultNewLeader:
		return r.persist(ctx, func(ctx context.Context) error { return r.newLeader(ctx, f.Number) })
	case FaultNewAgent:
		return r.persist(ctx, func(ctx context.Context) error { return r.newAgent(ctx, f.Number) })
	case AuditOnline:
		return r.persist(ctx, r.audit)
	case CompactionOnline:
		return r.persist(ctx, func(ctx context.Context) error { return r.compact(ctx, r.observer) })
	default:
		return r.proxies[f.Writer].poison(ctx, f, number)
	}
	return nil
}

// persist repeats what may be repeated while PostgreSQL is away. An epoch that was begun without an answer is another
// one that nobody uses.
func (r *run) persist(ctx context.Context, do func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(limited)
		cancel()
		if err == nil || ctx.Err() != nil || attempt == 20 {
			return err
		}
		rest(ctx, 200*time.Millisecond)
	}
}

// audit is one snapshot while everybody writes: it must be sound at any moment.
func (r *run) audit(ctx context.Context) error {
	found, err := r.observer.Audit(ctx)
	for _, v := range found {
		r.book.violate("audit while everybody writes: %s", v)
	}
	return err
}

// terminateBackends ends about every third connection of the database, whoever has it.
func (r *run) terminateBackends(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.options.Postgres.AdminURL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = $1 AND hashint4(pid # $2::int) % 3 = 0`, r.database, number)
	return err
}
