package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestRolesAreThoseOfTheCluster(t *testing.T) {
	t.Parallel()
	if want := []string{cluster.ControllerRole, cluster.ReaderRole, cluster.SchedulerRole, cluster.WebhookRole}; !slices.Equal(postgres.Roles, want) {
		t.Errorf("roles are %v, tests log in as %v", postgres.Roles, want)
	}
}

// A migrator that may not create roles makes the tables all the same, says what an administrator has to run, and grants when
// the roles are there.
func TestMigrateWithoutRoles(t *testing.T) {
	t.Parallel()
	pg, admin := postgresWithoutRoles(t)
	address, err := pg.CreateDatabase(t.Context(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	done, err := postgres.MigrateAndReport(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if done.From != 0 || done.To < 8 || !slices.Equal(done.MissingRoles, postgres.Roles) {
		t.Errorf("the first migration: %+v", done)
	}
	f := &fixture{t: t, url: address}
	f.store = f.open(postgres.Options{})
	f.do(lt.Account("team", "", 0), lt.Grant("1", "team", 5)) // the owner can do without roles

	// One role is there for another reason; then what was advised is run.
	admin("CREATE ROLE gpubank_reader NOLOGIN")
	if done, err = postgres.MigrateAndReport(t.Context(), address); err != nil || slices.Contains(done.MissingRoles, "gpubank_reader") || len(done.MissingRoles) != 3 {
		t.Errorf("with one role: %+v, %v", done, err)
	}
	for _, role := range done.MissingRoles {
		if !strings.Contains(done.Advice(), "CREATE ROLE "+role+" NOLOGIN;") {
			t.Errorf("the advice does not name %s: %s", role, done.Advice())
		}
	}
	admin(done.Advice())
	if done, err = postgres.MigrateAndReport(t.Context(), address); err != nil || len(done.MissingRoles) > 0 || done.Advice() != "" || done.From != done.To {
		t.Errorf("with all roles: %+v, %v", done, err)
	}
	for _, role := range postgres.Roles {
		if granted := queryAs(t, f, pgx.RowTo[bool], "SELECT has_table_privilege($1, 'account', 'SELECT')", role)[0]; !granted {
			t.Errorf("%s was granted nothing", role)
		}
	}
}

// Roles are of the whole cluster: migrations of several databases at once, each by several programs, with a role that may
// create roles, leave each role once, with its rights in each database.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	pg, admin := postgresWithoutRoles(t)
	admin("ALTER ROLE gpubank CREATEROLE")
	var all sync.WaitGroup
	for i := range 3 {
		name := fmt.Sprintf("ledger_%d", i)
		address, err := pg.CreateDatabase(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			all.Go(func() {
				if done, err := postgres.MigrateAndReport(t.Context(), address); err != nil || len(done.MissingRoles) > 0 {
					t.Errorf("%s: %+v, %v", name, done, err)
				}
			})
		}
	}
	all.Wait()
	for i := range 3 {
		f := &fixture{t: t, url: pg.URL(fmt.Sprintf("ledger_%d", i))}
		for _, role := range postgres.Roles {
			if granted := queryAs(t, f, pgx.RowTo[bool], "SELECT has_table_privilege($1, 'account', 'SELECT')", role)[0]; !granted {
				t.Errorf("database %d: %s was granted nothing", i, role)
			}
		}
		f.store = f.open(postgres.Options{})
		f.audit()
	}
}

// What somebody granted beside the files is taken away by the next migration; a program that is older than the tables leaves
// them and their rights alone.
func TestMigrateRenewsRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mayDelete := func() bool {
		return queryAs(t, f, pgx.RowTo[bool], "SELECT has_table_privilege('gpubank_reader', 'discrepancy', 'DELETE')")[0]
	}
	execute(t, f, "GRANT DELETE ON discrepancy TO gpubank_reader")
	if err := postgres.Migrate(t.Context(), f.url); err != nil {
		t.Fatal(err)
	}
	if mayDelete() {
		t.Error("the reader keeps a right that its file does not give")
	}
	execute(t, f, "GRANT DELETE ON discrepancy TO gpubank_reader; INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
	done, err := postgres.MigrateAndReport(t.Context(), f.url)
	if err != nil || done.To != 99999 {
		t.Fatalf("an older program on newer tables: %+v, %v", done, err)
	}
	if !mayDelete() {
		t.Error("an older program took away what a newer one had granted")
	}
	execute(t, f, "DELETE FROM goose_db_version WHERE version_id = 99999")
}

// The audit notices where rights and policies are not what they were made.
func TestAuditOfRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct{ spoil, repair, subject, detail string }{
		{"GRANT UPDATE (amount) ON entry TO gpubank_webhook", "", "entry", "role gpubank_webhook may change"},
		{"GRANT TRUNCATE ON command TO gpubank_reader", "", "command", "role gpubank_reader may change"},
		{"ALTER TABLE reservation DISABLE ROW LEVEL SECURITY", "ALTER TABLE reservation ENABLE ROW LEVEL SECURITY", "reservation_begins_without_charges", "policy"},
	} {
		execute(t, f, c.spoil)
		violations, err := f.store.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(violations, func(v ledger.Violation) bool { return v.Subject == c.subject && strings.Contains(v.Detail, c.detail) }) {
			t.Errorf("%s: the audit finds %v", c.spoil, violations)
		}
		if c.repair != "" {
			execute(t, f, c.repair)
		}
		if err := postgres.Migrate(t.Context(), f.url); err != nil {
			t.Fatal(err)
		}
	}
}

// postgresWithoutRoles is a PostgreSQL on which nobody has prepared gpubank's roles, and its administrator.
func postgresWithoutRoles(t *testing.T) (*cluster.Postgres, func(statement string)) {
	t.Helper()
	pg := clustertest.OwnPostgresWith(t, cluster.PostgresOptions{WithoutRoles: true})
	return pg, func(statement string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), pg.AdminURL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}
