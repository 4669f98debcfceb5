package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// save writes an outcome, one statement per kind of change, and commits, in one round trip.
func save(ctx context.Context, conn *pgx.Conn, out ledger.Outcome, now time.Time) error {
	w := &writes{now: now}
	w.accounts(out)
	w.rates(out.Rates)
	w.lots(out.Lots)
	w.reservations(out.Reservations, out.Repriced)
	w.allocations(out.Allocations)
	w.expand(out.Expanded)
	w.intervals(out.RemovedIntervals, out.NewIntervals)
	w.loosen(out.Loosened)
	w.devices(out.Devices)
	w.entries(out.Entries)
	if err := w.remembered(out.Remembered); err != nil {
		return err
	}
	w.spending(out.Spending)
	w.discrepancies(out.Discrepancies)
	w.resolutions(out.Resolutions)
	w.batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		// PostgreSQL answers COMMIT with ROLLBACK when the transaction had failed, and calls that no error.
		if tag.String() != "COMMIT" {
			return fmt.Errorf("commit of a ledger batch was answered with %q", tag)
		}
		return nil
	})
	return conn.SendBatch(ctx, &w.batch).Close()
}

// writes queues set-based writes; empty sets are left out.
type writes struct {
	batch pgx.Batch
	now   time.Time
}

// exactly queues a statement that must touch count rows.
func (w *writes) exactly(name string, count int, args ...any) {
	if count == 0 {
		return
	}
	w.batch.Queue(query(name), args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(count) {
			return fmt.Errorf("statement %s touched %d rows, not %d: another client changed them under lock", name, tag.RowsAffected(), count)
		}
		return nil
	})
}

// unlessKept is exactly for rows that upkeep may take without the batch's locks: what was read has been compacted or forgotten
// meanwhile, and the batch is repeated.
func (w *writes) unlessKept(name string, count int, args ...any) {
	if count == 0 {
		return
	}
	w.batch.Queue(query(name), args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(count) {
			return fmt.Errorf("statement %s touched %d rows, not %d: %w", name, tag.RowsAffected(), count, errKeptUp)
		}
		return nil
	})
}

// insertThenUpdate calls write with the statement and the rows of both kinds of change of one table.
func insertThenUpdate[T any](table string, c ledger.Changes[T], write func(statement string, rows []T)) {
	write(table+"Insert", c.Inserted)
	write(table+"Update", c.Updated)
}

func (w *writes) accounts(out ledger.Outcome) {
	name := func(a *ledger.Account) string { return a.Name }
	parent := func(a *ledger.Account) string { return a.Parent }
	policy := func(a *ledger.Account) string { return writePolicy(a.Policy) }
	version := func(a *ledger.Account) int64 { return a.PolicyVersion }
	frozen := func(a *ledger.Account) string { return a.Frozen }
	figures := func(rows []ledger.Account) []any {
		return []any{
			column(rows, func(a *ledger.Account) int64 { return int64(a.Balance) }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.Reserved) }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.Held) }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.Charged) }),
			column(rows, func(a *ledger.Account) int64 { return a.Running }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.SubtreeBalance) }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.SubtreeReserved) }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.SubtreeHeld) }),
			column(rows, func(a *ledger.Account) int64 { return a.SubtreeRunning }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.SubtreeOverspent) }),
			column(rows, func(a *ledger.Account) int64 { return int64(a.SubtreeSpent) }),
			column(rows, func(a *ledger.Account) *time.Time { return nullable(a.SpentSince) }),
			column(rows, func(a *ledger.Account) *time.Time { return nullable(a.RefilledAt) }),
			column(rows, func(a *ledger.Account) *time.Time { return nullable(a.LastEntryAt) }),
			column(rows, func(a *ledger.Account) *time.Time { return nullable(a.DueAt) }),
			column(rows, func(a *ledger.Account) int64 { return a.Revision }),
		}
	}
	c := out.Accounts
	settings := []any{column(c.Inserted, name), column(c.Inserted, parent), column(c.Inserted, policy), column(c.Inserted, version), column(c.Inserted, frozen)}
	w.exactly("AccountInsert", len(c.Inserted), append(settings, figures(c.Inserted)...)...)
	// A child may get a parent that is new.
	w.exactly("AccountUpdate", len(c.Updated), append([]any{column(c.Updated, name)}, figures(c.Updated)...)...)
	w.exactly("AccountSettings", len(out.Settings),
		column(out.Settings, name), column(out.Settings, parent), column(out.Settings, policy), column(out.Settings, version), column(out.Settings, frozen))
	w.exactly("PolicyInsert", len(out.Policies),
		column(out.Policies, func(p *ledger.PolicyVersion) string { return p.Account }),
		column(out.Policies, func(p *ledger.PolicyVersion) int64 { return p.Version }),
		column(out.Policies, func(p *ledger.PolicyVersion) string { return writePolicy(p.Policy) }),
		w.now)
	w.exactly("AccountDelete", len(c.Removed), c.Removed)
}

func (w *writes) lots(c ledger.Changes[ledger.Lot]) {
	key := func(l *ledger.Lot) string { return l.Key }
	free := func(l *ledger.Lot) int64 { return int64(l.Free) }
	held := func(l *ledger.Lot) int64 { return int64(l.Held) }
	expired := func(l *ledger.Lot) int64 { return int64(l.Expired) }
	w.exactly("LotInsert", len(c.Inserted),
		column(c.Inserted, key),
		column(c.Inserted, func(l *ledger.Lot) string { return l.Account }),
		column(c.Inserted, func(l *ledger.Lot) int64 { return int64(l.Amount) }),
		column(c.Inserted, free), column(c.Inserted, held), column(c.Inserted, expired),
		column(c.Inserted, func(l *ledger.Lot) time.Time { return l.ExpiresAt }))
	w.exactly("LotUpdate", len(c.Updated), column(c.Updated, key), column(c.Updated, free), column(c.Updated, held), column(c.Updated, expired))
}

func (w *writes) spending(additions []ledger.DailySpending) {
	// A row can be added to once in a statement.
	type day struct {
		account string
		unix    int64
	}
	index := make(map[day]int)
	var rows []ledger.DailySpending
	for _, one := range additions {
		at, known := index[day{one.Account, one.Day.Unix()}]
		if !known {
			index[day{one.Account, one.Day.Unix()}] = len(rows)
			rows = append(rows, one)
			continue
		}
		rows[at].Amount += one.Amount
	}
	w.exactly("SpendingAdd", len(rows),
		column(rows, func(s *ledger.DailySpending) string { return s.Account }),
		column(rows, func(s *ledger.DailySpending) time.Time { return s.Day }),
		column(rows, func(s *ledger.DailySpending) int64 { return int64(s.Amount) }))
}

func (w *writes) resolutions(rows []ledger.Discrepancy) {
	w.exactly("DiscrepancyResolve", len(rows),
		column(rows, func(d *ledger.Discrepancy) string { return d.Key }),
		column(rows, func(d *ledger.Discrepancy) time.Time { return d.ResolvedAt }),
		column(rows, func(d *ledger.Discrepancy) string { return d.Resolution }),
		column(rows, func(d *ledger.Discrepancy) string { return d.ResolvedBy }))
}

func (w *writes) rates(rows []ledger.RateVersion) {
	w.exactly("RateInsert", len(rows),
		column(rows, func(r *ledger.RateVersion) string { return r.Class }),
		column(rows, func(r *ledger.RateVersion) int64 { return r.Version }),
		column(rows, func(r *ledger.RateVersion) int64 { return int64(r.Rate) }),
		w.now)
}

func (w *writes) reservations(c ledger.Changes[ledger.Reservation], repriced map[string]bool) {
	uid := func(r *ledger.Reservation) string { return r.UID }
	charged := func(r *ledger.Reservation) int64 { return int64(r.Charged) }
	state := func(r *ledger.Reservation) string { return string(r.State) }
	reason := func(r *ledger.Reservation) string { return r.Reason }
	closedAt := func(r *ledger.Reservation) *time.Time { return nullable(r.ClosedAt) }
	seconds := func(r *ledger.Reservation) int64 { return r.GPUSeconds }
	amount := func(r *ledger.Reservation) int64 { return int64(r.Amount) }
	takes := func(r *ledger.Reservation) string { return writeTakes(r.Takes) }
	class := func(r *ledger.Reservation) string { return r.Class }
	rateVersion := func(r *ledger.Reservation) int64 { return r.RateVersion }
	rate := func(r *ledger.Reservation) int64 { return int64(r.Rate) }
	maxGPUs := func(r *ledger.Reservation) int64 { return r.MaxGPUs }
	held, others := splitHeld(c.Inserted, w.now)
	terms := func(rows []ledger.Reservation) []any {
		return []any{
			column(rows, uid),
			column(rows, func(r *ledger.Reservation) string { return r.Account }),
			column(rows, func(r *ledger.Reservation) string { return r.Payer }),
			column(rows, func(r *ledger.Reservation) int64 { return r.PolicyVersion }),
			column(rows, func(r *ledger.Reservation) string { return r.Workload.Kind }),
			column(rows, func(r *ledger.Reservation) string { return r.Workload.Namespace }),
			column(rows, func(r *ledger.Reservation) string { return r.Workload.Name }),
			column(rows, class),
			column(rows, rateVersion),
			column(rows, rate),
			column(rows, maxGPUs),
			column(rows, seconds),
			column(rows, amount),
			column(rows, takes),
		}
	}
	w.exactly("ReservationHold", len(held), append(terms(held), w.now)...)
	w.exactly("ReservationInsert", len(others), append(terms(others),
		column(others, charged),
		column(others, state),
		column(others, reason),
		column(others, func(r *ledger.Reservation) time.Time { return r.CreatedAt }),
		column(others, closedAt))...)
	var priced []ledger.Reservation
	updated := c.Updated
	if len(repriced) > 0 {
		updated = nil
		for _, r := range c.Updated {
			if repriced[r.UID] {
				priced = append(priced, r)
			} else {
				updated = append(updated, r)
			}
		}
	}
	standing := func(rows []ledger.Reservation) []any {
		return []any{
			column(rows, uid), column(rows, seconds), column(rows, amount), column(rows, takes), column(rows, charged),
			column(rows, state), column(rows, reason), column(rows, closedAt),
		}
	}
	w.exactly("ReservationUpdate", len(updated), standing(updated)...)
	w.exactly("ReservationReprice", len(priced), append(standing(priced),
		column(priced, class), column(priced, rateVersion), column(priced, rate), column(priced, maxGPUs))...)
}

// splitHeld tells the reservations that were just placed from those that the same batch took further.
func splitHeld(rows []ledger.Reservation, now time.Time) (held, others []ledger.Reservation) {
	justHeld := func(r *ledger.Reservation) bool {
		return r.State == ledger.Held && r.Charged == 0 && r.CreatedAt.Equal(now)
	}
	if !slices.ContainsFunc(rows, func(r ledger.Reservation) bool { return !justHeld(&r) }) {
		return rows, nil // as usual, without a copy
	}
	for _, r := range rows {
		if justHeld(&r) {
			held = append(held, r)
		} else {
			others = append(others, r)
		}
	}
	return held, others
}

func (w *writes) allocations(c ledger.Changes[ledger.Allocation]) {
	insertThenUpdate("Allocation", c, func(name string, rows []ledger.Allocation) {
		args := []any{
			column(rows, func(a *ledger.Allocation) string { return a.PodUID }),
			column(rows, func(a *ledger.Allocation) string { return a.Pod.Namespace }),
			column(rows, func(a *ledger.Allocation) string { return a.Pod.Name }),
		}
		if name == "AllocationInsert" { // both are fixed from then on
			args = append(args,
				column(rows, func(a *ledger.Allocation) string { return a.Reservation }),
				column(rows, func(a *ledger.Allocation) string { return a.Account }))
		}
		args = append(args,
			column(rows, func(a *ledger.Allocation) string { return a.Node }),
			column(rows, func(a *ledger.Allocation) string { return a.Class }),
			column(rows, func(a *ledger.Allocation) int64 { return a.RateVersion }),
			column(rows, func(a *ledger.Allocation) int64 { return int64(a.Rate) }),
			column(rows, func(a *ledger.Allocation) int64 { return a.GPUs }),
			column(rows, func(a *ledger.Allocation) string { return strings.Join(a.GPUUUIDs, unitSeparator) }),
			column(rows, func(a *ledger.Allocation) int64 { return a.LeaderEpoch }),
			column(rows, func(a *ledger.Allocation) string { return string(a.State) }),
			column(rows, func(a *ledger.Allocation) time.Time { return a.IntendedAt }),
			column(rows, func(a *ledger.Allocation) *time.Time { return nullable(a.StartedAt) }),
			column(rows, func(a *ledger.Allocation) *time.Time { return nullable(a.EndedAt) }),
			column(rows, func(a *ledger.Allocation) *time.Time { return nullable(a.LastSeen) }),
			column(rows, func(a *ledger.Allocation) int64 { return int64(a.Charged) }),
			column(rows, func(a *ledger.Allocation) int64 { return int64(a.Refunded) }),
			column(rows, func(a *ledger.Allocation) string { return string(a.RefundedFor) }))
		w.exactly(name, len(rows), args...)
	})
}

// unitSeparator is chr(31) in sql/allocation.sql; ledger.Check refuses it inside a GPU UUID.
const unitSeparator = "\x1f"

func (w *writes) intervals(removed, added []ledger.Interval) {
	pod := func(i *ledger.Interval) string { return i.PodUID }
	start := func(i *ledger.Interval) time.Time { return i.Start }
	w.unlessKept("IntervalDelete", len(removed), column(removed, pod), column(removed, start))
	w.exactly("IntervalInsert", len(added),
		column(added, pod),
		column(added, start),
		column(added, func(i *ledger.Interval) time.Time { return i.End }),
		column(added, func(i *ledger.Interval) string { return string(i.Source) }),
		column(added, func(i *ledger.Interval) int64 { return int64(i.Charge) }),
		column(added, func(i *ledger.Interval) time.Time { return i.ReceivedAt }))
}

func (w *writes) devices(c ledger.Changes[ledger.DeviceHold]) {
	insertThenUpdate("Device", c, func(name string, rows []ledger.DeviceHold) {
		w.unlessKept(name, len(rows),
			column(rows, func(h *ledger.DeviceHold) string { return h.GPUUUID }),
			column(rows, func(h *ledger.DeviceHold) string { return h.PodUID }),
			column(rows, func(h *ledger.DeviceHold) time.Time { return h.Start }),
			column(rows, func(h *ledger.DeviceHold) time.Time { return h.End }))
	})
}

func (w *writes) entries(rows []ledger.Entry) {
	w.exactly("EntryInsert", len(rows),
		column(rows, func(e *ledger.Entry) string { return string(e.Kind) }),
		column(rows, func(e *ledger.Entry) string { return e.Key }),
		column(rows, func(e *ledger.Entry) string { return e.Debit }),
		column(rows, func(e *ledger.Entry) string { return e.Credit }),
		column(rows, func(e *ledger.Entry) string { return e.Spender }),
		column(rows, func(e *ledger.Entry) int64 { return int64(e.Amount) }),
		column(rows, func(e *ledger.Entry) string { return e.Reservation }),
		column(rows, func(e *ledger.Entry) string { return e.Allocation }),
		column(rows, func(e *ledger.Entry) int64 { return e.Corrects }),
		column(rows, func(e *ledger.Entry) string { return writeTakes(e.Draws) }),
		column(rows, func(e *ledger.Entry) time.Time { return e.OccurredAt }),
		column(rows, func(e *ledger.Entry) time.Time { return e.RecordedAt }),
		column(rows, func(e *ledger.Entry) string { return e.Reason }),
		column(rows, func(e *ledger.Entry) string { return e.Actor }))
}

func (w *writes) remembered(rows []ledger.Remembered) error {
	verdicts := make([]string, len(rows))
	for i, row := range rows {
		var err error
		if verdicts[i], err = writeVerdict(row.Verdict); err != nil {
			return fmt.Errorf("write the verdict of command %q: %w", row.Key, err)
		}
	}
	w.exactly("CommandInsert", len(rows),
		column(rows, func(r *ledger.Remembered) string { return r.Key }),
		column(rows, func(r *ledger.Remembered) []byte { return r.ContentHash[:] }),
		verdicts,
		column(rows, func(r *ledger.Remembered) bool { return r.Lasting }),
		column(rows, func(r *ledger.Remembered) string { return string(r.Forget) }),
		w.now)
	return nil
}

func (w *writes) discrepancies(rows []ledger.Discrepancy) {
	if len(rows) == 0 {
		return
	}
	w.batch.Queue(query("DiscrepancyInsert"), discrepancyColumns(rows)...)
}

func discrepancyColumns(rows []ledger.Discrepancy) []any {
	return []any{
		column(rows, func(d *ledger.Discrepancy) string { return d.Key }),
		column(rows, func(d *ledger.Discrepancy) string { return string(d.Kind) }),
		column(rows, func(d *ledger.Discrepancy) string { return d.PodUID }),
		column(rows, func(d *ledger.Discrepancy) string { return d.Account }),
		column(rows, func(d *ledger.Discrepancy) string { return d.Ledger }),
		column(rows, func(d *ledger.Discrepancy) string { return d.Other }),
		column(rows, func(d *ledger.Discrepancy) time.Time { return d.FoundAt }),
	}
}
