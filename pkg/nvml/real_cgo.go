//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is the part of NVML that is used; go-nvml's Interface and its mocks provide it.
type library interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return)
	DeviceGetHandleByUUID(string) (nvml.Device, nvml.Return)
	EventSetCreate() (nvml.EventSet, nvml.Return)
}

type real struct {
	library library

	mu sync.Mutex
	// events is where faults arrive, nil before anyone has listened; deaf says which GPUs could not be listened to.
	events nvml.EventSet
	deaf   error
}

func openReal() (Devices, error) { return openLibrary(nvml.New()) }

func openLibrary(library library) (Devices, error) {
	switch ret := library.Init(); ret {
	case nvml.SUCCESS:
		return &real{library: library}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 is not on this node; install the NVIDIA driver and make it visible to the agent, or run it with --nvml=none", ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: the NVIDIA driver is installed but not loaded; load it, or run the agent with --nvml=none", ErrUnavailable)
	default:
		return nil, fmt.Errorf("%w: initialise NVML: %s", ErrUnavailable, ret.Error())
	}
}

func (r *real) List() ([]Device, error) {
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

func (r *real) Read(uuid string) (Reading, error) {
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

// mostFaults bounds one call: a GPU that has failed may raise the same error without end.
const mostFaults = 256

func (r *real) Faults() ([]Fault, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		if err := r.listen(); err != nil {
			return nil, err
		}
	}
	var faults []Fault
	for len(faults) < mostFaults {
		event, ret := r.events.Wait(1) // ms: what has arrived is handed out at once
		if ret == nvml.ERROR_TIMEOUT {
			break
		}
		if ret != nvml.SUCCESS {
			return faults, errors.Join(r.deaf, fmt.Errorf("wait for GPU faults: %s", ret.Error()))
		}
		if event.EventType != nvml.EventTypeXidCriticalError {
			continue
		}
		uuid, ret := event.Device.GetUUID()
		if ret != nvml.SUCCESS {
			return faults, errors.Join(r.deaf, fmt.Errorf("read which GPU raised XID %d: %s", event.EventData, ret.Error()))
		}
		faults = append(faults, Fault{UUID: uuid, XID: event.EventData})
	}
	return faults, r.deaf
}

// listen registers for the faults of every GPU that has them.
func (r *real) listen() error {
	events, ret := r.library.EventSetCreate()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("listen to GPU faults: %s", ret.Error())
	}
	count, ret := r.library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		events.Free()
		return fmt.Errorf("count GPUs: %s", ret.Error())
	}
	var problems []error
	for index := range count {
		handle, ret := r.library.DeviceGetHandleByIndex(index)
		if ret == nvml.SUCCESS {
			ret = handle.RegisterEvents(nvml.EventTypeXidCriticalError, events)
		}
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
			problems = append(problems, fmt.Errorf("listen to faults of GPU %d: %s", index, ret.Error()))
		}
	}
	r.events, r.deaf = events, errors.Join(problems...)
	return nil
}

func (r *real) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events != nil {
		r.events.Free()
		r.events = nil
	}
	if ret := r.library.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("shut NVML down: %s", ret.Error())
	}
	return nil
}
