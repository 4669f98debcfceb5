package simulation

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// never is behind everything that is ever recorded: what may go by the rules goes whatever its age.
var never = start.Add(50 * 365 * 24 * time.Hour)

// compact makes one pass over everything that has ended. What does not add up is a violation, since nobody tampers here.
func (r *run) compact(ctx context.Context, store *postgres.Store) error {
	var from ledger.CompactionCursor
	for more := true; more; {
		step, err := store.Compact(ctx, never, from)
		if err != nil {
			return err
		}
		for _, why := range step.Unsound {
			r.book.violate("compaction: %s", why)
		}
		r.counter.add(func(n *Counts) { n.Compacted += int(step.Intervals - step.Rows) })
		from, more = step.Next, step.More && !step.Busy
	}
	return nil
}

// forget makes one pass over every answer.
func (r *run) forget(ctx context.Context, store *postgres.Store) error {
	var from ledger.ForgetCursor
	for more := true; more; {
		step, err := store.ForgetCommands(ctx, never, from)
		if err != nil {
			return err
		}
		r.counter.add(func(n *Counts) { n.Forgotten += int(step.Forgotten) })
		from, more = step.Next, step.More
	}
	_, _, err := store.ForgetDeviceHolds(ctx, never)
	return err
}

// forgetEverything forgets what may be forgotten and compacts what has ended, again and again, while every command that was ever sent
// comes once more. Answers may be others now (a success may say that it is over), and no row may change.
func (r *run) forgetEverything(ctx context.Context, store *postgres.Store) error {
	for n := range leaderships { // the scheduler has been restarted meanwhile
		if _, err := store.AcquireLeadership(ctx, leaderName(n), "after all"); err != nil {
			return err
		}
	}
	if err := r.forget(ctx, store); err != nil {
		return err
	}
	before, err := r.everyRow(ctx)
	if err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	var kept error
	keeper.Go(func() {
		for kept == nil && keeping.Err() == nil {
			if kept = r.forget(ctx, store); kept == nil {
				kept = r.compact(ctx, store)
			}
		}
	})
	err = r.sendAgain(ctx, store)
	stop()
	keeper.Wait()
	if err != nil {
		return err
	}
	if kept != nil {
		return fmt.Errorf("keep the tables small: %w", kept)
	}
	after, err := r.everyRow(ctx)
	if err != nil {
		return err
	}
	for what, rows := range before {
		if !reflect.DeepEqual(rows, after[what]) {
			r.book.violate("I6: everything was forgotten and sent again, and the %s are others", what)
		}
	}
	return nil
}

// sendAgain delivers every command that was answered for good, intervals under the current epoch.
func (r *run) sendAgain(ctx context.Context, store *postgres.Store) error {
	var commands []ledger.Command
	for _, rec := range r.book.records {
		if rec.final == nil {
			continue
		}
		command := rec.command
		if interval, ok := command.(ledger.RecordInterval); ok {
			interval.OwnerEpoch = r.epochs.of(interval.Node)
			command = interval
		}
		commands = append(commands, command)
	}
	for len(commands) > 0 {
		batch := commands[:min(len(commands), 500)]
		commands = commands[len(batch):]
		if _, err := store.SubmitAll(ctx, batch); err != nil {
			return fmt.Errorf("send everything again: %w", err)
		}
	}
	return nil
}

// everyRow is all that money depends on, and which time was charged.
func (r *run) everyRow(ctx context.Context) (map[string]any, error) {
	all, err := readRows(ctx, r.url)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return nil, fmt.Errorf("read the ledger's intervals: %w", err)
	}
	defer conn.Close(ctx)
	found, err := conn.Query(ctx, `SELECT format('%s %s [%s, %s) %s', pod_uid, source, min(started_at), max(ended_at), sum(charge))
		FROM metered_interval GROUP BY pod_uid, source ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("read the ledger's intervals: %w", err)
	}
	times, err := pgx.CollectRows(found, pgx.RowTo[string])
	return map[string]any{
		"accounts": all.accounts, "reservations": all.reservations, "allocations": all.allocations, "entries": all.entries, "lots": all.lots,
		"metered times": times,
	}, err
}
