package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// AuditIn is Store.Audit within a transaction of the test's own, which may have broken something first.
var AuditIn = audit

// VerifyIn is Store.VerifyChains, likewise.
func VerifyIn(ctx context.Context, tx pgx.Tx) (ledger.ChainReport, error) {
	v := &chainWalk{}
	err := v.walk(ctx, tx)
	return v.report, err
}

// SealIn is Store.Seal, likewise; the test commits.
func SealIn(s *Store, ctx context.Context, tx pgx.Tx) (ledger.SealResult, error) {
	return s.seal(ctx, tx)
}

// InvariantOf is what tests compare with the schema.
var InvariantOf = invariantOf
