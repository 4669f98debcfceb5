package postgres_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// Whatever people and auditors can ask of a ledger with random histories is answered byte by byte the same after everything in it was
// compacted and forgotten that may be: statements as CSV, JSON and text, whole and by pages, balances at many past moments,
// quotes, chains of hashes, audits, and what a rebuild finds.
func TestNothingThatIsReadChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	nothing := func(*rand.Rand, []ledger.Command, []ledger.Verdict) {}
	for seed := range 30 {
		historyBetween(t, f, conn, 2_000+seed, nothing)
	}
	f.clock.SetTime(lt.Start.Add(40 * 24 * time.Hour))
	f.settleDue()
	for more := true; more; {
		result, err := f.store.Seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		more = result.More
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	before := f.readings(rand.New(rand.NewPCG(seed, 0)))
	compacted := f.compactAll(f.store)
	commands, devices := f.forgetAll(f.store)
	if compacted.Intervals < 100 || commands < 200 || devices < 10 {
		t.Errorf("compacted %+v, forgot %d answers and %d GPU holds: too little to show anything", compacted, commands, devices)
	}
	after := f.readings(rand.New(rand.NewPCG(seed, 0)))
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// settleDue posts what has fallen due by now.
func (f *fixture) settleDue() {
	f.t.Helper()
	for _, name := range f.rows("SELECT name FROM account") {
		name = name[1 : len(name)-1]
		f.do(ledger.PostDue{Key: "settle", Account: name})
	}
}

// readings are everything that can be asked, by what was asked.
func (f *fixture) readings(random *rand.Rand) map[string]string {
	f.t.Helper()
	ctx := f.t.Context()
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	said := make(map[string]string)
	say := func(what string, values ...any) { said[what] = fmt.Sprintf("%+v", values) }
	zone, err := time.LoadLocation("Europe/Berlin")
	must(err)
	for _, name := range f.rows("SELECT name FROM account ORDER BY name") {
		name = name[1 : len(name)-1]
		from := lt.Start.Add(time.Duration(random.Int64N(int64(2 * time.Hour))))
		for period, bounds := range map[string][2]time.Time{
			"all": {lt.Start.Add(-time.Hour), lt.Start.Add(30 * 24 * time.Hour)}, "some": {from, from.Add(time.Duration(1 + random.Int64N(int64(24*time.Hour))))},
		} {
			asked := ledger.StatementQuery{Account: name, From: bounds[0], To: bounds[1]}
			var text, csv, json, page bytes.Buffer
			must(f.store.StreamStatement(ctx, asked, ledger.StatementText{Zone: zone}.Sink(&text)))
			must(f.store.StreamStatement(ctx, asked, ledger.CSVStatement(&csv)))
			must(f.store.StreamStatement(ctx, asked, ledger.JSONStatement(&json)))
			asked.Limit = 3
			must(f.store.StreamStatement(ctx, asked, ledger.JSONStatement(&page)))
			say("statement "+period+" of "+name, text.String(), csv.String(), json.String(), page.String())
		}
		for i := range 20 {
			balance, found, err := f.store.BalanceAt(ctx, name, lt.Start.Add(time.Duration(random.Int64N(int64(36*time.Hour)))))
			must(err)
			say(fmt.Sprintf("balance %d of %s", i, name), balance, found)
		}
		prefix := name[:len(name)-2]
		quote, err := f.store.Quote(ctx, ledger.PlaceHold{
			Key: "quote", UID: "quote", Account: name, Class: prefix + "c0", MaxGPUs: 1, GPUSeconds: 1 + random.Int64N(500),
			Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: "quote"}})
		must(err)
		quote.Account, quote.Reservation = nil, nil
		say("quote for "+name, quote.Refusal, quote.RateVersion)
	}
	chains, err := f.store.VerifyChains(ctx, nil)
	must(err)
	heads, err := f.store.ChainHeads(ctx)
	must(err)
	say("chains", chains, heads)
	found, err := f.store.Audit(ctx)
	must(err)
	say("audit", found)
	changed, err := f.store.Rebuild(ctx)
	must(err)
	say("rebuild", changed)
	discrepancies, err := f.store.Discrepancies(ctx)
	must(err)
	say("discrepancies", discrepancies)
	open, err := f.store.MeteredAllocations(ctx)
	must(err)
	say("open", open)
	for table, rows := range f.picture() {
		if table != "intervals" && table != "commands" {
			say("table "+table, rows)
		}
	}
	return said
}
