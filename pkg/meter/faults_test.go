package meter

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

func testFault(gpu string, xid int64, since, at int) intakeapi.Fault {
	return intakeapi.Fault{GPUUUID: gpu, XID: xid, Since: second(since), At: second(at)}
}

// What the driver raises between two looks is spooled with the time between them, for the GPU and every slice of it; what it had
// raised before the agent listened is not.
func TestFaultsAreHeardOnceWithTheirTime(t *testing.T) {
	l := newLooking(t)
	l.node.listing = &Listing{}
	raise := func(xids string) {
		t.Helper()
		text := fmt.Sprintf("gpus: [{index: 0, uuid: GPU-1, model: Simulated, xids: [%s], slices: [{uuid: MIG-a}]}, {index: 1, uuid: GPU-2, model: Simulated}]", xids)
		if err := os.WriteFile(l.gpus, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raise("13")
	l.after(t, 5*time.Second)
	before := l.clock.Now()
	raise("13, 79, 79, 48")
	sums := l.after(t, 5*time.Second)
	l.after(t, 5*time.Second)
	if sums["gpubank_gpu_faults_total"] != 2 {
		t.Errorf("%v faults are counted, want 2", sums["gpubank_gpu_faults_total"])
	}
	waiting, err := l.Spool.NextFaults(10)
	if err != nil {
		t.Fatal(err)
	}
	var got []intakeapi.Fault
	for _, fault := range waiting {
		got = append(got, fault.Fault)
	}
	after := before.Add(5 * time.Second)
	var want []intakeapi.Fault
	for _, xid := range []int64{79, 48} {
		for _, uuid := range []string{"GPU-1", "MIG-a"} {
			want = append(want, intakeapi.Fault{GPUUUID: uuid, XID: xid, Since: before.UTC(), At: after.UTC()})
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spooled (-want +got):\n%s", diff)
	}
}

func TestSpoolKeepsFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	spool := openTestSpool(t, path)
	faults := make([]intakeapi.Fault, faultLimit+5)
	for i := range faults {
		faults[i] = testFault("GPU-1", int64(i+1), 0, 5)
	}
	if dropped, err := spool.AddFaults(faults); dropped != 5 || err != nil {
		t.Errorf("%d were dropped, %v", dropped, err)
	}
	if err := spool.Close(); err != nil {
		t.Fatal(err)
	}
	spool = openTestSpool(t, path)
	first, err := spool.NextFaults(2)
	if err != nil || len(first) != 2 || first[0].Fault != faults[0] || first[1].Fault != faults[1] {
		t.Fatalf("after opening again: %+v, %v", first, err)
	}
	if err := spool.AcknowledgeFaults(first); err != nil {
		t.Fatal(err)
	}
	if dropped, err := spool.AddFaults(faults[:3]); dropped != 1 || err != nil {
		t.Errorf("with room for two: %d were dropped, %v", dropped, err)
	}
	if next, err := spool.NextFaults(1); err != nil || len(next) != 1 || next[0].Fault != faults[2] {
		t.Errorf("next: %+v, %v", next, err)
	}
	if spool.Depth() != 0 {
		t.Error("faults count as intervals")
	}
}

// Faults go before intervals. An intake that does not take them, as one of an earlier release, takes intervals all the same.
func TestFaultsAreSentBeforeIntervals(t *testing.T) {
	s := newSending(t)
	if err := s.spool.Apply(Decision{Intervals: []intakeapi.Interval{testInterval("a", 0)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.spool.AddFaults([]intakeapi.Fault{testFault("GPU-1", 79, 0, 5)}); err != nil {
		t.Fatal(err)
	}
	s.intake.faultStatus = http.StatusNotFound
	if _, err := s.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.intake.faults) != 1 || len(s.intake.requests) != 1 || s.spool.Depth() != 0 {
		t.Fatalf("%d reports of faults, %d of intervals, %d wait", len(s.intake.faults), len(s.intake.requests), s.spool.Depth())
	}
	delay, err := s.step(t.Context())
	if err != nil || delay <= 0 || delay > firstBackoff || len(s.intake.faults) != 1 {
		t.Errorf("the next step waits %s, %v, after %d reports", delay, err, len(s.intake.faults))
	}
	s.intake.faultStatus = http.StatusOK
	s.clock.Step(firstBackoff)
	if _, err := s.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := intakeapi.FaultsRequest{Node: "n1", Epoch: 1, Faults: []intakeapi.Fault{testFault("GPU-1", 79, 0, 5)}}
	if diff := cmp.Diff(want, s.intake.faults[1]); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	if next, err := s.spool.NextFaults(1); err != nil || len(next) != 0 {
		t.Errorf("acknowledged, and still there: %+v, %v", next, err)
	}
	if _, err := s.spool.AddFaults([]intakeapi.Fault{testFault("GPU-1", 48, 5, 9)}); err != nil {
		t.Fatal(err)
	}
	s.intake.faultStatus = http.StatusConflict
	if _, err := s.step(t.Context()); err == nil {
		t.Error("an agent that is not the node's any more goes on")
	}
}
