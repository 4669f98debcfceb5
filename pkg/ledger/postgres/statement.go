package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// statementChunk is how many entries one round trip reads, which bounds what is in memory.
const statementChunk = 1_000

// Statement lists an account's entries recorded in [from, to), with the balance before and after, whole in memory. An
// account that does not exist has an empty statement.
func (s *Store) Statement(ctx context.Context, account string, from, to time.Time) (ledger.Statement, error) {
	var statement ledger.Statement
	query := ledger.StatementQuery{Account: account, From: from, To: to}
	if err := s.StreamStatement(ctx, query, ledger.CollectStatement(&statement)); err != nil {
		return ledger.Statement{}, err
	}
	return statement, nil
}

// StreamStatement hands a statement to a sink as it is read, all from one snapshot, however long it is. Errors are those of the
// query's Check, of the sink, ledger.ErrStatementUnsound, and of the database. While the sink takes its time the snapshot
// keeps PostgreSQL from removing dead rows; a page (StatementQuery.Limit) is read in a moment.
func (s *Store) StreamStatement(ctx context.Context, asked ledger.StatementQuery, sink ledger.StatementSink) error {
	asked.From, asked.To, asked.After.RecordedAt = ledger.Instant(asked.From), ledger.Instant(asked.To), ledger.Instant(asked.After.RecordedAt)
	if err := asked.Check(); err != nil {
		return err
	}
	err := s.snapshot(ctx, func(tx pgx.Tx) error {
		r := statementReader{tx: tx, query: asked, sink: ledger.CheckStatement(sink)}
		return r.read(ctx, ledger.Instant(s.clock.Now()))
	})
	if refused := (*sinkError)(nil); errors.As(err, &refused) {
		return refused.cause
	}
	if err != nil {
		return fmt.Errorf("statement of account %s: %w", asked.Account, meaning(err))
	}
	return nil
}

// sinkError tells what a sink says from what the database says.
type sinkError struct{ cause error }

func (e *sinkError) Error() string { return e.cause.Error() }

func fromSink(err error) error {
	if err == nil {
		return nil
	}
	return &sinkError{err}
}

// BalanceAt is an account's balance at a moment: what the entries recorded before it add up to. False if there is no
// such account.
func (s *Store) BalanceAt(ctx context.Context, account string, at time.Time) (balance ledger.Microcredits, found bool, err error) {
	// Behind (at, 0) comes everything that was recorded at the moment itself or later.
	place := ledger.StatementCursor{RecordedAt: ledger.Instant(at)}
	standing, found, err := readOne(ctx, s, "StatementBalance", pgx.RowToStructByPos[accountStanding], account, place.RecordedAt, place.EntryID, lastPlace.RecordedAt, lastPlace.EntryID)
	return standing.Balance, found, err
}

// lastPlace is behind every entry: ledger.Check lets no time pass that is near it.
var lastPlace = ledger.StatementCursor{RecordedAt: everything.end, EntryID: math.MaxInt64}

// accountStanding is a row of StatementBalance.
type accountStanding struct {
	Balance, Reserved ledger.Microcredits
	Frozen            string
}

// statementReader reads one statement in one transaction.
type statementReader struct {
	tx    pgx.Tx
	query ledger.StatementQuery
	sink  ledger.StatementSink
	// begin and end bound the entries: behind begin, up to and with end.
	begin, end ledger.StatementCursor
}

func (r *statementReader) read(ctx context.Context, now time.Time) error {
	head, err := r.head(ctx, now)
	if err != nil {
		return err
	}
	if err := r.sink.Begin(head); err != nil {
		return fromSink(err)
	}
	if err := r.entries(ctx, "StatementEntries", func(row statementRow) error {
		return fromSink(r.sink.Line(ledger.StatementLine{StatementEntry: row.entry}))
	}); err != nil {
		return err
	}
	if err := r.entries(ctx, "StatementPaid", func(row statementRow) error {
		return fromSink(r.sink.Paid(ledger.PaidLine{StatementEntry: row.entry, Payer: row.payer()}))
	}); err != nil {
		return err
	}
	if r.query.Whole() {
		if err := r.workloads(ctx); err != nil {
			return err
		}
	}
	return fromSink(r.sink.End())
}

func (r *statementReader) head(ctx context.Context, now time.Time) (ledger.StatementHead, error) {
	head := ledger.StatementHead{Account: r.query.Account, From: r.query.From, To: r.query.To, After: r.query.After, AsOf: now}
	r.begin, r.end = ledger.StatementCursor{RecordedAt: r.query.From}, ledger.StatementCursor{RecordedAt: r.query.To}
	if r.query.After != (ledger.StatementCursor{}) {
		r.begin = r.query.After
	}
	if r.query.Limit > 0 {
		var last ledger.StatementCursor
		var more bool
		err := r.tx.QueryRow(ctx, query("StatementEnd"), r.bounds(r.begin, r.query.Limit)...).Scan(&last.RecordedAt, &last.EntryID, &more)
		last.RecordedAt = last.RecordedAt.UTC()
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return head, err
		}
		if more {
			r.end, head.Next = last, last
		}
	}
	opening, err := r.standing(ctx, r.begin)
	if err != nil {
		return head, err
	}
	closing, err := r.standing(ctx, r.end)
	if err != nil {
		return head, err
	}
	head.Opening, head.Closing, head.Reserved, head.Frozen = opening.Balance, closing.Balance, closing.Reserved, closing.Frozen
	return head, r.tx.QueryRow(ctx, query("StatementPaidSum"), r.bounds(r.begin)...).Scan(&head.PaidByOthersSum)
}

// bounds are the parameters of statements about the entries behind a place up to the end.
func (r *statementReader) bounds(behind ledger.StatementCursor, more ...any) []any {
	return append([]any{r.query.Account, behind.RecordedAt, behind.EntryID, r.end.RecordedAt, r.end.EntryID}, more...)
}

// standing is the account behind a place; the zero value if there is no such account.
func (r *statementReader) standing(ctx context.Context, behind ledger.StatementCursor) (accountStanding, error) {
	rows, err := r.tx.Query(ctx, query("StatementBalance"), r.query.Account, behind.RecordedAt, behind.EntryID, lastPlace.RecordedAt, lastPlace.EntryID)
	if err != nil {
		return accountStanding{}, err
	}
	standing, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[accountStanding])
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return standing, err
}

// entries visits the rows of a statement's list, chunk by chunk.
func (r *statementReader) entries(ctx context.Context, name string, visit func(statementRow) error) error {
	behind := r.begin
	for {
		rows, err := r.tx.Query(ctx, query(name), r.bounds(behind, statementChunk)...)
		if err != nil {
			return err
		}
		chunk, err := pgx.CollectRows(rows, scanStatementRow(r.query.Account))
		if err != nil {
			return err
		}
		if err := r.addLots(ctx, chunk); err != nil {
			return err
		}
		if err := r.addCorrected(ctx, chunk); err != nil {
			return err
		}
		for _, row := range chunk {
			if err := visit(row); err != nil {
				return err
			}
		}
		if len(chunk) < statementChunk {
			return nil
		}
		behind = chunk[len(chunk)-1].entry.Cursor()
	}
}

// addLots says of grants, transfers and expiries which credits expire when.
func (r *statementReader) addLots(ctx context.Context, chunk []statementRow) error {
	var keys []string
	for i := range chunk {
		keys = append(keys, chunk[i].lots()...)
	}
	if len(keys) == 0 {
		return nil
	}
	rows, err := r.tx.Query(ctx, query("StatementLots"), keys)
	if err != nil {
		return err
	}
	lots, err := pgx.CollectRows(rows, scanLot)
	if err != nil {
		return err
	}
	byKey := make(map[string]ledger.Lot, len(lots))
	for _, lot := range lots {
		byKey[lot.Key] = lot
	}
	for i := range chunk {
		row := &chunk[i]
		for _, key := range row.lots() {
			lot, found := byKey[key]
			if !found {
				continue // a grant without expiry
			}
			amount := lot.Amount
			if row.entry.Kind == ledger.EntryExpiry { // of what was left
				amount = -row.entry.Amount
			}
			row.entry.Expiring = append(row.entry.Expiring, ledger.ExpiringCredits{Lot: key, Amount: amount, ExpiresAt: lot.ExpiresAt})
		}
	}
	return nil
}

// addCorrected says of adjustments what they correct.
func (r *statementReader) addCorrected(ctx context.Context, chunk []statementRow) error {
	var ids []int64
	for i := range chunk {
		if id := chunk[i].corrects; id != 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := r.tx.Query(ctx, query("StatementCorrected"), ids, r.query.Account)
	if err != nil {
		return err
	}
	found := make(map[int64]ledger.CorrectedEntry)
	var one ledger.CorrectedEntry
	if _, err := pgx.ForEachRow(rows, []any{&one.EntryID, &one.Kind, &one.Amount, &one.RecordedAt}, func() error {
		one.RecordedAt = one.RecordedAt.UTC()
		found[one.EntryID] = one
		return nil
	}); err != nil {
		return err
	}
	for i := range chunk {
		if corrected, ok := found[chunk[i].corrects]; ok {
			chunk[i].entry.Corrects = &corrected
		}
	}
	return nil
}

// workloads hands them on row by row, as PostgreSQL sends them.
func (r *statementReader) workloads(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, query("StatementWorkloads"), r.query.Account, r.query.From, r.query.To)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		w, err := scanWorkload(rows)
		if err != nil {
			return err
		}
		if err := r.sink.Workload(w); err != nil {
			return fromSink(err)
		}
	}
	return rows.Err()
}

// statementRow is an entry as the account sees it, with what else is needed to complete it.
type statementRow struct {
	entry         ledger.StatementEntry
	key           string
	debit, credit string
	draws         []ledger.Take
	corrects      int64
}

// payer is whose balance a charge or refund moved.
func (r *statementRow) payer() string {
	if r.entry.Kind == ledger.EntryRefund {
		return r.credit
	}
	return r.debit
}

// lots are the keys of lots that the entry may have brought, or took to their end.
func (r *statementRow) lots() []string {
	switch {
	case r.entry.Kind == ledger.EntryGrant:
		return []string{"grant:" + r.key}
	case r.entry.Kind == ledger.EntryTransfer && r.entry.Amount > 0:
		keys := make([]string, len(r.draws))
		for i := range r.draws {
			keys[i] = fmt.Sprintf("transfer:%s#%d", r.key, i)
		}
		return keys
	case r.entry.Kind == ledger.EntryExpiry:
		keys := make([]string, len(r.draws))
		for i, draw := range r.draws {
			keys[i] = draw.Lot
		}
		return keys
	}
	return nil
}

func scanStatementRow(account string) pgx.RowToFunc[statementRow] {
	return func(row pgx.CollectableRow) (r statementRow, err error) {
		e := &r.entry
		var draws string
		if err := row.Scan(&e.EntryID, &e.Kind, &r.key, &e.Amount, &r.debit, &r.credit, &e.Spender, &e.Reservation, &e.Allocation, &r.corrects,
			&draws, &e.OccurredAt, &e.RecordedAt, &e.Reason, &e.Actor, &e.Workload.Kind, &e.Workload.Namespace, &e.Workload.Name); err != nil {
			return r, err
		}
		e.OccurredAt, e.RecordedAt = e.OccurredAt.UTC(), e.RecordedAt.UTC()
		switch account {
		case r.credit:
			e.Counterparty = r.debit
		case r.debit:
			e.Amount, e.Counterparty = -e.Amount, r.credit
		default: // another account paid
			e.Counterparty = r.credit
			if e.Kind == ledger.EntryRefund {
				e.Amount, e.Counterparty = -e.Amount, r.debit
			}
		}
		r.draws, err = readTakes(draws)
		return r, err
	}
}

func scanWorkload(row pgx.CollectableRow) (w ledger.WorkloadSummary, err error) {
	var closedAt *time.Time
	var policy string
	if err := row.Scan(&w.UID, &w.Workload.Kind, &w.Workload.Namespace, &w.Workload.Name, &w.Account, &w.Payer, &w.Class, &w.Rate, &w.State,
		&w.Held, &w.Charged, &w.CreatedAt, &closedAt, &policy, &w.Refunded, &w.ChargedInPeriod, &w.DerivedCharge); err != nil {
		return w, err
	}
	w.CreatedAt, w.ClosedAt = w.CreatedAt.UTC(), fromNullable(closedAt)
	r := ledger.Reservation{Amount: w.Held, Charged: w.Charged, State: w.State}
	w.Overrun, w.Remaining = r.Overrun(), r.Remaining()
	if !r.Open() {
		w.Released = w.Held + w.Overrun - w.Charged
	}
	w.OverrunAction = ledger.OverrunStop
	if policy != "" {
		then, err := policies.read(policy)
		if err != nil {
			return w, err
		}
		if then.Overrun.Action != "" {
			w.OverrunAction = then.Overrun.Action
		}
	}
	return w, nil
}

// snapshot runs reads that must fit together.
func (s *Store) snapshot(ctx context.Context, read func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, read)
}
