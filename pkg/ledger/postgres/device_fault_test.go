package postgres_test

import (
	"slices"
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

func TestDeviceFaults(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	epoch, err := f.store.RegisterNodeAgent(ctx, "n1", "first")
	if err != nil {
		t.Fatal(err)
	}
	fault := func(gpu string, xid int64, since, at float64) ledger.DeviceFault {
		return ledger.DeviceFault{Node: "n1", GPUUUID: gpu, XID: xid, Since: lt.At(since), At: lt.At(at)}
	}
	early, late := fault("GPU-1", 79, 0, 5), fault("GPU-2", 48, 60, 65)
	record := func(node string, epoch int64, faults ...ledger.DeviceFault) bool {
		t.Helper()
		current, err := f.store.RecordDeviceFaults(ctx, node, epoch, faults)
		if err != nil {
			t.Fatal(err)
		}
		return current
	}
	if !record("n1", epoch, early, late, early) || !record("n1", epoch, late) {
		t.Error("the node's agent is not believed")
	}
	if record("n1", epoch+1, fault("GPU-3", 79, 0, 5)) || record("n2", epoch, fault("GPU-3", 79, 0, 5)) {
		t.Error("an agent that nobody registered is believed")
	}
	if _, err := f.store.RegisterNodeAgent(ctx, "n1", "second"); err != nil {
		t.Fatal(err)
	}
	if record("n1", epoch, fault("GPU-3", 79, 0, 5)) {
		t.Error("an agent is believed although a newer one has registered")
	}
	for _, c := range []struct {
		from, to float64
		want     []ledger.DeviceFault
	}{
		{0, 100, []ledger.DeviceFault{early, late}}, {5, 59, []ledger.DeviceFault{early}}, {6, 59, nil}, {6, 60, []ledger.DeviceFault{late}},
	} {
		got, err := f.store.DeviceFaults(ctx, "n1", lt.At(c.from), lt.At(c.to))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("from %v to %v: %+v, %v", c.from, c.to, got, err)
		}
	}
	if _, err := f.store.RecordDeviceFaults(ctx, "n1", epoch+1, []ledger.DeviceFault{fault("GPU-1", 0, 0, 5)}); err == nil {
		t.Error("a fault without a code is kept")
	}
}
