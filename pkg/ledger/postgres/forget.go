package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// forgetMost bounds one step of forgetting to well below a second.
const forgetMost = 5_000

// ForgetCommands forgets answers that were decided before a moment, and at least a day ago, and that can do no harm any more
// (ledger.ForgetRule); call it again with the result's Next while it says More. The database itself keeps to the rules: no part has
// the right to delete an answer, and the controller's may only ask for this.
func (s *Store) ForgetCommands(ctx context.Context, before time.Time, from ledger.ForgetCursor) (result ledger.ForgetResult, err error) {
	after := from.DecidedAt
	if after.IsZero() {
		after = everything.start
	}
	err = s.upkeep(ctx, func(tx pgx.Tx) error {
		var last *time.Time
		if err := tx.QueryRow(ctx, query("ForgetCommands"), before, after, forgetMost).Scan(&result.Examined, &result.Forgotten, &last); err != nil {
			return err
		}
		result.Next, result.More = ledger.ForgetCursor{DecidedAt: fromNullable(last)}, result.Examined >= forgetMost
		return nil
	})
	if err != nil {
		return ledger.ForgetResult{}, fmt.Errorf("forget old answers: %w", meaning(err))
	}
	return result, nil
}

// ForgetDeviceHolds forgets on which GPUs pods were metered that ended before a moment, and at least a day ago; call it again while
// more is true. What was found of two pods on one GPU stays, as a discrepancy.
func (s *Store) ForgetDeviceHolds(ctx context.Context, before time.Time) (forgotten int64, more bool, err error) {
	err = s.upkeep(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, query("ForgetDeviceHolds"), before, forgetMost).Scan(&forgotten)
	})
	if err != nil {
		return 0, false, fmt.Errorf("forget old GPU holds: %w", meaning(err))
	}
	return forgotten, forgotten == forgetMost, nil
}

// upkeep is a transaction with the settings of all that write, on a connection for reads.
func (s *Store) upkeep(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, query("TransactionSettings")); err != nil {
			return err
		}
		return do(tx)
	})
}
