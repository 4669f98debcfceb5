package clustertest

import (
	"fmt"
	"net/url"
	"strings"
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
	return OwnPostgresWith(t, cluster.PostgresOptions{})
}

// OwnPostgresWith is OwnPostgres with options.
func OwnPostgresWith(t testing.TB, options cluster.PostgresOptions) *cluster.Postgres {
	t.Helper()
	pg, err := cluster.StartPostgres(t.Context(), options)
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

// URLAs is the address of a database from Database for the login of a part, by its group role.
func URLAs(t testing.TB, role, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return Postgres(t).URLAs(role, strings.TrimPrefix(parsed.Path, "/"))
}
