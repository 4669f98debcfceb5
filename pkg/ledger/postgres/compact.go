package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// compactAllocations and compactIntervals bound one step to well below a second. An allocation with more intervals than that
	// is a step by itself.
	compactAllocations = 500
	compactIntervals   = 20_000
	// usualInterval is what an interval is taken to last when a step is cut, before they are read: the agent's default.
	usualInterval = time.Minute
)

// Compact makes the intervals of some of the allocations that ended before a moment as few rows as say the same, in one
// transaction; call it again with the result's Next while it says More. Statements, balances, prices, audits and what is answered
// to late reports are the same before and after. No writer waits for it, but one that is at the very same ended allocation; it waits for
// none. Killed at any point it has done all or nothing.
func (s *Store) Compact(ctx context.Context, before time.Time, from ledger.CompactionCursor) (result ledger.CompactionResult, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		result, err = s.compact(ctx, tx, before, from)
		return err
	})
	var server *pgconn.PgError
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, errKeptUp) || errors.As(err, &server) && (server.Code == "55P03" || server.Code == "40P01" || server.Code == "40001"):
		return ledger.CompactionResult{Busy: true, Next: from}, nil
	}
	return ledger.CompactionResult{}, fmt.Errorf("compact intervals: %w", meaning(err))
}

func (s *Store) compact(ctx context.Context, tx pgx.Tx, before time.Time, from ledger.CompactionCursor) (result ledger.CompactionResult, err error) {
	for _, setting := range []string{"TransactionSettings", "CompactionPatience"} {
		if _, err := tx.Exec(ctx, query(setting)); err != nil {
			return result, err
		}
	}
	if from.EndedAt.IsZero() {
		from.EndedAt = everything.start
	}
	rows, err := tx.Query(ctx, query("CompactionWork"), before, from.EndedAt, from.PodUID, compactAllocations)
	if err != nil {
		return result, err
	}
	found, err := pgx.CollectRows(rows, scanAllocation)
	if err != nil || len(found) == 0 {
		return result, err
	}
	work := found[:stepOf(found)]
	last := work[len(work)-1]
	result.Next = ledger.CompactionCursor{EndedAt: last.EndedAt, PodUID: last.PodUID}
	result.More = len(work) < len(found) || len(found) == compactAllocations
	pieces, err := intervalsOf(ctx, tx, work)
	if err != nil {
		return result, err
	}
	w := &writes{now: ledger.Instant(s.clock.Now())}
	w.compact(work, pieces, &result)
	return result, tx.SendBatch(ctx, &w.batch).Close()
}

// stepOf is how many of the allocations, one at least, a step takes: as many as have about compactIntervals.
func stepOf(found []ledger.Allocation) int {
	expected := time.Duration(0)
	for i, a := range found {
		if expected += a.EndedAt.Sub(a.StartedAt); !a.StartedAt.IsZero() && i > 0 && expected > compactIntervals*usualInterval {
			return i
		}
		if a.StartedAt.IsZero() {
			expected = 0
		}
	}
	return len(found)
}

func intervalsOf(ctx context.Context, tx pgx.Tx, work []ledger.Allocation) (map[string][]ledger.Interval, error) {
	rows, err := tx.Query(ctx, query("CompactionIntervals"), column(work, func(a *ledger.Allocation) string { return a.PodUID }))
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, scanInterval)
	pieces := make(map[string][]ledger.Interval)
	for _, i := range all {
		pieces[i.PodUID] = append(pieces[i.PodUID], i)
	}
	return pieces, err
}

// compact queues what ledger.CompactTime says of each allocation.
func (w *writes) compact(work []ledger.Allocation, pieces map[string][]ledger.Interval, result *ledger.CompactionResult) {
	var done, replaced []string // allocations that are compact afterwards; those whose intervals give way
	var removed int
	var rows []ledger.Interval
	var times []ledger.CompactedTime
	for _, a := range work {
		fewer, whole, err := ledger.CompactTime(a, pieces[a.PodUID])
		if err != nil {
			result.Unsound = append(result.Unsound, err.Error())
			continue
		}
		done = append(done, a.PodUID)
		result.Allocations++
		if len(fewer) == len(pieces[a.PodUID]) {
			continue
		}
		replaced, rows, times = append(replaced, a.PodUID), append(rows, fewer...), append(times, whole)
		removed += len(pieces[a.PodUID])
	}
	w.unlessKept("IntervalDeleteOf", removed, replaced)
	w.intervals(nil, rows)
	w.compactedTimes(times)
	w.exactly("AllocationCompacted", len(done), done)
	result.Intervals, result.Rows = int64(removed), int64(len(rows))
}

func (w *writes) compactedTimes(times []ledger.CompactedTime) {
	type podRun struct {
		ledger.Run
		pod        string
		receivedAt time.Time
	}
	var runs []podRun
	for _, t := range times {
		for _, run := range t.Runs {
			runs = append(runs, podRun{run, t.PodUID, t.ReceivedAt})
		}
	}
	w.exactly("CompactedInsert", len(times),
		column(runs, func(r *podRun) string { return r.pod }),
		column(runs, func(r *podRun) time.Time { return r.Start }),
		column(runs, func(r *podRun) int64 { return r.Length.Microseconds() }),
		column(runs, func(r *podRun) int64 { return r.Count }),
		column(runs, func(r *podRun) bool { return r.Source == ledger.SourceDerived }),
		column(runs, func(r *podRun) time.Time { return r.receivedAt }),
		w.now)
}

// expand takes away what compacted intervals were stored as; the intervals themselves are inserted after it.
func (w *writes) expand(pods []string) {
	if len(pods) == 0 {
		return
	}
	w.unlessKept("CompactedDelete", len(pods), pods)
	w.batch.Queue(query("IntervalDeleteOf"), pods)
}

// loosen has pods that ended compacted again, since their intervals have changed.
func (w *writes) loosen(pods []string) {
	if len(pods) > 0 {
		w.batch.Queue(query("AllocationLoosen"), pods)
	}
}

// compactionWaitingMost bounds the counting of what is to be compacted; beyond it the figure is of no more use.
const compactionWaitingMost = 100_000

// LooseAllocations counts the allocations that ended before a moment and are not compacted, up to 100,000.
func (s *Store) LooseAllocations(ctx context.Context, before time.Time) (int64, error) {
	count, _, err := readOne(ctx, s, "CompactionWaiting", pgx.RowTo[int64], before, compactionWaitingMost)
	return count, err
}
