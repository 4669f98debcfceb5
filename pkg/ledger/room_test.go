package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// What Rooms says is left is exactly what a hold may take: the same amount is granted, a microcredit more is refused by
// one of the accounts with the least.
func TestRoomsAreWhatHoldsMayTake(t *testing.T) {
	t.Parallel()
	tried := 0
	for seed := range 300 {
		m := lt.NewMemory()
		var now time.Time
		for _, batch := range lt.History("").Example(seed) {
			now = batch.Now
			m.Decide(now, batch.Commands...)
		}
		// Some accounts draw on the one above, some have a limit.
		funding := ledger.Policy{Funding: ledger.FundingAncestor, Spending: ledger.SpendingLimit{Amount: 900 * ledger.Credit, Period: ledger.PeriodMonth}}
		for i := range 3 {
			name := fmt.Sprintf("a%d", i)
			row := m.State.Accounts.Get(name)
			if row == nil || (seed+i)%2 == 0 {
				continue
			}
			m.Decide(now, ledger.SetAccount{Key: "funding" + name, Account: name, Parent: row.Parent, Policy: funding})
		}
		m.Decide(now, ledger.SetRate{Key: "cheap", Class: "cheap", Rate: 1})
		for i := range 3 {
			var path []ledger.Account
			for row := m.State.Accounts.Get(fmt.Sprintf("a%d", i)); row != nil; row = m.State.Accounts.Get(row.Parent) {
				path = append(path, *row)
			}
			if len(path) == 0 {
				continue
			}
			rooms := ledger.Rooms(path, now)
			least, payers := ledger.MaxAmount, 0
			for _, room := range rooms {
				if room.Credits != nil {
					least = min(least, *room.Credits)
				}
				if room.Spending != nil {
					least = min(least, *room.Spending)
				}
				if room.Pays {
					payers++
				}
			}
			hold := func(amount ledger.Microcredits) ledger.Verdict {
				uid := fmt.Sprintf("%s-%d", path[0].Name, amount)
				return m.Decide(now, ledger.PlaceHold{Key: uid, UID: uid, Account: path[0].Name, Class: "cheap", MaxGPUs: 1, GPUSeconds: int64(amount),
					Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: "j"}})[0]
			}
			if path[0].Frozen != "" || slices.ContainsFunc(rooms, func(r ledger.Room) bool { return r.Pays && r.Frozen != "" }) {
				if v := hold(1); v.Refusal == nil || v.Refusal.Code != ledger.AccountFrozen {
					t.Errorf("seed %d, %s: frozen, and 1 is answered with %+v", seed, path[0].Name, v.Refusal)
				}
				continue
			}
			if payers != 1 || least < 1 {
				continue
			}
			tried++
			if v := hold(least + 1); v.Refusal == nil || v.Refusal.Available != least {
				t.Errorf("seed %d, %s: %d is left, and %d is answered with %+v", seed, path[0].Name, least, least+1, v.Refusal)
			}
			if v := hold(least); v.Refusal != nil {
				t.Errorf("seed %d, %s: %d is left, and refused: %v", seed, path[0].Name, least, v.Refusal)
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d holds were tried", tried)
	}
}

func TestRoomsOfPeriodsAndJobs(t *testing.T) {
	t.Parallel()
	account := ledger.Account{
		Name: "team", SubtreeSpent: 70, SubtreeHeld: 5, SpentSince: ledger.PeriodDay.Start(lt.At(0)), SubtreeRunning: 3, Frozen: "why",
		Policy: ledger.Policy{Spending: ledger.SpendingLimit{Amount: 100, Period: ledger.PeriodDay}, RunningJobs: 2},
	}
	today, tomorrow := ledger.Rooms([]ledger.Account{account}, lt.At(0))[0], ledger.Rooms([]ledger.Account{account}, lt.At(86_400))[0]
	if *today.Spending != 25 || *tomorrow.Spending != 95 || !tomorrow.SpendingUntil.Equal(today.SpendingUntil.AddDate(0, 0, 1)) {
		t.Errorf("today %+v, tomorrow %+v", today, tomorrow)
	}
	if *today.RunningJobs != -1 || today.Frozen != "why" || !today.Pays {
		t.Errorf("%+v", today)
	}
}
