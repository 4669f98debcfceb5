package meter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/nvml"
)

// scriptedNode is what the API server and the kubelet say in turn; the test changes it between looks.
type scriptedNode struct {
	pods    map[PodName]PodFacts
	listing *Listing
}

func (n *scriptedNode) Pods() (map[PodName]PodFacts, []PodFacts) { return n.pods, nil }
func (n *scriptedNode) ForgetGone([]PodFacts)                    {}
func (n *scriptedNode) Ended() <-chan struct{}                   { return nil }
func (n *scriptedNode) List(context.Context) (Listing, error) {
	if n.listing == nil {
		return Listing{}, errors.New("the kubelet is away")
	}
	return *n.listing, nil
}

// looking is an agent whose looks the test makes one by one, on a clock of the test's.
type looking struct {
	*Agent
	node     *scriptedNode
	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
	gpus     string // file of simulated GPUs
}

func newLooking(t *testing.T) looking {
	l := looking{
		node: &scriptedNode{}, clock: clocktesting.NewFakeClock(at("10:00:00")),
		registry: prometheus.NewRegistry(), gpus: filepath.Join(t.TempDir(), "gpus.yaml"),
	}
	spool := openTestSpool(t, filepath.Join(t.TempDir(), "spool.db"))
	l.Agent = &Agent{
		Pods: l.node, Holdings: l.node, Spool: spool, Metrics: NewMetrics(spool, 100, l.registry), Clock: l.clock,
		Settings: settings, LookEvery: 5 * time.Second,
		OpenDevices: func() (nvml.Devices, error) { return nvml.OpenSimulated(l.gpus) },
		started:     l.clock.Now(), unknown: map[string]*unknownHolding{},
	}
	return l
}

// after lets time pass and looks; it returns the metrics' sums.
func (l looking) after(t *testing.T, pause time.Duration) map[string]float64 {
	t.Helper()
	l.clock.Step(pause)
	l.say(t.Context(), l.look(t.Context()))
	families, err := l.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, family := range families {
		byName[family.GetName()] = family
	}
	return sums(byName)
}

func TestUnattributedTimeIsCountedOnceItIsCertain(t *testing.T) {
	const current, total = "gpubank_unattributed_gpus", "gpubank_unattributed_gpu_seconds_total"
	l := newLooking(t)
	l.node.listing = lists("GPU-1", "GPU-2")
	for _, step := range []struct {
		what           string
		change         func()
		current, total float64
	}{
		{"unknown pod", func() {}, 2, 0},
		{"still unknown", func() {}, 2, 0},
		{"the watch catches up", func() { l.node.pods = view(running("a", "10:00:02")) }, 0, 0},
		{"devices of another pod of that name", func() { l.node.listing = lists("GPU-3") }, 1, 0},
		{"and still", func() {}, 1, 0},
		{"the kubelet is away: nothing new is known", func() { l.node.listing = nil }, 1, 0},
		{"it never was known whose", func() { l.node.listing = &Listing{} }, 0, 5},
	} {
		step.change()
		got := l.after(t, 5*time.Second)
		if got[current] != step.current || got[total] != step.total {
			t.Errorf("%s: %v GPUs now, %v GPU-seconds; want %v and %v", step.what, got[current], got[total], step.current, step.total)
		}
	}
}

// Allocated time in the metrics is what was cut, share by share, and goes away some time after the pod.
func TestAllocatedMetricIsWhatWasCut(t *testing.T) {
	const allocated = "gpubank_allocated_gpu_seconds_total"
	l := newLooking(t)
	l.node.pods = view(running("a", "10:00:00"))
	l.node.listing = lists("GPU-1::0", "GPU-1::1", "GPU-2")
	l.node.listing.Replicas = map[string]int{"GPU-1": 4, "GPU-2": 1}
	if got := l.after(t, 69*time.Second); got[allocated] != 0 {
		t.Errorf("%v GPU-seconds before the first minute is confirmed", got[allocated])
	}
	if got := l.after(t, time.Second); got[allocated] != 90 { // 60 × (2/4 + 1)
		t.Errorf("%v GPU-seconds after a minute, want 90", got[allocated])
	}
	l.node.pods = view(ended("a", "10:00:00", "10:01:10"))
	if got := l.after(t, time.Second); got[allocated] != 105 {
		t.Errorf("%v GPU-seconds after 70 s, want 105", got[allocated])
	}
	waiting, err := l.Spool.Next(10, everyPod)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Spool.Acknowledge(waiting); err != nil {
		t.Fatal(err)
	}
	l.node.pods, l.node.listing = nil, &Listing{}
	if got := l.after(t, settings.KeepFinal-time.Second); got[allocated] != 105 {
		t.Errorf("%v GPU-seconds shortly after the end", got[allocated])
	}
	if got, shown := l.after(t, time.Second)[allocated]; shown {
		t.Errorf("%v GPU-seconds of a pod that is long gone", got)
	}
}

// L30: a reading that cannot be true is a gap, and never a figure.
func TestNonsenseOfADeviceIsAGap(t *testing.T) {
	l := newLooking(t)
	l.node.listing = &Listing{}
	type shown struct{ Utilisation, Energy, Gaps float64 }
	var got []shown
	for _, counters := range []string{
		"", // no driver yet: metering goes on
		"utilisationPercent: 50, energyMillijoules: 4000",
		"utilisationPercent: 4294967295, energyMillijoules: 5000",
		"utilisationPercent: 60, energyMillijoules: 4294967295",
		"utilisationPercent: 60, energyMillijoules: 1000",
		"utilisationPercent: 70, energyMillijoules: 2000",
	} {
		if counters != "" {
			text := "gpus: [{index: 0, uuid: GPU-1, model: Simulated, memoryBytes: 80, " + counters + "}]"
			if err := os.WriteFile(l.gpus, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sums := l.after(t, 5*time.Second)
		if sums["gpubank_node_looks_total"] != float64(len(got)+1) {
			t.Errorf("%v looks after %d", sums["gpubank_node_looks_total"], len(got)+1)
		}
		got = append(got, shown{sums["gpubank_gpu_utilisation_ratio"], sums["gpubank_gpu_energy_joules_total"], sums["gpubank_gpu_reading_gaps_total"]})
	}
	want := []shown{{}, {0.5, 4, 0}, {0, 0, 1}, {0, 0, 2}, {0, 0, 3}, {0.7, 2, 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
}

func TestProbes(t *testing.T) {
	l := newLooking(t)
	if l.Healthy() != nil || l.Ready() == nil {
		t.Errorf("before the first look: healthy %v, ready %v", l.Healthy(), l.Ready())
	}
	l.node.listing = &Listing{}
	l.after(t, time.Second)
	if l.Healthy() != nil || l.Ready() != nil {
		t.Errorf("after a look: healthy %v, ready %v", l.Healthy(), l.Ready())
	}
	l.node.listing = nil
	l.after(t, time.Hour)
	if l.Healthy() != nil || l.Ready() == nil {
		t.Errorf("with a silent kubelet: healthy %v, ready %v", l.Healthy(), l.Ready())
	}
	l.clock.Step(time.Hour)
	if l.Healthy() == nil {
		t.Error("healthy without looking for an hour")
	}
}
