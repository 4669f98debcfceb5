package clustertest

import (
	"errors"
	"os"
	"testing"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/pgprograms"
)

// requirePooler, when set to anything, turns a missing PgBouncer from a reason to skip into a failure.
const requirePooler = "REQUIRE_PGBOUNCER"

// Pooler starts a PgBouncer in transaction mode for this test alone, before the PostgreSQL that the addresses lead to. It is the
// one program without which tests are skipped: not every system has a package of it.
func Pooler(t testing.TB, addresses ...string) *cluster.Pooler {
	t.Helper()
	pooler, err := cluster.StartPooler(t.Context(), addresses...)
	if errors.Is(err, pgprograms.ErrPoolerMissing) && os.Getenv(requirePooler) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		showLogs(t, pooler.Process)
		if err := pooler.Close(); err != nil {
			t.Error(err)
		}
	})
	return pooler
}
