package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Roles are the group roles (NOLOGIN) whose members the parts' logins are, in the order of the alphabet. They belong to the
// whole PostgreSQL cluster; what each may do in one ledger is in roles/, a file by its name.
var Roles = []string{"gpubank_controller", "gpubank_reader", "gpubank_scheduler", "gpubank_webhook"}

//go:embed roles/*.sql
var roleFiles embed.FS

// renewRights makes the roles where it may, gives each the rights in its file and no others, and then lets programs in. It does
// so after every migration and not in one, because roles may appear later: an administrator makes them, or the database is
// restored where they never were. It returns the roles that are missing. Where a newer program has migrated, its rights stand.
func renewRights(ctx context.Context, databaseURL string) (missing []string, err error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("the database URL is not a valid PostgreSQL URL")
	}
	config.ConnectTimeout = connectTimeout
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		missing = nil
		if _, err := tx.Exec(ctx, query("RolesLock")); err != nil {
			return err
		}
		var version int64
		if err := tx.QueryRow(ctx, query("MigrationVersion")).Scan(&version); err != nil {
			return err
		}
		if version > schemaVersion() {
			return nil
		}
		present, err := ensureRoles(ctx, tx)
		if err != nil {
			return err
		}
		for _, role := range Roles {
			if !slices.Contains(present, role) {
				missing = append(missing, role)
				continue
			}
			if err := renewRole(ctx, tx, role); err != nil {
				return fmt.Errorf("role %s: %w", role, err)
			}
		}
		if err := executeEach(ctx, tx, "PublicWithdrawal"); err != nil {
			return fmt.Errorf("close the database to PUBLIC: %w", err)
		}
		if err := executeEach(ctx, tx, "GuardsAlone"); err != nil {
			return fmt.Errorf("fix where triggers look for tables: %w", err)
		}
		_, err = tx.Exec(ctx, query("SchemaVersionSet"), version, oldestProgram)
		return err
	})
	return missing, err
}

// ensureRoles makes the roles that do not exist, and returns those that do in the end.
func ensureRoles(ctx context.Context, tx pgx.Tx) (present []string, err error) {
	rows, err := tx.Query(ctx, query("RolesPresent"), Roles)
	if err != nil {
		return nil, err
	}
	if present, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	for _, role := range Roles {
		if slices.Contains(present, role) {
			continue
		}
		made, err := createRole(ctx, tx, role)
		if err != nil {
			return nil, fmt.Errorf("create role %s: %w", role, err)
		}
		if made {
			present = append(present, role)
		}
	}
	return present, nil
}

// createRole reports whether the role exists afterwards: false when this one may not create roles.
func createRole(ctx context.Context, tx pgx.Tx, role string) (bool, error) {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return false, err
	}
	if _, err = savepoint.Exec(ctx, "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" NOLOGIN"); err == nil {
		return true, savepoint.Commit(ctx)
	}
	if failed := savepoint.Rollback(ctx); failed != nil {
		return false, errors.Join(err, failed)
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false, err
	}
	switch server.Code {
	case "42501": // insufficient_privilege
		return false, nil
	case "42710", "23505": // duplicate_object, unique_violation: another database's migration was quicker
		return true, nil
	}
	return false, err
}

// renewRole replaces what a role was granted by what is in its file.
func renewRole(ctx context.Context, tx pgx.Tx, role string) error {
	if err := executeEach(ctx, tx, "RoleRenewal", role); err != nil {
		return err
	}
	grants, err := roleFiles.ReadFile("roles/" + role + ".sql")
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, string(grants))
	return err
}

// executeEach runs the statements that a query returns.
func executeEach(ctx context.Context, tx pgx.Tx, name string, args ...any) error {
	rows, err := tx.Query(ctx, query(name), args...)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
