package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

func newMemory() *ledgertest.Memory {
	m := ledgertest.NewMemory()
	m.State.LeaderEpochs[ledgertest.LeaderOf("x-")] = 1
	for _, node := range ledgertest.NodesOf("x-") {
		m.State.NodeEpochs[node] = 1
	}
	return m
}

// Random histories: after every command the audits hold, what is final stays final, and repeating anything repeats the answer
// and changes nothing.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory()
		var done []ledger.Command
		for _, batch := range ledgertest.History("x-").Draw(t, "history") {
			for _, command := range batch.Commands {
				before := finals(m)
				m.Decide(batch.Now, command)
				for uid, state := range before {
					if got := m.State.Reservations.Get(uid).State; got != state {
						t.Fatalf("reservation %s went from %s to %s (I5)", uid, state, got)
					}
				}
				if found := m.Audit(); len(found) > 0 {
					t.Fatalf("after %#v: %v", command, found)
				}
				done = append(done, command)
			}
		}
		now := ledgertest.At(400)
		for _, command := range done {
			first := m.Decide(now, command)[0]
			state, entries := dump(m), len(m.Entries)
			again := m.Decide(now, command)[0]
			first.Replayed, again.Replayed = false, false
			if diff := cmp.Diff(withoutRevisions(first), withoutRevisions(again)); diff != "" {
				t.Fatalf("repeating %#v (I6): %s", command, diff)
			}
			if diff := cmp.Diff(state, dump(m)); diff != "" || len(m.Entries) != entries {
				t.Fatalf("repeating %#v changed the ledger (I6): %s", command, diff)
			}
		}
	})
}

// A batch is decided as its commands would be one by one: where batches are cut changes nothing.
func TestBatchesAreSequences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole, single := newMemory(), newMemory()
		for _, batch := range ledgertest.History("x-").Draw(t, "history") {
			together := whole.Decide(batch.Now, batch.Commands...)
			for i, command := range batch.Commands {
				alone := single.Decide(batch.Now, command)[0]
				if diff := cmp.Diff(withoutRevisions(alone), withoutRevisions(together[i])); diff != "" {
					t.Fatalf("%#v: alone - together +: %s", command, diff)
				}
			}
		}
		if diff := cmp.Diff(dump(single), dump(whole)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(single.Entries, whole.Entries); diff != "" {
			t.Fatal(diff)
		}
	})
}

func finals(m *ledgertest.Memory) map[string]ledger.ReservationState {
	closed := make(map[string]ledger.ReservationState)
	m.State.Reservations.All(func(uid string, r *ledger.Reservation) {
		if !r.Open() {
			closed[uid] = r.State
		}
	})
	return closed
}

// dump is everything that a repetition must leave alone.
func dump(m *ledgertest.Memory) map[string]string {
	all := make(map[string]string)
	m.State.Accounts.All(func(name string, a *ledger.Account) {
		row := *a
		row.Revision = 0
		all["account "+name] = fmt.Sprintf("%+v", row)
	})
	m.State.Reservations.All(func(uid string, r *ledger.Reservation) { all["reservation "+uid] = fmt.Sprintf("%+v", *r) })
	m.State.Allocations.All(func(pod string, a *ledger.Allocation) {
		all["allocation "+pod] = fmt.Sprintf("%+v %+v", *a, m.State.Intervals(pod))
	})
	m.State.Devices.All(func(key string, h *ledger.DeviceHold) { all["device "+key] = fmt.Sprintf("%+v", *h) })
	return all
}

// withoutRevisions leaves out what is settled at the end of a batch.
func withoutRevisions(v ledger.Verdict) ledger.Verdict {
	if v.Account != nil {
		account := *v.Account
		account.Revision, account.DueAt = 0, time.Time{}
		v.Account = &account
	}
	return v
}
