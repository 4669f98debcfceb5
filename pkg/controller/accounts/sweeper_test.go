package accounts

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func TestPlanSweep(t *testing.T) {
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	row := func(name string, due time.Time) ledger.Account { return ledger.Account{Name: name, DueAt: due} }
	for name, c := range map[string]struct {
		rows    []ledger.Account
		touched map[string]time.Time
		due     map[string]time.Time
		pause   time.Duration
	}{
		"nothing is due":                 {due: map[string]time.Time{}, pause: time.Minute},
		"until the earliest":             {rows: []ledger.Account{row("a", at(7)), row("b", at(20))}, due: map[string]time.Time{}, pause: 7 * time.Second},
		"due now, and looked at once":    {rows: []ledger.Account{row("a", now), row("b", at(20))}, due: map[string]time.Time{"a": now}},
		"due for another time than then": {rows: []ledger.Account{row("a", at(-1))}, touched: map[string]time.Time{"a": at(-2)}, due: map[string]time.Time{"a": at(-1)}},
		"touched in vain": {
			rows: []ledger.Account{row("a", at(-1)), row("b", at(20))}, touched: map[string]time.Time{"a": at(-1)},
			due: map[string]time.Time{"a": at(-1)}, pause: 20 * time.Second,
		},
	} {
		due, pause := planSweep(now, c.rows, c.touched)
		if diff := cmp.Diff(c.due, due); diff != "" || pause != c.pause {
			t.Errorf("%s: pause %s, want %s; due -want +got\n%s", name, pause, c.pause, diff)
		}
	}
}

// watchedLedger is the store; it tells when it was asked what is due.
type watchedLedger struct {
	*postgres.Store
	asked chan struct{}
}

func (l watchedLedger) AccountsDue(ctx context.Context, until time.Time, limit int) ([]ledger.Account, error) {
	rows, err := l.Store.AccountsDue(ctx, until, limit)
	select {
	case l.asked <- struct{}{}:
	case <-ctx.Done():
	}
	return rows, err
}

// A lot expires, a refill and a spending period begin in their time, although nobody touches the accounts.
func TestSweeperPostsWhatFallsDue(t *testing.T) {
	t.Parallel()
	url := clustertest.Database(t)
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(now)
	store, err := postgres.Open(t.Context(), url, postgres.Options{Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	do := func(commands ...ledger.Command) {
		t.Helper()
		verdicts, err := store.SubmitAll(t.Context(), commands)
		if err != nil {
			t.Fatal(err)
		}
		for i, verdict := range verdicts {
			if verdict.Refusal != nil {
				t.Fatalf("%+v: %v", commands[i], verdict.Refusal)
			}
		}
	}
	balance := func(account string) ledger.Microcredits {
		t.Helper()
		row, _, err := store.Account(t.Context(), account)
		if err != nil {
			t.Fatal(err)
		}
		return row.Balance / ledger.Credit
	}
	do(
		ledger.SetAccount{Key: "1", Account: "expiring"},
		ledger.PostGrant{Key: "2", Account: "expiring", Amount: 100 * ledger.Credit, ExpiresAt: now.Add(90 * time.Second)},
		ledger.PostGrant{Key: "3", Account: "expiring", Amount: 5 * ledger.Credit},
		ledger.SetAccount{Key: "4", Account: "refilled", Policy: ledger.Policy{Refill: ledger.Refill{Amount: 10 * ledger.Credit, PeriodSeconds: 100, Cap: 25 * ledger.Credit}}},
	)
	watched := watchedLedger{store, make(chan struct{})}
	sweeper := NewSweeper(watched, clk, logr.Discard())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- sweeper.Start(ctx) }()
	// settle waits until the sweeper has found nothing more to do and waits for its clock.
	settle := func() {
		t.Helper()
		for {
			select {
			case <-watched.asked:
			case <-time.After(time.Minute):
				t.Fatal("the sweeper does not look")
			}
			rows, err := store.AccountsDue(t.Context(), clk.Now(), sweepLimit)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) == 0 {
				return
			}
		}
	}
	wake := func(after time.Duration) {
		clk.Step(after)
		sweeper.Wake() // whether or not it waits for its clock already
		settle()
	}
	settle()
	if e, r := balance("expiring"), balance("refilled"); e != 105 || r != 10 {
		t.Errorf("at first: %d and %d credits, want 105 and 10", e, r)
	}
	wake(89 * time.Second)
	if got := balance("expiring"); got != 105 {
		t.Errorf("a second before it expires: %d credits", got)
	}
	wake(time.Second)
	if got := balance("expiring"); got != 5 {
		t.Errorf("expired: %d credits, want 5", got)
	}
	wake(20 * time.Second)
	if got := balance("refilled"); got != 20 {
		t.Errorf("second period: %d credits, want 20", got)
	}
	wake(time.Hour)
	if got := balance("refilled"); got != 25 {
		t.Errorf("many periods later: %d credits, want the cap of 25", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
