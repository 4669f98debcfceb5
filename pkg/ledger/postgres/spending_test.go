package postgres_test

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// limited is a command that gives an account below parent a limit per day.
func limited(key, account, parent string, amount int64) ledger.SetAccount {
	c := lt.Account(account, parent, 0)
	c.Key = key
	c.Policy.Spending = ledger.SpendingLimit{Amount: ledger.Microcredits(amount) * ledger.Credit, Period: ledger.PeriodDay}
	return c
}

// spend runs a workload of so many seconds from its hold to its end.
func (f *fixture) spend(name, account string, seconds float64) {
	f.t.Helper()
	f.do(lt.Hold(name, account, 1, int64(seconds)), lt.Allocate(name, name, account, 1), lt.End(name, 0, seconds), lt.Close(name))
}

// spent asserts what an account's subtree spent in its current period.
func (f *fixture) spent(account string, credits int64) {
	f.t.Helper()
	a, _, err := f.store.Account(f.t.Context(), account)
	if err != nil || a.SubtreeSpent != ledger.Microcredits(credits)*ledger.Credit {
		f.t.Errorf("account %s spent %d microcredits since %s, want %d credits (%v)", account, a.SubtreeSpent, a.SpentSince, credits, err)
	}
}

// What is spent on the first busy day after an idle one counts on that day.
func TestSpendingAfterAnIdleDay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(limited("limit", "team", "", 100), lt.Rate(), lt.Grant("g", "team", 1_000))
	f.clock.SetTime(f.clock.Now().AddDate(0, 0, 3))
	f.spend("one", "team", 60)
	f.do(ledger.PostDue{Key: "touch", Account: "team"})
	f.spent("team", 60)
	f.refused(lt.Hold("two", "team", 1, 60), ledger.SpendingLimited)
}

// Two writers whose clocks are on different days: whatever is recorded counts in the period that it is recorded in, and
// a period that a fast clock has begun does not end.
func TestSpendingWithClocksApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(limited("limit", "org", "", 1_000), lt.Account("a", "org", 0), lt.Account("b", "org", 0), lt.Rate(),
		lt.Grant("a", "a", 1_000), lt.Grant("b", "b", 1_000))
	today := f.clock.Now()
	f.clock.SetTime(today.AddDate(0, 0, 1))
	f.spend("fast", "a", 60) // org is in tomorrow now
	f.clock.SetTime(today)
	f.spend("slow", "b", 30)
	f.spent("org", 90)
	f.do(limited("other", "b", "org", 500)) // a limit that is set by the slow clock counts what is recorded as tomorrow
	f.spent("b", 30)
	f.clock.SetTime(today.AddDate(0, 0, 1))
	f.spend("later", "b", 20)
	f.spent("org", 110)
	f.spent("b", 50)
	f.do(limited("away", "b", "", 500))
	f.spent("org", 60)
}

// One commit that changes an account twice counts its spending once.
func TestSpendingOfAnAccountChangedTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	f.spend("one", "team", 60)
	f.do(limited("first", "team", "", 100), limited("second", "team", "", 200))
	f.spent("team", 60)
	// An account that is new in the batch counts what came below it before it got its limit.
	f.do(lt.Account("org", "", 0), limited("moved", "team", "org", 200), limited("limit", "org", "", 300))
	f.spent("org", 60)
}
