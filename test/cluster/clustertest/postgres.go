package clustertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpubank/gpubank/test/cluster"
)

// started is a part that is started once and shared, or the reason why it could not be.
type started[T any] struct {
	once sync.Once
	part T
	err  error
}

var (
	sharedPostgres started[*cluster.Postgres]
	databaseNumber atomic.Int64
)

// Postgres is the PostgreSQL that all tests of this package share. A test that stops it wants OwnPostgres instead.
func Postgres(t testing.TB) *cluster.Postgres {
	t.Helper()
	sharedPostgres.once.Do(func() {
		sharedPostgres.part, sharedPostgres.err = cluster.StartPostgres(t.Context(), cluster.PostgresOptions{})
		if sharedPostgres.err == nil {
			atEnd(t, sharedPostgres.part.Close)
		}
	})
	if sharedPostgres.err != nil {
		t.Fatal(sharedPostgres.err)
	}
	return sharedPostgres.part
}

// OwnPostgres starts a PostgreSQL for this test alone, to be stopped, killed and started again.
func OwnPostgres(t testing.TB) *cluster.Postgres {
	t.Helper()
	pg, err := cluster.StartPostgres(t.Context(), cluster.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		showLogs(t, pg.Process)
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

// Database gives this test an empty database of its own on the shared PostgreSQL, and returns its URL. The role in it
// is unprivileged and owns the database. It is dropped after the test.
func Database(t testing.TB) string {
	t.Helper()
	pg := Postgres(t)
	name := fmt.Sprintf("test_%d", databaseNumber.Add(1))
	address, err := pg.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := cleanupContext()
		defer cancel()
		if err := pg.DropDatabase(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return address
}
