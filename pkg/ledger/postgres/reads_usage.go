package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// AverageUse reads what each account's own pods have used until at, once for each half-life, in the order of accounts, classes and
// half-lives. Allocations that are open count as held until at. An account that has used nothing is left out.
func (s *Store) AverageUse(ctx context.Context, at time.Time, halfLives []time.Duration) ([]ledger.AverageUse, error) {
	seconds := make([]float64, len(halfLives))
	for i, halfLife := range halfLives {
		if halfLife <= 0 {
			panic("postgres: a half-life must be more than 0")
		}
		seconds[i] = halfLife.Seconds()
	}
	return readAll(ctx, s, "UsageAverages", scanAverageUse, ledger.Instant(at), seconds)
}

func scanAverageUse(row pgx.CollectableRow) (u ledger.AverageUse, err error) {
	var seconds float64
	err = row.Scan(&u.Account, &u.Class, &seconds, &u.GPUs)
	u.HalfLife = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	return u, err
}
