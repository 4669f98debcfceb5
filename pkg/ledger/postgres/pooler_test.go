package postgres_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// The tests that matter, again, with every store behind a PgBouncer in transaction mode: each commits its transactions in
// sessions that other clients have just used.
func TestSuiteThroughPooler(t *testing.T) {
	if *pooled {
		t.Skip("this is that suite")
	}
	clustertest.Pooler(t, clustertest.Database(t)) // skips where there is none
	suite := []string{
		"TestWorkedExample", "TestScenarios", "TestRandomHistories", "TestConcurrentHoldsNeverExceedTheBalance",
		"TestConcurrentRepetitions", "TestNoDeadlocks", "TestStaleLeader", "TestGPUChargedTwiceIsNoticedAcrossProcesses",
		"TestAccountsSinceSkipsNothing", "TestAccountsSinceShowsTheLastChange", "TestPostgresKilledUnderLoad", "TestPostgresAway",
		"TestLockHeldByAnotherClient", "TestQuoteWritesNothing", "TestMalformedTexts", "TestConstraintError",
		"TestSealAndVerify", "TestSealersRace", "TestStatementsOfATree", "TestStatementWhileOthersWrite", "TestRebuild",
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-pooled", "-test.v", "-test.run=^("+strings.Join(suite, "|")+")$")
	output, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, test := range suite {
		if !strings.Contains(string(output), "--- PASS: "+test+" ") {
			t.Errorf("%s did not run", test)
		}
	}
}

// Parts share a pooler's few sessions and leave nothing in them: no prepared statement, no setting, no lock. While they work, the
// pooler and the server die.
func TestTwoWritersThroughPooler(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pg := clustertest.OwnPostgres(t)
	address, err := pg.CreateDatabase(ctx, "pooled")
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(ctx, address); err != nil {
		t.Fatal(err)
	}
	roles := []string{cluster.WebhookRole, cluster.SchedulerRole, cluster.ControllerRole}
	addresses := []string{address}
	for _, role := range roles {
		addresses = append(addresses, pg.URLAs(role, "pooled"))
	}
	pooler := clustertest.Pooler(t, addresses...)
	if err := postgres.Migrate(ctx, pooler.Through(address)); err == nil || !strings.Contains(err.Error(), "PostgreSQL's own address") {
		t.Errorf("migrating through a pooler: %v", err)
	}
	f := &fixture{t: t, url: address}
	f.store = f.open(postgres.Options{})
	f.do(lt.Account("team", "", 0), lt.Rate(), lt.Grant("1", "team", 100_000))
	stores := map[string]*postgres.Store{}
	for _, role := range roles {
		if stores[role], err = postgres.Open(ctx, pooler.Through(pg.URLAs(role, "pooled")), postgres.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stores[role].Close)
	}
	epoch, err := stores[cluster.SchedulerRole].AcquireLeadership(ctx, lt.Leader, "test")
	if err != nil || epoch != 1 {
		t.Fatal(epoch, err)
	}

	const callers, each = 8, 40
	var done atomic.Int64
	var all sync.WaitGroup
	submit := func(role string, command ledger.Command) bool {
		v, err := stores[role].Submit(ctx, command)
		if err != nil || v.Refusal != nil {
			t.Errorf("%s as %s: %+v, %v", command.CommandKey(), role, v.Refusal, err)
			return false
		}
		return true
	}
	for n := range callers {
		all.Go(func() {
			for i := range each {
				name := fmt.Sprintf("%d-%d", n, i)
				if !submit(cluster.WebhookRole, lt.Hold(name, "team", 1, 1)) ||
					!submit(cluster.SchedulerRole, lt.Allocate("pod-"+name, name, "team", 1)) ||
					!submit(cluster.ControllerRole, lt.End("pod-"+name, 0, 1)) ||
					!submit(cluster.ControllerRole, lt.Close(name)) {
					return
				}
				done.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	for round, victim := range []*cluster.Process{pooler.Process, pg.Process} {
		waitFor(t, finished, func() bool { return done.Load() >= int64((round+1)*callers*each/4) })
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	<-finished
	f.figures("team", 100_000-callers*each, 0, callers*each)
	f.audit()

	for _, address := range addresses[1:] {
		noTraces(t, pooler.Through(address))
	}
}

// noTraces looks into every session that a user has behind a pooler.
func noTraces(t *testing.T, address string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	seen := map[uint32]bool{}
	for range 4 * cluster.PoolerSessions {
		var session uint32
		var prepared, locks int
		var changed []string
		err := conn.QueryRow(t.Context(), `SELECT pg_backend_pid(), (SELECT count(*) FROM pg_prepared_statements WHERE name <> ''),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
			ARRAY(SELECT name || ' = ' || setting FROM pg_settings WHERE source = 'session' ORDER BY name)`, pgx.QueryExecModeExec).
			Scan(&session, &prepared, &locks, &changed)
		if err != nil {
			t.Fatal(err)
		}
		seen[session] = true
		if prepared > 0 || locks > 0 {
			t.Errorf("session %d has %d prepared statements and %d advisory locks", session, prepared, locks)
		}
		for _, setting := range changed {
			// What a client says of itself when it connects; PgBouncer sets it anew for each.
			name, _, _ := strings.Cut(setting, " ")
			if name != "application_name" && name != "client_encoding" && name != "DateStyle" && name != "TimeZone" && name != "standard_conforming_strings" {
				t.Errorf("session %d was left with %s", session, setting)
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no session was seen")
	}
}
