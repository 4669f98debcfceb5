package clustertest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// Each test has a database of its own, in which it is not a superuser but may create what the ledger needs.
func TestDatabase(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection, err := pgx.Connect(t.Context(), clustertest.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close(t.Context())
			for _, statement := range []string{"CREATE EXTENSION btree_gist", "CREATE TABLE only_here (n int)"} {
				if _, err := connection.Exec(t.Context(), statement); err != nil {
					t.Errorf("%s: %v", statement, err)
				}
			}
			var superuser bool
			if err := connection.QueryRow(t.Context(), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user").Scan(&superuser); err != nil {
				t.Fatal(err)
			}
			if superuser {
				t.Error("the tests' role is a superuser; production's is not")
			}
		})
	}
}

// What was committed survives SIGKILL and an orderly stop, on the same address; a paused server answers again.
func TestPostgresComesBack(t *testing.T) {
	t.Parallel()
	pg := clustertest.OwnPostgres(t)
	address, err := pg.CreateDatabase(t.Context(), "ledger")
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string) {
		t.Helper()
		connection, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close(t.Context())
		if _, err := connection.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run("CREATE TABLE kept (n int)")
	for name, interrupt := range map[string]func(*cluster.Postgres) error{
		"kill": func(pg *cluster.Postgres) error { return pg.Kill() },
		"stop": func(pg *cluster.Postgres) error { return pg.Stop() },
	} {
		run("INSERT INTO kept VALUES (1)")
		if err := interrupt(pg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if pg.Running() {
			t.Errorf("%s: still running", name)
		}
		if err := pg.Start(t.Context()); err != nil {
			t.Fatalf("start after %s: %v", name, err)
		}
	}
	if err := pg.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := pg.Resume(); err != nil {
		t.Fatal(err)
	}
	run("DO $$ BEGIN IF (SELECT count(*) FROM kept) <> 2 THEN RAISE 'rows were lost'; END IF; END $$")
}
