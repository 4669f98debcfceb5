package postgres

import (
	"context"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// AccountPath reads an account and every account above it, up to the root, as of one moment; none if there is no such
// account.
func (s *Store) AccountPath(ctx context.Context, name string) ([]ledger.Account, error) {
	return readAll(ctx, s, "AccountPath", scanAccount, name)
}

// Lots reads an account's lots that have credits left, free or held, in the order in which they expire.
func (s *Store) Lots(ctx context.Context, account string) ([]ledger.Lot, error) {
	return readAll(ctx, s, "LotsOfAccount", scanLot, account)
}

// Spending reads what an account's own workloads were charged, less refunds, on each UTC day that begins in [from, to)
// and has any, in order. Who paid does not matter.
func (s *Store) Spending(ctx context.Context, account string, from, to time.Time) ([]ledger.DailySpending, error) {
	return readAll(ctx, s, "SpendingOfAccount", scanSpending, account, ledger.Instant(from), ledger.Instant(to))
}
