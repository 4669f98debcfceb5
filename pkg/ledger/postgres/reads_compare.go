package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// MeteredAllocations reads the allocations that may hold GPUs, oldest first, each with what its node has reported.
func (s *Store) MeteredAllocations(ctx context.Context) ([]ledger.MeteredAllocation, error) {
	return readAll(ctx, s, "AllocationsMetered", func(row pgx.CollectableRow) (m ledger.MeteredAllocation, err error) {
		var until *time.Time
		m.Allocation, err = scanAllocationAnd(row, &until, &m.MeteredGPUs)
		m.MeteredUntil = fromNullable(until)
		return m, err
	})
}

// FrozenAccounts reads the accounts that are frozen, by name.
func (s *Store) FrozenAccounts(ctx context.Context) ([]ledger.Account, error) {
	return readAll(ctx, s, "AccountsFrozen", scanAccount)
}

// OpenDiscrepancies counts the disagreements that nobody has closed, by kind.
func (s *Store) OpenDiscrepancies(ctx context.Context) (map[ledger.DiscrepancyKind]int64, error) {
	type kindCount struct {
		Kind  ledger.DiscrepancyKind
		Count int64
	}
	counts, err := readAll(ctx, s, "DiscrepanciesOpen", pgx.RowToStructByPos[kindCount])
	if err != nil {
		return nil, err
	}
	open := make(map[ledger.DiscrepancyKind]int64)
	for _, each := range counts {
		open[each.Kind] = each.Count
	}
	return open, nil
}

// KeepDiscrepancies keeps disagreements that were found outside the ledger, each once: one whose key is known changes nothing,
// closed or not. It returns how many are new.
func (s *Store) KeepDiscrepancies(ctx context.Context, found []ledger.Discrepancy) (added int64, err error) {
	if len(found) == 0 {
		return 0, nil
	}
	tag, err := s.pool.Exec(ctx, query("DiscrepancyInsert"), discrepancyColumns(found)...)
	if err != nil {
		return 0, fmt.Errorf("keep %d discrepancies: %w", len(found), meaning(err))
	}
	return tag.RowsAffected(), nil
}
