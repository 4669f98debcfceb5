package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// oldestProgram is the least schema version that a program must have been built for to work on this one. It follows the
// newest migration at a distance of one release: expand, then contract; see docs/designs/ledger-core.md. A migration that
// takes away what programs of the release before still use must not be added together with raising it.
const oldestProgram = 6

// schemaVersion is the newest migration: what this program needs.
var schemaVersion = sync.OnceValue(func() int64 {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	var newest int64
	for _, file := range files {
		number, _, _ := strings.Cut(strings.TrimPrefix(file, "migrations/"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic("postgres: migration " + file + " has no number")
		}
		newest = max(newest, version)
	}
	return newest
})

// Migration is what MigrateAndReport did.
type Migration struct {
	// From and To are the schema's versions before and after. They are above this program's own where a newer one has
	// migrated already; then nothing was changed.
	From, To int64
	// MissingRoles are the parts' roles that do not exist and that the migrating role may not create (it lacks CREATEROLE).
	// Nobody but the owner of the tables can use the ledger in their place.
	MissingRoles []string
}

// Advice is what an administrator has to run, as SQL and a sentence; empty when there is nothing to do.
func (m Migration) Advice() string {
	if len(m.MissingRoles) == 0 {
		return ""
	}
	var advice strings.Builder
	for _, role := range m.MissingRoles {
		advice.WriteString("CREATE ROLE " + role + " NOLOGIN; ")
	}
	return advice.String() + "-- as an administrator of PostgreSQL, then migrate again"
}

// Migrate brings the database's schema up to date and renews the parts' rights on it. The role in the URL has to own the
// database, or at least the schema. Several processes may call it at once: one migrates, the others wait for it. It needs a
// session of its own, so behind PgBouncer it has to be given PostgreSQL's own address.
func Migrate(ctx context.Context, databaseURL string) error {
	_, err := MigrateAndReport(ctx, databaseURL)
	return err
}

// MigrateAndReport is Migrate, and says what was done and what an administrator still has to do.
func MigrateAndReport(ctx context.Context, databaseURL string) (Migration, error) {
	var done Migration
	db, err := openForMigration(ctx, databaseURL)
	if err != nil {
		return done, err
	}
	defer db.Close()
	migrations, err := newProvider(db)
	if err == nil {
		done.From, err = migrations.GetDBVersion(ctx)
	}
	if err == nil {
		_, err = migrations.Up(ctx)
	}
	if err == nil {
		done.To, err = migrations.GetDBVersion(ctx)
	}
	if err != nil {
		return done, fmt.Errorf("migrate ledger: %w", err)
	}
	if done.MissingRoles, err = renewRights(ctx, databaseURL); err != nil {
		return done, fmt.Errorf("migrate ledger: renew the parts' rights: %w", err)
	}
	return done, nil
}

// openForMigration connects; its errors do not repeat the URL, which holds a password.
func openForMigration(ctx context.Context, databaseURL string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("migrate ledger: the database URL is not a valid PostgreSQL URL")
	}
	config.ConnectTimeout = connectTimeout
	if err := ownSession(ctx, config); err != nil {
		return nil, fmt.Errorf("migrate ledger: %w", err)
	}
	return stdlib.OpenDB(*config), nil
}

// ownSession makes sure that the database answers, and with sessions of its own: behind a pooler, the lock that keeps programs
// from migrating at once would be held by whoever gets its session next.
func ownSession(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	direct, err := leadsToPostgreSQL(ctx, conn)
	if err == nil && !direct {
		err = errors.New("the database URL leads to a pooler such as PgBouncer; migrations need PostgreSQL's own address")
	}
	return err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	// Asked for every second, for ten minutes: a migration may have to go over many rows.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600))
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
}
