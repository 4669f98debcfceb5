package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// AuditIn is Store.Audit within a transaction of the test's own, which may have broken something first.
var AuditIn = audit

// VerifyIn is Store.VerifyChains, likewise.
func VerifyIn(ctx context.Context, tx pgx.Tx) (ChainReport, error) {
	v := &chainWalk{}
	err := v.walk(ctx, tx)
	return v.report, err
}

// SealIn is Store.Seal, likewise; the test commits.
func SealIn(s *Store, ctx context.Context, tx pgx.Tx) (SealResult, error) { return s.seal(ctx, tx) }
