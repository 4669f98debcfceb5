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

// OldestProgram and SchemaVersion are what migrations are tested against.
const OldestProgram = oldestProgram

var SchemaVersion = schemaVersion

// Statements are the named statements of a folder, as this package reads its own.
var Statements = loadQueries

// MigrateTo takes the schema up or down to a version, without the rights, which Migrate renews.
func MigrateTo(ctx context.Context, databaseURL string, version int64) error {
	db, err := openForMigration(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	migrations, err := newProvider(db)
	if err != nil {
		return err
	}
	current, err := migrations.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	if version < current {
		_, err = migrations.DownTo(ctx, version)
	} else {
		_, err = migrations.UpTo(ctx, version)
	}
	return err
}
