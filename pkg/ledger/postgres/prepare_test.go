package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// Every hot statement is valid on a migrated database, and known to a connection that leads straight to PostgreSQL. One to
// a database that is not migrated yet is usable all the same.
func TestHotStatementsArePrepared(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := clustertest.Database(t)
	for _, migrated := range []bool{false, true} {
		if migrated {
			if err := Migrate(ctx, url); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if err := prepare(ctx, conn, conn.PgConn().PID()); err != nil {
			t.Fatalf("migrated %t: %v", migrated, err)
		}
		var prepared int
		err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements", pgx.QueryExecModeExec).Scan(&prepared)
		if err != nil {
			t.Fatal(err)
		}
		if migrated && prepared < len(hot) {
			t.Errorf("%d of %d hot statements are prepared", prepared, len(hot))
		}
	}
}
