package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoGPUs = `
gpus:
- {index: 0, uuid: GPU-a, model: Simulated, memoryBytes: 80, utilisationPercent: 83, energyMillijoules: 12}
- {index: 1, uuid: GPU-b, model: Simulated, memoryBytes: 80, slices: [{uuid: MIG-c, memoryBytes: 10}]}
- {index: 2, uuid: GPU-d, model: Simulated, lost: true}
`

func TestSimulatedReadsItsFileEachTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(twoGPUs)
	devices, err := Open("simulated:" + path)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := devices.List()
	if err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("List error = %v, want one that names the lost GPU", err)
	}
	want := []Device{
		{Index: 0, UUID: "GPU-a", Model: "Simulated", MemoryBytes: 80},
		{Index: 1, UUID: "GPU-b", Model: "Simulated", MemoryBytes: 80, Slices: []Slice{{UUID: "MIG-c", MemoryBytes: 10}}},
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if _, err := devices.Read("GPU-z"); !errors.Is(err, ErrUnknownDevice) {
		t.Errorf("Read of an unknown GPU: %v, want ErrUnknownDevice", err)
	}
	write(strings.Replace(twoGPUs, "83", "7", 1))
	reading, err := devices.Read("GPU-a")
	if err != nil || reading != (Reading{UtilisationPercent: 7, EnergyMillijoules: 12}) {
		t.Errorf("Read = %+v, %v", reading, err)
	}
	write("gpus: [{uid: typo}]")
	if _, err := devices.List(); err == nil {
		t.Error("a misspelt field was accepted")
	}
}

func TestModes(t *testing.T) {
	for _, mode := range []string{"", "simulated:", "yes"} {
		if _, err := Open(mode); err == nil {
			t.Errorf("Open(%q) succeeded", mode)
		}
	}
	for _, mode := range []string{ModeNone, "simulated:/does/not/exist"} {
		if _, err := Open(mode); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Open(%q) = %v, want ErrUnavailable", mode, err)
		}
	}
}

func TestSimulatedFaultsAreThoseSinceAnyoneListened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.yaml")
	raise := func(a, b string) {
		if err := os.WriteFile(path, []byte("gpus: [{index: 0, uuid: GPU-a, xids: ["+a+"]}, {index: 1, uuid: GPU-b, xids: ["+b+"]}]"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raise("13", "")
	devices, err := Open("simulated:" + path)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		a, b string
		want []Fault
	}{
		{"13, 31", "", nil}, // nobody listened yet
		{"13, 31", "", nil},
		{"13, 31, 79", "48, 48", []Fault{{"GPU-a", 79}, {"GPU-b", 48}, {"GPU-b", 48}}},
		{"13, 31, 79", "48, 48", nil},
		{"13, 31, 79, 79", "48, 48", []Fault{{"GPU-a", 79}}},
	} {
		raise(step.a, step.b)
		got, err := devices.Faults()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("call %d (-want +got):\n%s", i, diff)
		}
	}
}
