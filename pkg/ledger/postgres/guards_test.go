package postgres_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// overlapName is the trigger that keeps intervals of a pod apart (I3).
const overlapName = "interval_overlaps_no_other_of_its_pod"

func refusedBy(err error, constraint string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.ConstraintName == constraint
}

// I3 between two other clients of the database: the second one, waits until the
// first has committed and is refused then, and nothing is refused that does not overlap.
func TestOverlapIsRefusedBetweenClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	f.do(lt.Hold("job", "team", 1, 500), lt.Allocate("pod", "job", "team", 1))
	const insert = `INSERT INTO metered_interval (pod_uid, started_at, ended_at, source, charge, received_at)
		VALUES ('pod', now() + $1::interval, now() + $2::interval, 'Agent', 0, now())`
	begin := func(options pgx.TxOptions) pgx.Tx {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), f.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := conn.BeginTx(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	first, impatient := begin(pgx.TxOptions{}), begin(pgx.TxOptions{})
	if _, err := first.Exec(t.Context(), insert, "1 s", "5 s"); err != nil {
		t.Fatal(err)
	}
	// While the first has not committed, nobody else gets so far as to look.
	if _, err := impatient.Exec(t.Context(), "SET LOCAL lock_timeout = '50ms'"); err != nil {
		t.Fatal(err)
	}
	var server *pgconn.PgError
	if _, err := impatient.Exec(t.Context(), insert, "4 s", "8 s"); !errors.As(err, &server) || server.Code != "55P03" {
		t.Errorf("beside one that has not committed: %v, want lock_not_available", err)
	}
	second := begin(pgx.TxOptions{})
	answer := make(chan error, 1)
	go func() {
		_, err := second.Exec(context.Background(), insert, "4 s", "8 s")
		answer <- err
	}()
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; !refusedBy(err, overlapName) {
		t.Errorf("an overlap with what was inserted meanwhile: %v", err)
	}
	// Its snapshot may be older than what it has to see.
	repeatable := begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if _, err := repeatable.Exec(t.Context(), insert, "20 s", "30 s"); !refusedBy(err, overlapName) {
		t.Errorf("under REPEATABLE READ: %v", err)
	}
	third := begin(pgx.TxOptions{})
	if _, err := third.Exec(t.Context(), insert, "10 s", "15 s"); err != nil {
		t.Errorf("what overlaps nothing: %v", err)
	}
	// Nothing of this was charged, and the audit of every test would say so.
	if err := third.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, f, "DELETE FROM metered_interval")
}

// Whether an account may be removed is asked of indexes: on a grown ledger reading all entries would take longer than a
// batch may.
func TestAccountUsesReadsNoTableWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "SET enable_seqscan = off"); err != nil {
		t.Fatal(err)
	}
	statement := postgres.Statements(os.DirFS("."), "sql")["AccountUses"]
	rows, err := conn.Query(t.Context(), "EXPLAIN "+statement, []string{"team"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan") {
		t.Errorf("the plan reads a table whole:\n%s", text)
	}
}
