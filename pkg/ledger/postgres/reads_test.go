package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// A quote answers as the hold would, and writes nothing.
func TestQuoteWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 100)
	count := func() string {
		return fmt.Sprint(queryAs(t, f, pgx.RowTo[int64], "SELECT count(*) FROM reservation UNION ALL SELECT count(*) FROM command UNION ALL SELECT sum(revision)::bigint FROM account"))
	}
	before := count()
	for seconds, want := range map[int64]bool{100: true, 101: false} {
		hold := lt.Hold(fmt.Sprint(seconds), "team", 1, seconds)
		quoted, err := f.store.Quote(t.Context(), hold)
		if err != nil || (quoted.Refusal == nil) != want {
			t.Errorf("quote of %d: %+v, %v", seconds, quoted.Refusal, err)
		}
	}
	if after := count(); after != before {
		t.Errorf("rows before %s, after %s", before, after)
	}
	quoted, _ := f.store.Quote(t.Context(), lt.Hold("101", "team", 1, 101))
	refusal := f.refused(lt.Hold("101", "team", 1, 101), ledger.InsufficientCredits)
	if *quoted.Refusal != *refusal {
		t.Errorf("quoted %+v, then %+v", quoted.Refusal, refusal)
	}
}

// Several processes may migrate at once, and again.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	address := clustertest.Database(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := postgres.Migrate(t.Context(), address); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := postgres.Migrate(t.Context(), address); err != nil {
		t.Error(err)
	}
}

// L28: the time of receipt is the ledger's, whatever the node's clock says.
func TestReceiptTimeIsStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 100)
	f.do(lt.Hold("job", "team", 1, 50), lt.Allocate("pod", "job", "team", 1))
	f.clock.SetTime(lt.At(40))
	f.refused(lt.Interval("pod", 0, 0, 71), ledger.InTheFuture)
	f.do(lt.Interval("pod", 0, 0, 69))
	received := queryAs(t, f, pgx.RowTo[time.Time], "SELECT received_at FROM metered_interval")
	if len(received) != 1 || !received[0].Equal(lt.At(40)) {
		t.Errorf("received at %v", received)
	}
	f.clock.SetTime(lt.At(41)) // and the refusal was not remembered
	f.refused(lt.Interval("pod", 0, 0, 71), ledger.Conflict)
}

// A caller whose context has ended gets an error at once, and nothing is executed for it.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.store.Submit(ctx, lt.Account("team", "", 0))
	var unavailable *postgres.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, found, err := f.store.Account(t.Context(), "team"); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// Malformed texts are refused without reaching the database, and without harm to their neighbours.
func TestMalformedTexts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	verdicts, err := f.store.SubmitAll(t.Context(), []ledger.Command{
		lt.Account("team", "", 0),
		lt.Account("Team", "", 0),
		lt.Account("system:issuance", "", 0),
		ledger.SetRate{Key: "nul\x00", Class: lt.Class, Rate: 1},
		ledger.SetRate{Key: "bad\xff", Class: lt.Class, Rate: 1},
		ledger.SetRate{Key: "", Class: lt.Class, Rate: 1},
		lt.Interval("pod\x00", 0, 0, 1),
		lt.Interval("pod", 0, 0, 1, "GPU\x1f1"),
		lt.Rate(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range verdicts {
		if wellFormed := i == 0 || i == len(verdicts)-1; wellFormed != (v.Refusal == nil) || !wellFormed && v.Refusal.Code != ledger.Invalid {
			t.Errorf("command %d: %+v", i, v.Refusal)
		}
	}
}

func TestSizeCountsWhatIsAudited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 100)
	f.do(lt.Account("other", "", 0), lt.Hold("job", "team", 1, 50), lt.Hold("next", "team", 1, 5), lt.Allocate("pod", "job", "team", 1),
		lt.Interval("pod", 0, 0, 5), lt.Interval("pod", 0, 5, 9))
	want := ledger.Size{Accounts: 2, Reservations: 2, Allocations: 1, Intervals: 2, Entries: 3}
	if got, err := f.store.Size(t.Context()); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
