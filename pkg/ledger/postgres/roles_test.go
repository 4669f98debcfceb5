package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// writers are the parts that change the ledger.
var writers = []string{cluster.WebhookRole, cluster.SchedulerRole, cluster.ControllerRole}

// as is a store on the fixture's database with the rights of a part.
func (f *fixture) as(role string) *postgres.Store {
	f.t.Helper()
	store, err := postgres.Open(f.t.Context(), clustertest.URLAs(f.t, role, f.url), postgres.Options{Clock: f.clock})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(store.Close)
	return store
}

// connect is a connection of another client with the rights of a part.
func (f *fixture) connect(role string) *pgx.Conn {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), clustertest.URLAs(f.t, role, f.url))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close(f.t.Context()) })
	return conn
}

// roleFor is the part that submits a command.
func roleFor(command ledger.Command) string {
	switch command.(type) {
	case ledger.PlaceHold:
		return cluster.WebhookRole
	case ledger.Allocate, ledger.ConfirmBound, ledger.ReleaseAllocation:
		return cluster.SchedulerRole
	}
	return cluster.ControllerRole
}

// All scenarios again, each command from the part that submits it and with that part's rights alone. The audit at the end runs
// with the reader's.
func TestScenariosWithThePartsRights(t *testing.T) {
	t.Parallel()
	ledgertest.RunScenarios(t, "../testdata/scenarios", func(t *testing.T) ledgertest.Ledger {
		f := newFixture(t)
		l := &partsLedger{databaseLedger: databaseLedger{f}, stores: map[string]*postgres.Store{}}
		for _, role := range append(writers, cluster.ReaderRole) {
			l.stores[role] = f.as(role)
		}
		if _, err := l.stores[cluster.SchedulerRole].AcquireLeadership(t.Context(), lt.Leader, "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.stores[cluster.ControllerRole].RegisterNodeAgent(t.Context(), lt.Node, "test"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := l.stores[cluster.ControllerRole].Seal(context.Background()); err != nil {
				t.Error(err)
			}
			(&fixture{t: t, store: l.stores[cluster.ReaderRole]}).audit()
		})
		return l
	})
}

// partsLedger sends commands through the stores of their parts. A batch of several parts' commands is the controller's, who may
// do everything.
type partsLedger struct {
	databaseLedger
	stores map[string]*postgres.Store
}

func (l *partsLedger) Do(t *testing.T, now time.Time, commands []ledger.Command) []ledger.Verdict {
	l.clock.SetTime(now)
	role := roleFor(commands[0])
	for _, command := range commands {
		if roleFor(command) != role {
			role = cluster.ControllerRole
		}
	}
	verdicts, err := l.stores[role].SubmitAll(t.Context(), commands)
	if err != nil {
		t.Fatalf("as %s: %v", role, err)
	}
	return verdicts
}

// The reader reads every table and can write none, by any statement.
func TestReaderWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	conn := f.connect(cluster.ReaderRole)
	for _, table := range f.tables() {
		column := queryAs(t, f, pgx.RowTo[string],
			"SELECT attname::text FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum DESC LIMIT 1", table)[0]
		if _, err := conn.Exec(t.Context(), "SELECT FROM "+table); err != nil {
			t.Errorf("the reader cannot read %s: %v; grant it in roles/", table, err)
		}
		for _, statement := range []string{
			"INSERT INTO " + table + " DEFAULT VALUES",
			"UPDATE " + table + " SET " + column + " = " + column,
			"DELETE FROM " + table,
			"TRUNCATE " + table,
			"SELECT FROM " + table + " FOR KEY SHARE",
			"LOCK TABLE " + table + " IN ROW EXCLUSIVE MODE",
			"ALTER TABLE " + table + " DISABLE TRIGGER ALL",
			"DROP TABLE " + table,
			"COPY " + table + " FROM STDIN",
		} {
			f.denied(conn, statement)
		}
	}
	for _, statement := range []string{"CREATE TABLE own (n int)", "CREATE TEMPORARY TABLE own (n int)", "CREATE SCHEMA own", "CREATE FUNCTION own() RETURNS int LANGUAGE sql AS 'SELECT 1'"} {
		f.denied(conn, statement)
	}
	store := f.as(cluster.ReaderRole)
	if _, err := store.Submit(t.Context(), lt.Grant("more", "team", 1)); err == nil {
		t.Error("the reader granted credits")
	}
	if _, err := store.Statement(t.Context(), "team", lt.At(0), lt.At(1e6)); err != nil {
		t.Error(err)
	}
	f.figures("team", 1_000, 0, 0)
}

// No part changes what is written once, or gets around the triggers; none owns anything.
func TestWhatIsWrittenOnceStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	for _, role := range writers {
		conn := f.connect(role)
		for table, column := range map[string]string{"entry": "amount", "command": "verdict", "account_policy": "policy", "rate": "rate", "seal": "hash"} {
			for _, statement := range []string{
				"UPDATE " + table + " SET " + column + " = " + column,
				"DELETE FROM " + table,
				"TRUNCATE " + table + " CASCADE",
			} {
				f.denied(conn, statement)
			}
		}
		for _, table := range f.tables() {
			f.denied(conn, "ALTER TABLE "+table+" DISABLE TRIGGER ALL")
			f.denied(conn, "ALTER TABLE "+table+" DISABLE ROW LEVEL SECURITY")
			f.denied(conn, "TRUNCATE "+table+" CASCADE")
			f.denied(conn, "CREATE TRIGGER own BEFORE INSERT ON "+table+" FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()")
		}
		for _, statement := range []string{
			"SET session_replication_role = replica", "SET LOCAL session_replication_role = replica",
			"CREATE TEMPORARY TABLE entry (debit text, credit text, spender text)", // would be found before the real one
			"CREATE TABLE own (n int)", "CREATE SCHEMA own",
			"SET ROLE gpubank", "ALTER ROLE gpubank_reader SUPERUSER",
		} {
			f.denied(conn, statement)
		}
		if _, err := conn.Exec(t.Context(), "SET row_security = off; INSERT INTO entry (kind) VALUES ('Grant')"); err == nil {
			t.Errorf("%s switched row level security off", role)
		}
	}
	if owned := queryAs(t, f, pgx.RowTo[string], `SELECT format('%s owns %s', r.rolname, c.oid::regclass)
		FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE r.rolname LIKE 'gpubank\_%' OR r.rolname LIKE 'credit\_%'`); len(owned) > 0 {
		t.Error(owned)
	}
	if found := queryAs(t, f, pgx.RowTo[string], `SELECT p.oid::regprocedure::text FROM pg_proc p
		WHERE p.pronamespace = current_schema()::regnamespace AND p.prorettype = 'trigger'::regtype AND p.proname <> 'refuse_change'
		  AND NOT COALESCE(p.proconfig::text LIKE '%search_path=%', false)`); len(found) > 0 {
		t.Errorf("triggers look for tables where whoever fires them says: %v", found)
	}
	// A function that runs with its owner's rights would be a way around all of this, unless it is meant and safe.
	if found := queryAs(t, f, pgx.RowTo[string], `SELECT p.oid::regprocedure::text FROM pg_proc p
		WHERE p.pronamespace = current_schema()::regnamespace AND p.prosecdef
		  AND NOT COALESCE(p.proconfig::text LIKE '%search_path=%', false)`); len(found) > 0 {
		t.Errorf("functions run with their owner's rights and without a search_path of their own: %v", found)
	}
}

// Each part keeps to its business: what another part does is refused by the database, whatever program asks.
func TestPartsKeepToTheirBusiness(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	refill := ledger.Policy{Refill: ledger.Refill{Amount: 100 * ledger.Credit, PeriodSeconds: 3600, Cap: 1_000 * ledger.Credit}}
	f.do(ledger.SetAccount{Key: "team", Account: "team", Policy: refill}, lt.Account("other", "", 0), lt.Rate(), lt.Grant("team", "team", 10_000),
		ledger.PostGrant{Key: "grant:lot", Account: "team", Amount: 50 * ledger.Credit, ExpiresAt: f.clock.Now().Add(time.Hour), Reason: "test"})
	f.do(lt.Hold("job", "team", 1, 100), lt.Hold("idle", "team", 1, 100), lt.Allocate("pod", "job", "team", 1), lt.Bound("pod"), lt.Interval("pod", 0, 0, 10))
	begun := f.clock.Now().Truncate(time.Hour) // before the policy was set: this period is the first
	entry := func(kind, key, debit, credit string, amount int64, at time.Time) string {
		return fmt.Sprintf("INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('%s', '%s', '%s', '%s', %d, '%s', now(), '', '')",
			kind, key, debit, credit, amount, at.Format(time.RFC3339))
	}
	refillAt := func(account string, credits int64, at time.Time) string {
		return entry("Refill", fmt.Sprintf("refill:%s:%d", account, at.Unix()), "system:issuance", account, credits*int64(ledger.Credit), at)
	}
	both := []string{cluster.WebhookRole, cluster.SchedulerRole}
	for _, c := range []struct {
		roles     []string
		statement string
		touches   bool // it runs, and changes no row
	}{
		{both, "UPDATE account SET policy = '{}'", false},
		{both, "UPDATE account SET policy_version = 7", false},
		{both, "UPDATE account SET frozen = ''", false},
		{both, "UPDATE account SET parent = NULL", false},
		{both, "DELETE FROM account", false},
		{both, "INSERT INTO account (name, revision) VALUES ('mine', 1)", false},
		{both, "INSERT INTO rate SELECT class, version + 1, 1, set_at FROM rate", false},
		{both, "INSERT INTO account_policy SELECT account, version + 1, policy, set_at FROM account_policy", false},
		{both, "INSERT INTO spending SELECT account, day + interval '1 day', amount FROM spending", false},
		{both, "INSERT INTO metered_interval SELECT * FROM metered_interval", false},
		{both, "DELETE FROM metered_interval", false},
		{both, "INSERT INTO node_agent VALUES ('n', 1, '', now())", false},
		{both, "INSERT INTO lot VALUES ('x', 'team', 1, 1, 0, 0, now())", false},
		{both, "UPDATE lot SET account = 'other'", false},
		{both, "UPDATE discrepancy SET resolution = 'mine'", false},
		{both, "UPDATE ledger_schema SET version = 0", false},
		{both, entry("Grant", "mine", "system:issuance", "team", 1, begun), false},
		{both, entry("Transfer", "mine", "team", "other", 1, begun), false},
		{both, entry("Adjustment", "mine", "system:adjustments", "team", 1, begun), false},
		// Refills come from every part, but only those that the policy gives.
		{both, refillAt("team", 101, begun.Add(time.Hour)), false},
		{both, refillAt("other", 1, begun.Add(time.Hour)), false},
		{both, refillAt("team", 1, begun.Add(30*time.Minute)), false},
		{both, refillAt("team", 1, begun.Add(-24*time.Hour)), false},
		{both, refillAt("team", 1, time.Now().Truncate(time.Hour).Add(72*time.Hour)), false},
		{both, entry("Refill", "mine", "system:issuance", "team", 1, begun.Add(time.Hour)), false},
		{both, entry("Refill", fmt.Sprintf("refill:team:%d", begun.Add(time.Hour).Unix()), "other", "team", 1, begun.Add(time.Hour)), false},
		// So do expiries, of what lots have lost.
		{both, entry("Expiry", "expiry:grant:lot:0", "team", "system:expired", 1, f.clock.Now().Add(time.Hour)), false},
		{both, entry("Expiry", "expiry:none:0", "team", "system:expired", 1, begun), false},
		{both, "INSERT INTO reservation SELECT 'new', account, workload_kind, workload_namespace, workload_name, class, rate_version, rate, max_gpus, gpu_seconds, amount, " +
			"amount, 'Active', '', created_at, NULL, payer, policy_version, '' FROM reservation WHERE uid = 'job'", false},
		{both[:1], "UPDATE reservation SET state = 'Active'", false},
		{both[:1], "INSERT INTO allocation SELECT * FROM allocation", false},
		{both[:1], "UPDATE allocation SET state = 'Bound'", false},
		{both[:1], "INSERT INTO leadership VALUES ('gpubank-scheduler', 7, 'me', now()) ON CONFLICT (name) DO UPDATE SET epoch = 7", false},
		{both[1:], "UPDATE reservation SET state = 'Released', closed_at = now() WHERE uid = 'idle'", false},
		{both[1:], "UPDATE reservation SET charged = 1 WHERE uid = 'idle'", false},
		{both[1:], "UPDATE reservation SET charged = 0 WHERE uid = 'job'", true},
		{both[1:], "UPDATE allocation SET state = 'Ended', ended_at = now() WHERE pod_uid = 'pod'", true},
		{both[1:], "UPDATE allocation SET rate = 1 WHERE pod_uid = 'pod'", true},
	} {
		for _, role := range c.roles {
			conn := f.connect(role)
			tag, err := conn.Exec(t.Context(), c.statement)
			switch {
			case c.touches && (err != nil || tag.RowsAffected() != 0):
				t.Errorf("%s: %s\n  changed %d rows, %v", role, c.statement, tag.RowsAffected(), err)
			case !c.touches && code(err) != insufficientPrivilege:
				t.Errorf("%s: %s\n  want insufficient privilege, got %v", role, c.statement, err)
			}
			conn.Close(t.Context())
		}
	}
}

// Whoever touches an account posts what has fallen due on it, with any part's rights.
func TestDueEntriesFromEveryPart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(ledger.SetAccount{Key: "team", Account: "team", Policy: ledger.Policy{
		Refill: ledger.Refill{Amount: 100 * ledger.Credit, PeriodSeconds: 3600, Cap: 1_000 * ledger.Credit}}}, lt.Rate())
	balance := int64(100) // the period in which the policy was set
	for i, role := range writers {
		f.do(ledger.PostGrant{Key: "grant:" + role, Account: "team", Amount: 7 * ledger.Credit, ExpiresAt: f.clock.Now().Add(time.Hour), Reason: "test"})
		f.clock.SetTime(f.clock.Now().Add(2 * time.Hour))
		job := fmt.Sprintf("job-%d", i)
		commands := []ledger.Command{lt.Hold(job, "team", 1, 10)}
		if role == cluster.SchedulerRole {
			hold := lt.Hold(job, "team", 1, 10)
			allocate := lt.Allocate("pod", job, "team", 1)
			allocate.Hold = &hold
			commands = []ledger.Command{allocate, lt.Bound("pod")}
		}
		verdicts, err := f.as(role).SubmitAll(t.Context(), commands)
		if err != nil || verdicts[0].Refusal != nil {
			t.Fatalf("%s: %v, %v", role, err, verdicts)
		}
		balance += 200 // two periods; the lot's 7 credits came and went
		f.figures("team", balance, int64(i+1)*10, 0)
	}
	kinds := queryAs(t, f, pgx.RowTo[string], "SELECT kind || ' ' || count(*) FROM entry GROUP BY kind ORDER BY kind")
	if want := []string{"Expiry 3", "Grant 3", "Refill 7"}; !slices.Equal(kinds, want) {
		t.Errorf("entries: %v, want %v", kinds, want)
	}
}

// A command that the database refuses its part fails alone, and says what it was.
func TestForbiddenCommandFailsAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	store := f.as(cluster.WebhookRole)
	grant := store.Start(lt.Grant("mine", "team", 1_000))
	hold := store.Start(lt.Hold("job", "team", 1, 10))
	if _, err := grant.Wait(t.Context()); code(err) != insufficientPrivilege {
		t.Errorf("a grant from the webhook: %v", err)
	}
	if v, err := hold.Wait(t.Context()); err != nil || v.Refusal != nil {
		t.Errorf("a hold beside it: %+v, %v", v.Refusal, err)
	}
	f.figures("team", 1_000, 10, 0)
}

const insufficientPrivilege = "42501"

func code(err error) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return ""
	}
	return server.Code
}

// denied makes sure that a statement fails for want of rights, before anything else is looked at.
func (f *fixture) denied(conn *pgx.Conn, statement string) {
	f.t.Helper()
	tx, err := conn.Begin(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if strings.HasPrefix(statement, "COPY") {
		_, err = tx.Conn().PgConn().CopyFrom(f.t.Context(), strings.NewReader(""), statement)
	} else {
		_, err = tx.Exec(f.t.Context(), statement)
	}
	if code(err) != insufficientPrivilege {
		f.t.Errorf("%s: %s\n  want insufficient privilege, got %v", conn.Config().User, statement, err)
	}
	if err := tx.Rollback(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// tables are the names of the ledger's tables.
func (f *fixture) tables() []string {
	f.t.Helper()
	return queryAs(f.t.(*testing.T), f, pgx.RowTo[string],
		"SELECT oid::regclass::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1")
}
