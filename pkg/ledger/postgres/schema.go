package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SchemaError says that the database answers, but is not one that this program and its role can work on, yet or any more.
// Commands wait as if it were away.
type SchemaError struct {
	// Version is that of the tables, 0 if there are none that this role may see; Needs is this program's.
	Version, Needs int64
	// Oldest is the least version that a program must have been built for to work on the tables; 0 if unknown.
	Oldest int64
	// Role is whom the database takes this program for.
	Role  string
	Cause error // what PostgreSQL said; may be nil
}

func (e *SchemaError) Error() string {
	switch code := codeOf(e.Cause); {
	case code == "42501": // insufficient_privilege
		return fmt.Sprintf("role %s has no right to use the ledger: it must be granted the role of its part (%v), and these must have existed when the "+
			"database was migrated: %v", e.Role, Roles, e.Cause)
	case e.Cause != nil:
		return fmt.Sprintf("the ledger's database has no tables of version %d yet; `credit-controller migrate` makes them, which the controller's "+
			"Deployment runs first: %v", e.Needs, e.Cause)
	case e.Version < e.Needs:
		return fmt.Sprintf("the ledger's tables are of version %d and this program needs %d; `credit-controller migrate` of the same release brings them "+
			"up to date, which the controller's Deployment runs first", e.Version, e.Needs)
	}
	return fmt.Sprintf("the ledger's tables are of version %d, on which programs built for version %d or newer work; this one was built for %d: "+
		"install the newer release", e.Version, e.Oldest, e.Needs)
}
func (e *SchemaError) Unwrap() error { return e.Cause }

func codeOf(err error) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return ""
	}
	return server.Code
}

// greet is what a new connection does first: it makes sure that the tables fit this program, and prepares statements. A
// connection to any other database is closed, so that whoever needs it waits and the log says for what.
func greet(ctx context.Context, conn *pgx.Conn) error {
	found := &SchemaError{Needs: schemaVersion(), Role: conn.Config().User}
	var process uint32
	err := conn.QueryRow(ctx, query("SchemaVersion")).Scan(&process, &found.Version, &found.Oldest)
	switch code := codeOf(err); {
	case code == "42P01" || code == "42501" || errors.Is(err, pgx.ErrNoRows): // undefined_table, insufficient_privilege
		found.Cause = err
		return found
	case err != nil:
		return fmt.Errorf("ask for the version of the ledger's tables: %w", err)
	case found.Version < found.Needs || found.Needs < found.Oldest:
		return found
	}
	return prepare(ctx, conn, process)
}

// AwaitsMigration is a readiness check: it fails while the database answers but is not one for this program, so that a new
// replica does not take an old one's place before it can serve. A database that does not answer is no reason: that is the same
// for every replica.
func (s *Store) AwaitsMigration(ctx context.Context) error {
	if s.greeted.Load() {
		return nil
	}
	err := s.Ping(ctx)
	var schema *SchemaError
	if errors.As(err, &schema) {
		return schema
	}
	return nil
}
