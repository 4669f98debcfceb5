package ledgertest

import (
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Memory is a ledger without a database: Decide over a state that is kept whole. It also keeps what a database would.
type Memory struct {
	State   ledger.State
	Entries []ledger.Entry
	Found   []ledger.Discrepancy
}

// NewMemory is an empty ledger in which leader and node agent epoch 1 are current.
func NewMemory() *Memory {
	return &Memory{State: ledger.State{
		LeaderEpochs: map[string]int64{Leader: 1},
		NodeEpochs:   map[string]int64{Node: 1},
	}}
}

// Decide decides commands as one batch.
func (m *Memory) Decide(now time.Time, commands ...ledger.Command) []ledger.Verdict {
	m.State.Uses = m.uses()
	m.loadSpending(now, commands)
	m.loadCorrections()
	out := ledger.Decide(&m.State, now, commands)
	for _, e := range out.Entries {
		e.ID = int64(len(m.Entries)) + 1
		m.Entries = append(m.Entries, e)
	}
	m.Found = append(m.Found, out.Discrepancies...)
	for _, closed := range out.Resolutions {
		for i := range m.Found {
			if m.Found[i].Key == closed.Key {
				m.Found[i] = closed
			}
		}
	}
	return out.Verdicts
}

// loadSpending tells the state what the subtrees have spent whose account changes.
func (m *Memory) loadSpending(now time.Time, commands []ledger.Command) {
	for _, command := range commands {
		c, ok := command.(ledger.SetAccount)
		if !ok {
			continue
		}
		days := make(ledger.SubtreeSpending)
		for _, e := range m.Entries {
			if e.Spender != "" && m.State.Accounts.Get(e.Spender) != nil && m.isBelow(e.Spender, c.Account) {
				days[ledger.PeriodDay.Start(e.RecordedAt)] += spent(e)
			}
		}
		m.State.LoadSpending(c.Account, days)
	}
}

// spent is what an entry adds to its spender's spending.
func spent(e ledger.Entry) ledger.Microcredits {
	switch e.Kind {
	case ledger.EntryCharge:
		return e.Amount
	case ledger.EntryRefund:
		return -e.Amount
	}
	return 0
}

func (m *Memory) loadCorrections() {
	m.State.Entries, m.State.Discrepancies = make(map[int64]ledger.Entry), make(map[string]ledger.Discrepancy)
	for _, e := range m.Entries {
		m.State.Entries[e.ID] = e
	}
	for _, d := range m.Found {
		m.State.Discrepancies[d.Key] = d
	}
}

func (m *Memory) uses() map[string]ledger.AccountUse {
	uses := make(map[string]ledger.AccountUse)
	change := func(account string, note func(*ledger.AccountUse)) {
		use := uses[account]
		note(&use)
		uses[account] = use
	}
	m.State.Accounts.All(func(_ string, a *ledger.Account) {
		change(a.Parent, func(use *ledger.AccountUse) { use.Children++ })
	})
	m.State.Reservations.All(func(_ string, r *ledger.Reservation) {
		change(r.Account, func(use *ledger.AccountUse) { use.Reservations = true })
		change(r.Payer, func(use *ledger.AccountUse) { use.Reservations = true })
	})
	for _, e := range m.Entries {
		change(e.Debit, func(use *ledger.AccountUse) { use.Entries = true })
		change(e.Credit, func(use *ledger.AccountUse) { use.Entries = true })
		change(e.Spender, func(use *ledger.AccountUse) { use.Entries = true })
	}
	return uses
}

// Do implements Ledger.
func (m *Memory) Do(_ *testing.T, now time.Time, commands []ledger.Command) []ledger.Verdict {
	return m.Decide(now, commands...)
}

// SetEpoch implements Ledger.
func (m *Memory) SetEpoch(t *testing.T, kind, name string, epoch int64) {
	switch kind {
	case "leader":
		m.State.LeaderEpochs[name] = epoch
	case "agent":
		m.State.NodeEpochs[name] = epoch
	default:
		t.Fatalf("unknown kind of epoch %s", kind)
	}
}

// Account implements Ledger.
func (m *Memory) Account(_ *testing.T, name string) *ledger.Account {
	return m.State.Accounts.Get(name)
}

// Reservation implements Ledger.
func (m *Memory) Reservation(_ *testing.T, uid string) *ledger.Reservation {
	return m.State.Reservations.Get(uid)
}

// Allocation implements Ledger.
func (m *Memory) Allocation(_ *testing.T, podUID string) *ledger.Allocation {
	return m.State.Allocations.Get(podUID)
}

// Intervals implements Ledger.
func (m *Memory) Intervals(_ *testing.T, podUID string) []ledger.Interval {
	return m.State.Intervals(podUID)
}

// Discrepancies implements Ledger.
func (m *Memory) Discrepancies(*testing.T) []ledger.Discrepancy { return m.Found }

// LotsOf implements Ledger.
func (m *Memory) LotsOf(_ *testing.T, account string) (lots []ledger.Lot) {
	m.State.Lots.All(func(_ string, lot *ledger.Lot) {
		if lot.Account == account {
			lots = append(lots, *lot)
		}
	})
	return lots
}

// EntriesOf implements Ledger.
func (m *Memory) EntriesOf(_ *testing.T, account string) (entries []ledger.Entry) {
	for _, e := range m.Entries {
		if e.Debit == account || e.Credit == account || e.Spender == account {
			entries = append(entries, e)
		}
	}
	return entries
}

// Knows reports whether a command under this key was remembered.
func (m *Memory) Knows(key string) bool { return m.State.Remembers(key) }
