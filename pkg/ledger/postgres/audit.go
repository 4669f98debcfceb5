package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// auditQueries each return what is broken, in sql/audit.sql.
var auditQueries = []string{
	"AuditReserved", "AuditProjections", "AuditOverlaps", "AuditSharedDevices", "AuditCharges", "AuditAllocationSums",
	"AuditReservations", "AuditEpochs", "AuditGuards", "AuditUnbilled", "AuditZeroSum",
}

// Audit checks the invariants from the rows themselves, all in one snapshot, and returns what is broken; a sound
// ledger gives none. It reads every entry.
func (s *Store) Audit(ctx context.Context) ([]ledger.Violation, error) {
	var found []ledger.Violation
	err := s.snapshot(ctx, func(tx pgx.Tx) (err error) {
		found, err = audit(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("audit the ledger: %w", meaning(err))
	}
	return found, nil
}

func audit(ctx context.Context, tx pgx.Tx) ([]ledger.Violation, error) {
	stored, folded, err := projections(ctx, tx, "AccountAll")
	if err != nil {
		return nil, err
	}
	var found []ledger.Violation
	for i := range stored {
		if got, want := stored[i], folded[i]; figures(got) != figures(want) {
			found = append(found, ledger.Violation{
				Invariant: "I2", Subject: "account " + got.Name,
				Detail: fmt.Sprintf("says %+v, entries and open reservations add up to %+v", figures(got), figures(want)),
			})
		}
	}
	for _, name := range auditQueries {
		rows, err := tx.Query(ctx, query(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		violations, err := pgx.CollectRows(rows, scanViolation)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, violations...)
	}
	return found, nil
}

// Size counts what an Audit would go over now. Entries, reservations and allocations are never deleted, so that a later
// Audit covers all that were counted.
func (s *Store) Size(ctx context.Context) (ledger.Size, error) {
	size, _, err := readOne(ctx, s, "AuditSize", pgx.RowToStructByPos[ledger.Size])
	return size, err
}

// Rebuild computes the balance projection anew from entries and open reservations, and returns how many accounts it
// had to change; a sound ledger gives 0. Everything else waits meanwhile.
func (s *Store) Rebuild(ctx context.Context) (changed int, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		changed = 0
		var revision int64
		if err := tx.QueryRow(ctx, query("TransactionNumber")).Scan(&revision); err != nil {
			return err
		}
		stored, folded, err := projections(ctx, tx, "AccountLockAll")
		if err != nil {
			return err
		}
		w := &writes{now: s.clock.Now()}
		var updates ledger.Changes[ledger.Account]
		for i := range stored {
			if figures(stored[i]) != figures(folded[i]) {
				folded[i].Revision = max(stored[i].Revision+1, revision)
				updates.Updated = append(updates.Updated, folded[i])
			}
		}
		w.accounts(ledger.Outcome{Accounts: updates})
		changed = len(updates.Updated)
		return tx.SendBatch(ctx, &w.batch).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("rebuild the ledger's projection: %w", meaning(err))
	}
	return changed, nil
}

// projections reads the accounts as they are stored, and as entries and open reservations say they should be.
func projections(ctx context.Context, tx pgx.Tx, accountsQuery string) (stored, folded []ledger.Account, err error) {
	rows, err := tx.Query(ctx, query(accountsQuery))
	if err != nil {
		return nil, nil, err
	}
	if stored, err = pgx.CollectRows(rows, scanAccount); err != nil {
		return nil, nil, err
	}
	folded = append([]ledger.Account(nil), stored...)
	byName := make(map[string]*ledger.Account, len(folded))
	for i := range folded {
		byName[folded[i].Name] = &folded[i]
	}
	if rows, err = tx.Query(ctx, query("AccountFold")); err != nil {
		return nil, nil, err
	}
	var name string
	var own projection
	if _, err = pgx.ForEachRow(rows, []any{&name, &own.Balance, &own.Reserved, &own.Held, &own.Charged, &own.Running}, func() error {
		if a := byName[name]; a != nil {
			a.Balance, a.Reserved, a.Held, a.Charged, a.Running = own.Balance, own.Reserved, own.Held, own.Charged, own.Running
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if rows, err = tx.Query(ctx, query("SpendingFold")); err != nil {
		return nil, nil, err
	}
	spending, err := pgx.CollectRows(rows, scanSpending)
	if err != nil {
		return nil, nil, err
	}
	ledger.ProjectSubtrees(byName, spending)
	return stored, folded, nil
}

// projection is an account's figures that are folds of other rows (I2).
type projection struct {
	Balance, Reserved, Held, Charged                                             ledger.Microcredits
	Running                                                                      int64
	SubtreeBalance, SubtreeReserved, SubtreeHeld, SubtreeOverspent, SubtreeSpent ledger.Microcredits
	SubtreeRunning                                                               int64
}

func figures(a ledger.Account) projection {
	return projection{
		a.Balance, a.Reserved, a.Held, a.Charged, a.Running,
		a.SubtreeBalance, a.SubtreeReserved, a.SubtreeHeld, a.SubtreeOverspent, a.SubtreeSpent, a.SubtreeRunning,
	}
}

func scanSpending(row pgx.CollectableRow) (s ledger.DailySpending, err error) {
	err = row.Scan(&s.Account, &s.Day, &s.Amount)
	s.Day = s.Day.UTC()
	return s, err
}

func scanViolation(row pgx.CollectableRow) (v ledger.Violation, err error) {
	err = row.Scan(&v.Invariant, &v.Subject, &v.Detail)
	return v, err
}
