package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// A rotated password needs no restart: the file is read again for the next connection. Until it says the new one, commands wait.
func TestChangedPassword(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pg := clustertest.OwnPostgres(t)
	address, err := pg.CreateDatabase(ctx, "rotated")
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(ctx, address); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, url: address}
	f.store = f.open(postgres.Options{})
	f.do(lt.Account("team", "", 0), lt.Rate(), lt.Grant("1", "team", 100))

	file := filepath.Join(t.TempDir(), "url")
	write := func() {
		t.Helper()
		if err := cluster.WriteURLFile(file, pg.URLAs(cluster.WebhookRole, "rotated")); err != nil {
			t.Fatal(err)
		}
	}
	write()
	store, err := postgres.OpenFile(ctx, file, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if v, err := store.Submit(ctx, lt.Hold("before", "team", 1, 10)); err != nil || v.Refusal != nil {
		t.Fatal(v.Refusal, err)
	}

	if err := pg.SetPassword(ctx, cluster.WebhookRole, "another"); err != nil {
		t.Fatal(err)
	}
	if v, err := store.Submit(ctx, lt.Hold("meanwhile", "team", 1, 10)); err != nil || v.Refusal != nil {
		t.Error("a connection that stands goes on:", v.Refusal, err)
	}
	endConnections(t, pg.AdminURL("rotated"))
	waiting := store.Start(lt.Hold("after", "team", 1, 10))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var unavailable *postgres.UnavailableError
	if _, err := waiting.Wait(short); !errors.As(err, &unavailable) || strings.Contains(err.Error(), "another") {
		t.Errorf("with the old password: %v", err)
	}
	write()
	if v, err := waiting.Wait(ctx); err != nil || v.Refusal != nil {
		t.Error("with the new password:", v.Refusal, err)
	}
	f.figures("team", 100, 30, 0)

	// A file that is gone or spoilt for a while is no answer either, and comes right by itself.
	for _, spoil := range []func() error{
		func() error { return os.Remove(file) },
		func() error { return os.WriteFile(file, []byte("nonsense://s3cr3t"), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		endConnections(t, pg.AdminURL("rotated"))
		_ = store.Ping(ctx) // may find the connection that was ended
		if err := store.Ping(ctx); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("want an error that names %s and not its content, got %v", file, err)
		}
		write()
		if err := store.Ping(ctx); err != nil {
			t.Error(err)
		}
	}
}

// endConnections ends the connections of the parts, as a restart of PostgreSQL or their age would.
func endConnections(t *testing.T, adminURL string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), adminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename LIKE 'credit\_%'`); err != nil {
		t.Fatal(err)
	}
}

// A part that starts before the migration waits, says so, and goes on by itself; it is not ready until then. So does one that is
// older than the tables allow.
func TestPartsWaitForTheMigration(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := &fixture{t: t, url: clustertest.Database(t)}
	part, err := postgres.Open(ctx, clustertest.URLAs(t, cluster.ControllerRole, f.url), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(part.Close)
	waits := func(store *postgres.Store, why string) {
		t.Helper()
		err := store.AwaitsMigration(ctx)
		var schema *postgres.SchemaError
		if !errors.As(err, &schema) || !strings.Contains(err.Error(), why) {
			t.Errorf("want a SchemaError that says %q, got %v", why, err)
		}
		var unavailable *postgres.UnavailableError
		if err := store.Ping(ctx); !errors.As(err, &unavailable) || !errors.As(err, &schema) {
			t.Errorf("Ping: %v", err)
		}
	}
	waits(part, "credit-controller migrate")
	pending := part.Start(lt.Account("team", "", 0))
	if err := postgres.Migrate(ctx, f.url); err != nil {
		t.Fatal(err)
	}
	if v, err := pending.Wait(ctx); err != nil || v.Refusal != nil {
		t.Fatal(v.Refusal, err)
	}
	if err := part.AwaitsMigration(ctx); err != nil {
		t.Error(err)
	}

	for _, c := range []struct{ statement, why string }{
		{"UPDATE ledger_schema SET version = version - 1", "this program needs"},
		{"UPDATE ledger_schema SET version = version + 2, oldest_program = version + 2", "install the newer release"},
		{"REVOKE SELECT ON ledger_schema FROM gpubank_webhook", "must be granted the role of its part"},
	} {
		execute(t, f, c.statement)
		late, err := postgres.Open(ctx, clustertest.URLAs(t, cluster.WebhookRole, f.url), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		waits(late, c.why)
		late.Close()
		execute(t, f, "UPDATE ledger_schema SET version = (SELECT max(version_id) FROM goose_db_version), oldest_program = 1")
	}
	if err := part.Ping(ctx); err != nil {
		t.Errorf("a part that was in already: %v", err)
	}
	away, err := postgres.Open(ctx, "postgres://nobody@127.0.0.1:1/none", postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(away.Close)
	if err := away.AwaitsMigration(ctx); err != nil {
		t.Errorf("a database that does not answer is no reason not to be ready: %v", err)
	}
}
