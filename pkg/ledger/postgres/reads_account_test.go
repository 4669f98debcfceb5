package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// What an account has and spent, as commands left it.
func TestReadsOfAnAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.clock.SetTime(lt.At(0))
	late, soon := lt.Grant("late", "team", 100), lt.Grant("soon", "team", 50)
	late.ExpiresAt, soon.ExpiresAt = lt.At(1e6), lt.At(500_000)
	f.do(lt.Account("lab", "", 0), lt.Account("team", "lab", 0), lt.Account("sub", "team", 0), lt.Rate(), late, soon,
		lt.Hold("job", "team", 1, 60), lt.Allocate("pod", "job", "team", 1))
	f.clock.SetTime(lt.At(10))
	f.do(lt.Interval("pod", 0, 0, 10))
	f.clock.SetTime(lt.At(86_400))
	f.do(lt.Interval("pod", 0, 10, 15))

	path, err := f.store.AccountPath(t.Context(), "sub")
	if err != nil || len(path) != 3 || path[0].Name != "sub" || path[1].Name != "team" || path[2].Name != "lab" || path[1].Balance != 135*ledger.Credit {
		t.Errorf("path: %+v, %v", path, err)
	}
	if path, err = f.store.AccountPath(t.Context(), "nobody"); err != nil || len(path) != 0 {
		t.Errorf("path of nobody: %+v, %v", path, err)
	}
	lots, err := f.store.Lots(t.Context(), "team")
	want := []ledger.Lot{
		{Key: "grant:grant:soon", Account: "team", Amount: 50 * ledger.Credit, Held: 35 * ledger.Credit, ExpiresAt: lt.At(500_000)},
		{Key: "grant:grant:late", Account: "team", Amount: 100 * ledger.Credit, Free: 90 * ledger.Credit, Held: 10 * ledger.Credit, ExpiresAt: lt.At(1e6)},
	}
	if diff := cmp.Diff(want, lots); err != nil || diff != "" {
		t.Errorf("%v, lots: -want +got\n%s", err, diff)
	}
	day := ledger.PeriodDay.Start(lt.At(0))
	spending, err := f.store.Spending(t.Context(), "team", day, day.AddDate(0, 0, 2))
	if diff := cmp.Diff([]ledger.DailySpending{{Account: "team", Day: day, Amount: 10 * ledger.Credit}, {Account: "team", Day: day.AddDate(0, 0, 1), Amount: 5 * ledger.Credit}},
		spending); err != nil || diff != "" {
		t.Errorf("%v, spending: -want +got\n%s", err, diff)
	}
	if spending, err = f.store.Spending(t.Context(), "team", day.AddDate(0, 0, 1), day.AddDate(0, 0, 2)); err != nil || len(spending) != 1 {
		t.Errorf("%v, spending of the second day: %+v", err, spending)
	}
}
