package ledger_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest/slow"
)

// Decide and the slow ledger are given the same random histories. Every answer is the same, and after every batch so is every
// row: accounts, lots, reservations, allocations, intervals, entries, discrepancies.
func TestDecideAgainstTheSlowLedger(t *testing.T) {
	t.Parallel()
	t.Run("everyday amounts", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) { compareWithSlow(t, ledgertest.History("x-").Draw(t, "history")) })
	})
	t.Run("vast amounts", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) { compareWithSlow(t, ledgertest.VastHistory("x-").Draw(t, "history")) })
	})
}

func compareWithSlow(t rapid.TB, history []ledgertest.Batch) {
	fast := newMemory()
	plain := slow.New(fast.State.LeaderEpochs, fast.State.NodeEpochs)
	for n, batch := range history {
		want, got := plain.Decide(batch.Now, batch.Commands...), fast.Decide(batch.Now, batch.Commands...)
		for i := range want {
			if diff := cmp.Diff(want[i], slow.Answer(got[i])); diff != "" {
				t.Fatalf("batch %d at %s, %#v: slow - Decide +: %s", n, batch.Now, batch.Commands[i], diff)
			}
		}
		if diff := cmp.Diff(plain.Rows(), rowsOf(fast)); diff != "" {
			t.Fatalf("after batch %d at %s, %#v: slow - Decide +: %s", n, batch.Now, batch.Commands, diff)
		}
	}
	if found := fast.Audit(); len(found) > 0 {
		t.Fatalf("%v", found)
	}
}

func rowsOf(m *ledgertest.Memory) slow.Rows {
	rows := slow.NewRows()
	eachRow(&m.State.Accounts, rows.AddAccount)
	eachRow(&m.State.Lots, rows.AddLot)
	eachRow(&m.State.Reservations, rows.AddReservation)
	eachRow(&m.State.Allocations, rows.AddAllocation)
	eachRow(&m.State.Devices, rows.AddDevice)
	for pod := range rows.Allocations {
		for _, interval := range m.State.Intervals(pod) {
			rows.AddInterval(interval)
		}
	}
	for _, e := range m.Entries {
		rows.AddEntry(e)
	}
	for _, d := range m.Found {
		rows.AddDiscrepancy(d)
	}
	return rows
}

func eachRow[T any](table *ledger.Table[T], visit func(T)) {
	table.All(func(_ string, row *T) { visit(*row) })
}
