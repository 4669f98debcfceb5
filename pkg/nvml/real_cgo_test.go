//go:build cgo

package nvml

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"
)

func TestRealListsADGX(t *testing.T) {
	dgx := dgxh100.New()
	devices, err := openLibrary(dgx)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := devices.List()
	if err != nil || len(listed) != 8 {
		t.Fatalf("List = %d devices, %v; want 8", len(listed), err)
	}
	for i, device := range listed {
		if device.Index != i || !strings.HasPrefix(device.UUID, "GPU-") || !strings.Contains(device.Model, "H100") || device.MemoryBytes == 0 {
			t.Errorf("device %d = %+v", i, device)
		}
	}
	first := dgx.Devices[0].(*server.Device)
	first.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 42}, nvml.SUCCESS }
	first.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 7, nvml.SUCCESS }
	reading, err := devices.Read(listed[0].UUID)
	if err != nil || reading != (Reading{UtilisationPercent: 42, EnergyMillijoules: 7}) {
		t.Errorf("Read = %+v, %v", reading, err)
	}
	if _, err := devices.Read("GPU-unknown"); !errors.Is(err, ErrUnknownDevice) {
		t.Errorf("Read of an unknown GPU: %v", err)
	}
}

func TestRealSurvivesALostGPU(t *testing.T) {
	dgx := dgxh100.New()
	open := dgx.DeviceGetHandleByIndexFunc
	dgx.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if index == 3 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return open(index)
	}
	devices, err := openLibrary(dgx)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := devices.List()
	if err == nil || len(listed) != 7 {
		t.Errorf("List = %d devices, %v; want 7 and an error", len(listed), err)
	}
}

// Faults are drained without waiting; a GPU that cannot be listened to does not keep the others from being heard.
func TestRealHearsFaults(t *testing.T) {
	dgx := dgxh100.New()
	var raised []nvml.EventData
	freed := false
	dgx.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				if len(raised) == 0 {
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
				next := raised[0]
				raised = raised[1:]
				return next, nvml.SUCCESS
			},
			FreeFunc: func() nvml.Return { freed = true; return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	for i := range dgx.Devices {
		dgx.Devices[i].(*server.Device).RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
			if i == 3 {
				return nvml.ERROR_GPU_IS_LOST
			}
			if types != nvml.EventTypeXidCriticalError {
				t.Errorf("listens to events %d", types)
			}
			return nvml.SUCCESS
		}
	}
	devices, err := openLibrary(dgx)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		raised []nvml.EventData
		want   []uint64
	}{
		{nil, nil},
		{[]nvml.EventData{
			{Device: dgx.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 79},
			{Device: dgx.Devices[1], EventType: nvml.EventTypePState},
			{Device: dgx.Devices[2], EventType: nvml.EventTypeXidCriticalError, EventData: 48},
		}, []uint64{79, 48}},
		{nil, nil},
	} {
		raised = step.raised
		faults, err := devices.Faults()
		if err == nil || !strings.Contains(err.Error(), "GPU 3") {
			t.Errorf("call %d: %v, want one that names the GPU which cannot be heard", i, err)
		}
		var xids []uint64
		for _, fault := range faults {
			xids = append(xids, fault.XID)
			if !strings.HasPrefix(fault.UUID, "GPU-") {
				t.Errorf("call %d: a fault of %q", i, fault.UUID)
			}
		}
		if diff := cmp.Diff(step.want, xids); diff != "" {
			t.Errorf("call %d (-want +got):\n%s", i, diff)
		}
	}
	dgx.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	if err := devices.Close(); err != nil || !freed {
		t.Errorf("closed: %v, freed %v", err, freed)
	}
}

func TestRealWithoutADriverSaysWhatToDo(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has a driver")
	}
	_, err := Open(ModeAuto)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "--nvml=none") {
		t.Errorf("Open = %v, want ErrUnavailable with what to do", err)
	}
}
