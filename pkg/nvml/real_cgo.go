//go:build cgo

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is the part of NVML that is used; go-nvml's Interface and its mocks provide it.
type library interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return)
	DeviceGetHandleByUUID(string) (nvml.Device, nvml.Return)
}

type real struct{ library library }

func openReal() (Devices, error) { return openLibrary(nvml.New()) }

func openLibrary(library library) (Devices, error) {
	switch ret := library.Init(); ret {
	case nvml.SUCCESS:
		return real{library}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 is not on this node; install the NVIDIA driver and make it visible to the agent, or run it with --nvml=none", ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: the NVIDIA driver is installed but not loaded; load it, or run the agent with --nvml=none", ErrUnavailable)
	default:
		return nil, fmt.Errorf("%w: initialise NVML: %s", ErrUnavailable, ret.Error())
	}
}

func (r real) List() ([]Device, error) {
	count, ret := r.library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count GPUs: %s", ret.Error())
	}
	var devices []Device
	var problems []error
	for index := range count {
		handle, ret := r.library.DeviceGetHandleByIndex(index)
		if ret != nvml.SUCCESS {
			problems = append(problems, fmt.Errorf("open GPU %d: %s", index, ret.Error()))
			continue
		}
		device, err := describe(index, handle)
		if err != nil {
			problems = append(problems, fmt.Errorf("describe GPU %d: %w", index, err))
			continue
		}
		devices = append(devices, device)
	}
	return devices, errors.Join(problems...)
}

func describe(index int, handle nvml.Device) (Device, error) {
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS {
		return Device{}, fmt.Errorf("read UUID: %s", ret.Error())
	}
	device := Device{Index: index, UUID: uuid}
	if device.Model, ret = handle.GetName(); ret != nvml.SUCCESS {
		return Device{}, fmt.Errorf("read model of %s: %s", uuid, ret.Error())
	}
	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return Device{}, fmt.Errorf("read memory of %s: %s", uuid, ret.Error())
	}
	device.MemoryBytes = memory.Total
	var err error
	device.Slices, err = slices(handle)
	if err != nil {
		return Device{}, fmt.Errorf("read MIG devices of %s: %w", uuid, err)
	}
	return device, nil
}

func slices(handle nvml.Device) ([]Slice, error) {
	mode, _, ret := handle.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.SUCCESS && mode != nvml.DEVICE_MIG_ENABLE {
		return nil, nil
	}
	if ret != nvml.SUCCESS {
		return nil, errors.New(ret.Error())
	}
	most, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, errors.New(ret.Error())
	}
	var found []Slice
	for i := range most {
		mig, ret := handle.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // no slice at this index; indices may have holes
		}
		if ret != nvml.SUCCESS {
			return nil, errors.New(ret.Error())
		}
		uuid, ret := mig.GetUUID()
		if ret != nvml.SUCCESS {
			return nil, errors.New(ret.Error())
		}
		slice := Slice{UUID: uuid}
		if memory, ret := mig.GetMemoryInfo(); ret == nvml.SUCCESS {
			slice.MemoryBytes = memory.Total
		}
		found = append(found, slice)
	}
	return found, nil
}

func (r real) Read(uuid string) (Reading, error) {
	handle, ret := r.library.DeviceGetHandleByUUID(uuid)
	if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
		return Reading{}, fmt.Errorf("read GPU %s: %w", uuid, ErrUnknownDevice)
	}
	if ret != nvml.SUCCESS {
		return Reading{}, fmt.Errorf("open GPU %s: %s", uuid, ret.Error())
	}
	utilisation, ret := handle.GetUtilizationRates()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return Reading{}, fmt.Errorf("read utilisation of GPU %s: %w", uuid, ErrUnsupported)
	}
	if ret != nvml.SUCCESS {
		return Reading{}, fmt.Errorf("read utilisation of GPU %s: %s", uuid, ret.Error())
	}
	reading := Reading{UtilisationPercent: utilisation.Gpu}
	if energy, ret := handle.GetTotalEnergyConsumption(); ret == nvml.SUCCESS {
		reading.EnergyMillijoules = energy
	}
	return reading, nil
}

func (r real) Close() error {
	if ret := r.library.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("shut NVML down: %s", ret.Error())
	}
	return nil
}
