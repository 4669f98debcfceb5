//go:build cgo

package nvml

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
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

func TestRealWithoutADriverSaysWhatToDo(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has a driver")
	}
	_, err := Open(ModeAuto)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "--nvml=none") {
		t.Errorf("Open = %v, want ErrUnavailable with what to do", err)
	}
}
