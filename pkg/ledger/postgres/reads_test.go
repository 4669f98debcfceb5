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

// L35: entries with equal times, over several pages: none skipped, none repeated, and the statement adds up; so do
// the statements of any two parts of a period.
func TestStatementOfManyEqualTimes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	f.do(lt.Hold("job", "team", 1, 5_000), lt.Allocate("pod", "job", "team", 1))
	const grants, charges = 1_200, 1_300
	for half := range 2 {
		f.clock.SetTime(lt.At(float64(90_000 + 1_000*half)))
		var batch []ledger.Command
		for i := half; i < grants; i += 2 {
			batch = append(batch, lt.Grant(fmt.Sprint(i), "team", 1))
		}
		for i := half; i < charges; i += 2 {
			batch = append(batch, lt.Interval("pod", 0, float64(i), float64(i+1)))
		}
		f.do(batch...)
	}
	read := func(from, to float64) ledger.Statement {
		statement, err := f.store.Statement(t.Context(), "team", lt.At(from), lt.At(to))
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[int64]bool)
		balance := statement.Opening
		for i, l := range statement.Lines {
			balance += l.Amount
			if seen[l.EntryID] || l.Balance != balance || i > 0 && statement.Lines[i-1].RecordedAt.After(l.RecordedAt) {
				t.Fatalf("line %d: %+v", i, l)
			}
			seen[l.EntryID] = true
		}
		if balance != statement.Closing {
			t.Errorf("opening and lines add up to %d, closing is %d", balance, statement.Closing)
		}
		return statement
	}
	whole := read(0, 100_000)
	if len(whole.Lines) != 1+grants+charges || whole.Opening != 0 || whole.Closing != (10_000+grants-charges)*ledger.Credit {
		t.Errorf("%d lines, from %d to %d", len(whole.Lines), whole.Opening, whole.Closing)
	}
	first, second := read(0, 91_000), read(91_000, 100_000)
	if first.Closing != second.Opening || len(first.Lines)+len(second.Lines) != len(whole.Lines) || second.Closing != whole.Closing {
		t.Error("two statements of a period do not make the statement of the whole")
	}
	if w := second.Workloads[0]; w.ChargedInPeriod != charges/2*ledger.Credit || w.Charged != charges*ledger.Credit {
		t.Errorf("workload of the second part: %+v", w)
	}
	empty, err := f.store.Statement(t.Context(), "nobody", lt.At(0), lt.At(1))
	if err != nil || empty.Closing != 0 || len(empty.Lines) != 0 {
		t.Errorf("statement of nobody: %+v, %v", empty, err)
	}
}

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
