package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// sealAccounts and sealEntries bound one sealing transaction to well below a second and some megabytes.
	sealAccounts = 512
	sealEntries  = 20_000
	// waitingMost bounds the counting of what is to be sealed; beyond it the figure is of no more use.
	waitingMost = 1_000_000
)

// Seal extends the chains of some of the accounts that have new entries, in one transaction; call it again while it says More.
// It takes no lock that any writer waits for, and waits for none. Killed at any point it has done all or nothing.
func (s *Store) Seal(ctx context.Context) (result ledger.SealResult, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		result, err = s.seal(ctx, tx)
		return err
	})
	if err != nil {
		return ledger.SealResult{}, fmt.Errorf("seal entries: %w", meaning(err))
	}
	if result.Entries == 0 && !result.More && !result.Busy {
		// As in AccountsSince: an idle ledger must not hold changes back for ever.
		_, err = readAll(ctx, s, "AccountsNudge", pgx.RowTo[int64])
	}
	return result, err
}

// sealTask is an account that may have new entries.
type sealTask struct {
	head     ledger.ChainHead
	revision int64
	entries  []ledger.Entry
}

func (s *Store) seal(ctx context.Context, tx pgx.Tx) (ledger.SealResult, error) {
	var mine bool
	if _, err := tx.Exec(ctx, query("TransactionSettings")); err != nil {
		return ledger.SealResult{}, err
	}
	if err := tx.QueryRow(ctx, query("SealTurn")).Scan(&mine); err != nil || !mine {
		return ledger.SealResult{Busy: err == nil}, err
	}
	tasks, err := sealWork(ctx, tx)
	if err != nil || len(tasks) == 0 {
		return ledger.SealResult{}, err
	}
	read, err := readNext(ctx, tx, tasks)
	if err != nil {
		return ledger.SealResult{}, err
	}
	seals, sealed := sealsOf(tasks, s.clock.Now())
	done := tasks
	if read == sealEntries { // the last account read, and those after it, may have more
		for len(done) > 0 && len(done[len(done)-1].entries) == 0 {
			done = done[:len(done)-1]
		}
		done = done[:max(0, len(done)-1)]
	}
	w := &writes{now: s.clock.Now()}
	w.seals(seals)
	if len(done) > 0 {
		last := done[len(done)-1]
		w.exactly("SealProgress", 1, last.revision, last.head.Account)
	}
	if err := tx.SendBatch(ctx, &w.batch).Close(); err != nil {
		return ledger.SealResult{}, err
	}
	return ledger.SealResult{Entries: sealed, More: read == sealEntries || len(tasks) == sealAccounts}, nil
}

func sealWork(ctx context.Context, tx pgx.Tx) ([]sealTask, error) {
	rows, err := tx.Query(ctx, query("SealWork"), sealAccounts)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t sealTask, err error) {
		t.head, err = scanHead(row, &t.revision)
		return t, err
	})
}

// readNext reads the next entries of each account, and returns how many.
func readNext(ctx context.Context, tx pgx.Tx, tasks []sealTask) (int, error) {
	rows, err := tx.Query(ctx, query("SealEntries"),
		column(tasks, func(t *sealTask) string { return t.head.Account }),
		column(tasks, func(t *sealTask) time.Time { return keyTime(t.head) }),
		column(tasks, func(t *sealTask) int64 { return t.head.LastEntry }),
		sealEntries)
	if err != nil {
		return 0, err
	}
	return eachChained(rows, func(position int64, e ledger.Entry) {
		tasks[position-1].entries = append(tasks[position-1].entries, e)
	})
}

// keyTime is the time to read on from; nothing is before it in an empty chain.
func keyTime(head ledger.ChainHead) time.Time {
	if head.LastEntry == 0 {
		return everything.start
	}
	return head.LastRecordedAt
}

func sealsOf(tasks []sealTask, now time.Time) (seals []ledger.Seal, sealed int64) {
	for _, task := range tasks {
		head := task.head
		for rest := task.entries; len(rest) > 0; {
			n := min(len(rest), ledger.MaxSealEntries)
			seal := ledger.SealEntries(head, rest[:n], now)
			seals, head, rest = append(seals, seal), seal.Head, rest[n:]
		}
		sealed += int64(len(task.entries))
	}
	return seals, sealed
}

func (w *writes) seals(rows []ledger.Seal) {
	w.exactly("SealInsert", len(rows),
		column(rows, func(s *ledger.Seal) string { return s.Head.Account }),
		column(rows, func(s *ledger.Seal) int64 { return s.Head.Seals }),
		column(rows, func(s *ledger.Seal) int64 { return s.Entries }),
		column(rows, func(s *ledger.Seal) int64 { return s.First }),
		column(rows, func(s *ledger.Seal) []byte { return s.IDs }),
		column(rows, func(s *ledger.Seal) []byte { return s.Checks }),
		column(rows, func(s *ledger.Seal) int64 { return s.Head.Entries }),
		column(rows, func(s *ledger.Seal) int64 { return s.Head.LastEntry }),
		column(rows, func(s *ledger.Seal) time.Time { return s.Head.LastRecordedAt }),
		column(rows, func(s *ledger.Seal) []byte { return s.Head.Hash[:] }),
		column(rows, func(s *ledger.Seal) time.Time { return s.SealedAt }))
}

// SealAfresh has the next calls of Seal look at every account once more, also at those that have not changed: for whoever has
// seen entries left behind. What is sealed stays as it is.
func (s *Store) SealAfresh(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, query("SealProgress"), 0, ""); err != nil {
		return fmt.Errorf("have every account sealed afresh: %w", meaning(err))
	}
	return nil
}

// UnsealedEntries counts what Seal has yet to come to, up to a million.
func (s *Store) UnsealedEntries(ctx context.Context) (int64, error) {
	count, _, err := readOne(ctx, s, "SealWaiting", pgx.RowTo[int64], waitingMost)
	return count, err
}

// ChainHeads reads the end of every account's chain: what an auditor pins outside the database.
func (s *Store) ChainHeads(ctx context.Context) ([]ledger.ChainHead, error) {
	return readAll(ctx, s, "SealHeads", func(row pgx.CollectableRow) (ledger.ChainHead, error) { return scanHead(row) })
}

// eachChained visits entries that a statement lists after their account's position, and returns how many there were.
func eachChained(rows pgx.Rows, visit func(position int64, e ledger.Entry)) (count int, err error) {
	defer rows.Close()
	for rows.Next() {
		var position int64
		e, err := scanChained(rows, &position)
		if err != nil {
			return 0, err
		}
		visit(position, e)
		count++
	}
	return count, rows.Err()
}

// scanChained reads an entry whole, after the columns of its own that a statement has before it. Draws that cannot be read are
// no error here: they are something that no sealed entry has.
func scanChained(row pgx.CollectableRow, before ...any) (e ledger.Entry, err error) {
	var draws string
	if err := row.Scan(append(before, &e.ID, &e.Kind, &e.Key, &e.Debit, &e.Credit, &e.Amount, &e.Spender, &e.Reservation, &e.Allocation,
		&e.Corrects, &draws, &e.OccurredAt, &e.RecordedAt, &e.Reason, &e.Actor)...); err != nil {
		return e, err
	}
	e.OccurredAt, e.RecordedAt = e.OccurredAt.UTC(), e.RecordedAt.UTC()
	if e.Draws, err = readTakes(draws); err != nil {
		e.Draws = []ledger.Take{{Lot: "unreadable: " + draws, Amount: -1}}
	}
	return e, nil
}

// scanHead reads the end of a chain; an account without seals has an empty one.
func scanHead(row pgx.CollectableRow, more ...any) (ledger.ChainHead, error) {
	var h ledger.ChainHead
	var at *time.Time
	var hash []byte
	if err := row.Scan(append([]any{&h.Account, &h.Seals, &h.Entries, &h.LastEntry, &at, &hash}, more...)...); err != nil {
		return h, err
	}
	if h.Seals == 0 {
		return ledger.NewChain(h.Account), nil
	}
	h.LastRecordedAt = fromNullable(at)
	return h, copyHash(&h, hash)
}

func scanSeal(row pgx.CollectableRow) (s ledger.Seal, err error) {
	var hash []byte
	if err := row.Scan(&s.Head.Account, &s.Head.Seals, &s.Entries, &s.First, &s.IDs, &s.Checks, &s.Head.Entries, &s.Head.LastEntry,
		&s.Head.LastRecordedAt, &hash, &s.SealedAt); err != nil {
		return s, err
	}
	s.Head.LastRecordedAt, s.SealedAt = s.Head.LastRecordedAt.UTC(), s.SealedAt.UTC()
	return s, copyHash(&s.Head, hash)
}

func copyHash(h *ledger.ChainHead, hash []byte) error {
	if copy(h.Hash[:], hash) != len(h.Hash) {
		return fmt.Errorf("seal %d of account %s has a hash of %d bytes: %s", h.Seals, h.Account, len(hash), hex.EncodeToString(hash))
	}
	return nil
}
