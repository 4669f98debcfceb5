package postgres_test

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// pooled sends every store of a fixture by way of PgBouncer: go test ./pkg/ledger/postgres -pooled. See TestSuiteThroughPooler.
var pooled = flag.Bool("pooled", false, "stores reach PostgreSQL through a PgBouncer in transaction mode")

// fixture is a migrated database and a store on it, whose clock stands a day after ledgertest.Start.
type fixture struct {
	t     testing.TB
	url   string
	store *postgres.Store
	clock *clocktesting.FakePassiveClock
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, url: clustertest.Database(t), clock: clocktesting.NewFakePassiveClock(ledgertest.Start.Add(24 * time.Hour))}
	if err := postgres.Migrate(t.Context(), f.url); err != nil {
		t.Fatal(err)
	}
	f.store = f.open(postgres.Options{Clock: f.clock})
	// Every test ends in the same audit (STYLE 15).
	t.Cleanup(f.audit)
	return f
}

func (f *fixture) open(opts postgres.Options) *postgres.Store {
	f.t.Helper()
	address := f.url
	if *pooled {
		address = clustertest.Pooler(f.t, f.url).Through(f.url)
	}
	store, err := postgres.Open(f.t.Context(), address, opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(store.Close)
	return store
}

func (f *fixture) audit() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	violations, err := f.store.Audit(ctx)
	if err != nil {
		f.t.Error(err)
	}
	for _, v := range violations {
		f.t.Errorf("audit: %s", v)
	}
}

// do submits commands, all of which must succeed.
func (f *fixture) do(commands ...ledger.Command) []ledger.Verdict {
	f.t.Helper()
	verdicts, err := f.store.SubmitAll(f.t.Context(), commands)
	if err != nil {
		f.t.Fatal(err)
	}
	for i, v := range verdicts {
		if v.Refusal != nil {
			f.t.Fatalf("%s: %s", commands[i].CommandKey(), v.Refusal)
		}
	}
	return verdicts
}

// refused submits one command, which must be refused with code.
func (f *fixture) refused(command ledger.Command, code ledger.RefusalCode) *ledger.Refusal {
	f.t.Helper()
	v, err := f.store.Submit(f.t.Context(), command)
	if err != nil {
		f.t.Fatal(err)
	}
	if v.Refusal == nil || v.Refusal.Code != code {
		f.t.Fatalf("%s: want %s, got %+v", command.CommandKey(), code, v.Refusal)
	}
	return v.Refusal
}

// figures asserts an account's balance, reserved and charged credits.
func (f *fixture) figures(account string, balance, reserved, charged int64) {
	f.t.Helper()
	a, found, err := f.store.Account(f.t.Context(), account)
	if err != nil || !found {
		f.t.Fatalf("account %s: found %v, %v", account, found, err)
	}
	got := [3]ledger.Microcredits{a.Balance, a.Reserved, a.Charged}
	want := [3]ledger.Microcredits{
		ledger.Microcredits(balance) * ledger.Credit, ledger.Microcredits(reserved) * ledger.Credit, ledger.Microcredits(charged) * ledger.Credit,
	}
	if got != want {
		f.t.Fatalf("account %s: balance, reserved, charged are %v, want %v microcredits", account, got, want)
	}
}

// takeCharge makes leader and node agent epoch 1 current.
func (f *fixture) takeCharge() {
	f.t.Helper()
	if epoch, err := f.store.AcquireLeadership(f.t.Context(), ledgertest.Leader, "test"); err != nil || epoch != 1 {
		f.t.Fatalf("leadership epoch %d, %v", epoch, err)
	}
	if epoch, err := f.store.RegisterNodeAgent(f.t.Context(), ledgertest.Node, "test"); err != nil || epoch != 1 {
		f.t.Fatalf("node agent epoch %d, %v", epoch, err)
	}
}

// teamWith sets up an account with credits, the rate, and both epochs.
func (f *fixture) teamWith(account string, credits int64) {
	f.t.Helper()
	f.takeCharge()
	f.do(ledgertest.Account(account, "", 0), ledgertest.Rate(), ledgertest.Grant(account, account, credits))
}

// holdLock keeps a transaction open that has executed a statement, as another client of the database, until release.
func holdLock(t testing.TB, f *fixture, statement string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(tx.Rollback(t.Context()), conn.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// execute runs a statement past the store, as another client of the database.
func execute(t testing.TB, f *fixture, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func databaseName(t testing.TB, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(parsed.Path, "/")
}
