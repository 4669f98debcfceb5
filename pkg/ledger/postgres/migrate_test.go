package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// Versions of the tables that tests know something of.
const (
	// first is the oldest that a whole program worked on; rows of it and of rules are in testdata/upgrade.
	first = 5
	// rules brought lots, refills, refunds, corrections and payers above the spender, which first cannot say.
	rules = 6
)

// A ledger with the rows of first goes down to each version and up again, and says the same as before: every figure, every entry,
// every workload; it passes the audit and works on.
func TestMigrationsDownAndUp(t *testing.T) {
	t.Parallel()
	f := emptyDatabase(t)
	f.upToDate()
	f.tellPlainStory()
	before := f.picture()
	for version := postgres.SchemaVersion() - 1; version >= first; version-- {
		f.migrateTo(version)
		f.upToDate()
		if diff := cmp.Diff(before, f.picture()); diff != "" {
			t.Fatalf("down to version %d and up again (-before +after):\n%s", version, diff)
		}
		f.audit()
	}
	f.do(lt.Hold("after", "team", 1, 10))
}

// What the rules brought survives every migration since, down and up; below them it is refused, and stays as it is.
func TestMigrationsKeepTheRules(t *testing.T) {
	t.Parallel()
	f := emptyDatabase(t)
	f.upToDate()
	f.tellPlainStory()
	f.tellStoryOfTheRules()
	before := f.picture()
	for version := postgres.SchemaVersion() - 1; version >= rules; version-- {
		f.migrateTo(version)
		f.upToDate()
		if diff := cmp.Diff(before, f.picture()); diff != "" {
			t.Fatalf("down to version %d and up again (-before +after):\n%s", version, diff)
		}
		f.audit()
	}
	err := postgres.MigrateTo(t.Context(), f.url, first)
	if err == nil || !strings.Contains(err.Error(), "which the schema before does not have") {
		t.Errorf("down to version %d: %v", first, err)
	}
	f.upToDate()
	if diff := cmp.Diff(before, f.picture()); diff != "" {
		t.Errorf("after the refusal (-before +after):\n%s", diff)
	}
}

// Down to nothing leaves nothing, and up again makes everything.
func TestMigrationsDownToNothing(t *testing.T) {
	t.Parallel()
	f := emptyDatabase(t)
	f.upToDate()
	f.tellPlainStory()
	for version := postgres.SchemaVersion() - 1; version >= 0; version-- {
		f.migrateTo(version)
	}
	left := queryAs(t, f, pgx.RowTo[string], `
		SELECT oid::regclass::text FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S') AND relname NOT LIKE 'goose\_db\_version%'
		UNION ALL
		SELECT p.oid::regprocedure::text FROM pg_proc p
		WHERE p.pronamespace = current_schema()::regnamespace
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')`)
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	f.upToDate()
	f.teamWith("again", 10)
	f.audit()
}

// Rows that programs of earlier versions wrote come up step by step, add up as they did then, and can be worked on.
func TestUpgradeOfRealRows(t *testing.T) {
	t.Parallel()
	for _, version := range []int64{first, rules} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			t.Parallel()
			f := emptyDatabase(t)
			f.migrateTo(version)
			f.load(filepath.Join("testdata", "upgrade", fmt.Sprintf("%05d.sql", version)))
			const figures = "SELECT name, balance, reserved, charged, subtree_balance, subtree_reserved, subtree_overspent FROM account ORDER BY name"
			before := f.rows(figures)
			for next := version + 1; next <= postgres.SchemaVersion(); next++ {
				f.migrateTo(next)
			}
			f.upToDate()
			if diff := cmp.Diff(before, f.rows(figures)); diff != "" {
				t.Errorf("accounts (-before +after):\n%s", diff)
			}
			f.audit()
			f.do(lt.End("overrun-1", 0, 160), lt.Close("overrun"), lt.End("running-1", 10, 100), lt.Close("running"),
				ledger.ReleaseAllocation{Key: "release", PodUID: "intended-1"}, lt.Hold("after", "team-a", 1, 10))
			f.audit()
			if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
				t.Errorf("the rebuild changed %d accounts, %v", changed, err)
			}
			finished := f.rows(figures)
			if got := f.compactAll(f.store); got.Allocations == 0 {
				t.Errorf("compacted %+v", got)
			}
			f.forgetAll(f.store)
			if diff := cmp.Diff(finished, f.rows(figures)); diff != "" {
				t.Errorf("compacted and forgotten (-before +after):\n%s", diff)
			}
			f.audit()
		})
	}
}

// Every statement of the oldest program that may still run finds on today's tables what it names, and its inserts fill what they
// have to. The statements are those of its release, in testdata/released.
func TestOldestProgramStillWorks(t *testing.T) {
	t.Parallel()
	folder := fmt.Sprintf("released/%05d", postgres.OldestProgram)
	statements := postgres.Statements(os.DirFS("testdata"), folder)
	if len(statements) < 50 {
		t.Fatalf("testdata/%s has %d statements", folder, len(statements))
	}
	f := emptyDatabase(t)
	f.migrateTo(postgres.OldestProgram)
	f.prepareAll(statements)
	const columns = `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND is_generated = 'NEVER'
		  AND table_name <> 'goose_db_version' ORDER BY 1`
	const tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
	needed, known := set(queryAs(t, f, pgx.RowTo[string], columns)), set(queryAs(t, f, pgx.RowTo[string], tables))
	f.migrateTo(postgres.SchemaVersion())
	f.prepareAll(statements)
	for column := range set(queryAs(t, f, pgx.RowTo[string], columns)) {
		table, _, _ := strings.Cut(column, ".")
		if known[table] && !needed[column] {
			t.Errorf("%s must be given and has no default: the program of version %d does not know it", column, postgres.OldestProgram)
		}
	}
}

// A newer program says which one it is still good for, and what it needs itself.
func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.rows("SELECT version, oldest_program FROM ledger_schema")
	want := []string{fmt.Sprintf("[%d %d]", postgres.SchemaVersion(), postgres.OldestProgram)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if postgres.OldestProgram > postgres.SchemaVersion() {
		t.Error("no program works on these tables")
	}
}

func set(words []string) map[string]bool {
	all := map[string]bool{}
	for _, word := range words {
		all[word] = true
	}
	return all
}

// emptyDatabase is a fixture without tables, and so without a store or an audit at its end. Its clock stands after whatever is in
// testdata/upgrade.
func emptyDatabase(t *testing.T) *fixture {
	t.Helper()
	return &fixture{t: t, url: clustertest.Database(t), clock: clocktesting.NewFakePassiveClock(lt.Start.Add(30 * time.Hour))}
}

// tellPlainStory writes what version first has tables for.
func (f *fixture) tellPlainStory() {
	f.t.Helper()
	f.takeCharge()
	f.do(lt.Account("org", "", 0), lt.Account("team", "org", 5*ledger.Credit), lt.Account("other", "org", 50*ledger.Credit), lt.Rate(),
		lt.Grant("team", "team", 10_000), lt.Grant("other", "other", 100))
	f.do(lt.Hold("settled", "team", 4, 600), lt.Allocate("settled-1", "settled", "team", 4), lt.Bound("settled-1"))
	f.do(lt.Interval("settled-1", 0, 0, 60.5, "GPU-a", "GPU-b"), lt.Interval("settled-1", 0, 60.5, 120, "GPU-a", "GPU-b"))
	f.do(lt.End("settled-1", 0, 420), lt.Close("settled"))
	f.do(lt.Hold("overrun", "other", 1, 90), lt.Allocate("overrun-1", "overrun", "other", 1), lt.Bound("overrun-1"), lt.Interval("overrun-1", 0, 0, 170, "GPU-c"))
	f.do(lt.Hold("held", "team", 1, 50), lt.Hold("released", "team", 1, 50),
		ledger.CloseReservation{Key: "close:released", UID: "released", Outcome: ledger.Released, Reason: "deleted"})
}

// tellStoryOfTheRules writes what version rules brought.
func (f *fixture) tellStoryOfTheRules() {
	f.t.Helper()
	f.do(ledger.SetAccount{Key: "kid", Account: "kid", Parent: "team", Policy: ledger.Policy{
		Funding: ledger.FundingAncestor, Refunds: ledger.RefundPolicy{FailedPercent: 50}}},
		ledger.SetAccount{Key: "refilled", Account: "refilled", Parent: "org", Policy: ledger.Policy{
			Refill:   ledger.Refill{Amount: 10 * ledger.Credit, PeriodSeconds: 3600, Cap: 100 * ledger.Credit},
			Spending: ledger.SpendingLimit{Amount: 1_000 * ledger.Credit, Period: ledger.PeriodDay}}},
		ledger.PostGrant{Key: "grant:lot", Account: "team", Amount: 500 * ledger.Credit, ExpiresAt: f.clock.Now().Add(2 * time.Hour), Reason: "soon over"})
	f.do(lt.Hold("kid-job", "kid", 1, 300), lt.Allocate("kid-1", "kid-job", "kid", 1), lt.Bound("kid-1"), lt.Interval("kid-1", 0, 0, 100, "GPU-k"), lt.End("kid-1", 0, 120),
		ledger.Refund{Key: "refund:kid-1", PodUID: "kid-1", Cause: ledger.RefundFailed, Reason: "failed"},
		ledger.Transfer{Key: "transfer:1", From: "team", To: "other", Amount: 100 * ledger.Credit, Reason: "lent", Actor: "test"},
		ledger.Adjust{Key: "adjust:1", Account: "other", Amount: -3 * ledger.Credit, Reason: "typing error", Actor: "test"},
		ledger.FreezeAccount{Key: "freeze:kid", Account: "kid", Reason: "audit"})
	f.clock.SetTime(f.clock.Now().Add(3 * time.Hour))
	f.do(ledger.PostDue{Key: "due", Account: "team"}, ledger.PostDue{Key: "due2", Account: "refilled"})
	if _, err := f.store.Seal(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// picture is what the ledger says, as text: all that people and parts can read of it.
func (f *fixture) picture() map[string][]string {
	f.t.Helper()
	return map[string][]string{
		"accounts": f.rows(`SELECT name, parent, policy::jsonb, frozen, balance, reserved, held, charged, running, subtree_balance, subtree_reserved, subtree_held,
			subtree_running, subtree_overspent FROM account ORDER BY name`),
		"entries": f.rows(`SELECT id, kind, event_key, debit, credit, spender, amount, reservation, allocation, corrects, draws, occurred_at, recorded_at, reason, actor
			FROM entry ORDER BY id`),
		"reservations": f.rows("SELECT uid, account, payer, class, rate_version, rate, gpu_seconds, amount, takes, charged, state, reason, created_at, closed_at FROM reservation ORDER BY uid"),
		"allocations":  f.rows("SELECT pod_uid, reservation, node, gpus, gpu_uuids, state, started_at, ended_at, charged, refunded, refunded_for FROM allocation ORDER BY pod_uid"),
		"intervals":    f.rows("SELECT pod_uid, started_at, ended_at, source, charge FROM metered_interval ORDER BY 1, 2"),
		"lots":         f.rows("SELECT key, account, amount, free, held, expired, expires_at FROM lot ORDER BY key"),
		"spending":     f.rows("SELECT account, day, amount FROM spending ORDER BY 1, 2"),
		"commands":     f.rows("SELECT key, content_hash, verdict FROM command ORDER BY key"),
		"rates":        f.rows("SELECT class, version, rate, set_at FROM rate ORDER BY 1, 2"),
	}
}

// rows are the rows of a query, each as text.
func (f *fixture) rows(statement string) []string {
	f.t.Helper()
	return queryAs(f.t, f, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return fmt.Sprint(values), err
	}, statement)
}

// migrateTo is another program's doing: the fixture's store is closed before, since no part works meanwhile.
func (f *fixture) migrateTo(version int64) {
	f.t.Helper()
	if f.store != nil {
		f.store.Close()
	}
	if err := postgres.MigrateTo(f.t.Context(), f.url, version); err != nil {
		f.t.Fatalf("migrate to version %d: %v", version, err)
	}
}

// upToDate migrates as programs do, and opens the store again.
func (f *fixture) upToDate() {
	f.t.Helper()
	if err := postgres.Migrate(f.t.Context(), f.url); err != nil {
		f.t.Fatal(err)
	}
	f.store = f.open(postgres.Options{Clock: f.clock})
}

// load executes a file of inserts as the administrator, past triggers: the rows are what they are.
func (f *fixture) load(file string) {
	f.t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx := f.t.Context()
	conn, err := pgx.Connect(ctx, clustertest.Postgres(f.t).AdminURL(databaseName(f.t, f.url)))
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close(ctx)
	// What migrations filled in for the empty tables is in the file, too.
	for _, table := range f.tables() {
		if table != "goose_db_version" {
			content = append([]byte("DELETE FROM "+table+";\n"), content...)
		}
	}
	if _, err := conn.Exec(ctx, "SET session_replication_role = replica;\n"+string(content)); err != nil {
		f.t.Fatalf("load %s: %v", file, err)
	}
}

// prepareAll makes PostgreSQL look up everything that statements name.
func (f *fixture) prepareAll(statements map[string]string) {
	f.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close(ctx)
	for name, statement := range statements {
		if _, err := conn.Prepare(ctx, name, statement); err != nil {
			f.t.Errorf("statement %s of the program of version %d: %v", name, postgres.OldestProgram, err)
		}
	}
}
