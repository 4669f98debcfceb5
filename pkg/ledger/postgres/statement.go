package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// statementPage is how many entries one round trip reads.
const statementPage = 1_000

// Statement lists an account's entries recorded in [from, to), with the balance before and after, all from one
// snapshot. An account that does not exist has an empty statement.
func (s *Store) Statement(ctx context.Context, account string, from, to time.Time) (ledger.Statement, error) {
	from, to = ledger.Instant(from), ledger.Instant(to)
	statement := ledger.Statement{Account: account, From: from, To: to, AsOf: ledger.Instant(s.clock.Now())}
	err := s.snapshot(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, query("StatementOpening"), account, from).Scan(&statement.Opening); err != nil {
			return err
		}
		var err error
		if statement.Lines, err = statementLines(ctx, tx, account, from, to); err != nil {
			return err
		}
		balance := statement.Opening
		for i := range statement.Lines {
			balance += statement.Lines[i].Amount
			statement.Lines[i].Balance = balance
		}
		statement.Closing = balance
		rows, err := tx.Query(ctx, query("StatementReserved"), account)
		if err != nil {
			return err
		}
		reserved, err := pgx.CollectRows(rows, pgx.RowTo[ledger.Microcredits])
		if err != nil {
			return err
		}
		if len(reserved) > 0 {
			statement.Reserved = reserved[0]
		}
		if rows, err = tx.Query(ctx, query("StatementWorkloads"), account, from, to); err != nil {
			return err
		}
		statement.Workloads, err = pgx.CollectRows(rows, scanWorkload)
		return err
	})
	if err != nil {
		return ledger.Statement{}, fmt.Errorf("statement of account %s: %w", account, meaning(err))
	}
	return statement, nil
}

// statementLines reads the entries page by page.
func statementLines(ctx context.Context, tx pgx.Tx, account string, from, to time.Time) ([]ledger.StatementLine, error) {
	var lines []ledger.StatementLine
	// The first page starts after everything that was recorded before from: no entry has id 0 or below.
	afterTime, afterID := from, int64(0)
	for {
		rows, err := tx.Query(ctx, query("StatementEntries"), account, to, afterTime, afterID, statementPage)
		if err != nil {
			return nil, err
		}
		page, err := pgx.CollectRows(rows, scanLine)
		if err != nil {
			return nil, err
		}
		lines = append(lines, page...)
		if len(page) < statementPage {
			return lines, nil
		}
		afterTime, afterID = page[len(page)-1].RecordedAt, page[len(page)-1].EntryID
	}
}

func scanLine(row pgx.CollectableRow) (l ledger.StatementLine, err error) {
	var reservation, allocation *string
	err = row.Scan(&l.EntryID, &l.Kind, &l.Amount, &reservation, &allocation, &l.OccurredAt, &l.RecordedAt,
		&l.Reason, &l.Actor, &l.Workload.Kind, &l.Workload.Namespace, &l.Workload.Name)
	if reservation != nil {
		l.Reservation = *reservation
	}
	if allocation != nil {
		l.Allocation = *allocation
	}
	l.OccurredAt, l.RecordedAt = l.OccurredAt.UTC(), l.RecordedAt.UTC()
	return l, err
}

func scanWorkload(row pgx.CollectableRow) (w ledger.WorkloadSummary, err error) {
	var closedAt *time.Time
	err = row.Scan(&w.UID, &w.Workload.Kind, &w.Workload.Namespace, &w.Workload.Name, &w.Class, &w.Rate, &w.State,
		&w.Held, &w.Charged, &w.CreatedAt, &closedAt, &w.ChargedInPeriod, &w.DerivedCharge)
	w.CreatedAt, w.ClosedAt = w.CreatedAt.UTC(), fromNullable(closedAt)
	r := ledger.Reservation{Amount: w.Held, Charged: w.Charged, State: w.State}
	w.Overrun, w.Remaining = r.Overrun(), r.Remaining()
	if !r.Open() {
		w.Released = w.Held + w.Overrun - w.Charged
	}
	return w, err
}

// snapshot runs reads that must fit together.
func (s *Store) snapshot(ctx context.Context, read func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, read)
}
