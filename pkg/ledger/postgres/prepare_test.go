package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
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

// What a batch executes is planned once for a connection, and not for each batch: planning is most of a small one's work.
func TestHotStatementsAreNotPlannedAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := clustertest.Database(t)
	if err := Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	config, err := poolConfig(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1 // what the batches ran on is what is looked at
	store, err := open(ctx, config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	submit := func(commands ...ledger.Command) {
		t.Helper()
		verdicts, err := store.SubmitAll(ctx, commands)
		if err != nil {
			t.Fatal(err)
		}
		for _, verdict := range verdicts {
			if verdict.Refusal != nil {
				t.Fatal(verdict.Refusal)
			}
		}
	}
	submit(ledgertest.Account("team", "", ledger.MaxAmount/4), ledgertest.Rate())
	const holds = 8 // PostgreSQL tries five plans before it settles on one by itself
	for i := range holds {
		submit(ledgertest.Hold(fmt.Sprintf("job-%d", i), "team", 1, 10))
	}
	var executed int
	rows, err := store.pool.Query(ctx, "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements")
	if err != nil {
		t.Fatal(err)
	}
	var statement string
	var once, again int64
	if _, err := pgx.ForEachRow(rows, []any{&statement, &once, &again}, func() error {
		if again > 0 {
			t.Errorf("planned %d times for its parameters: %s", again, statement)
		}
		if once >= holds {
			executed++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if least := 8; executed < least { // settings, number, locks, lots, rate; account, hold, key
		t.Errorf("%d prepared statements took part in each of %d batches, want at least %d", executed, holds, least)
	}
}
