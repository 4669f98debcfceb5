package nvml

import (
	"errors"
	"fmt"
)

// Devices is one node's GPUs. Implementations are safe for concurrent use.
type Devices interface {
	// List returns the GPUs that can be read, ordered by index. The error joins what was wrong with the others, such
	// as a GPU that has fallen off the bus; devices may be returned along with it.
	List() ([]Device, error)
	// Read returns a GPU's current counters. The error is ErrUnsupported where the device has none, as MIG slices do.
	Read(uuid string) (Reading, error)
	// Faults returns the XID errors that the driver has raised since the last call, without waiting. The first call begins to
	// listen, so it returns none. The error joins what was wrong with single GPUs; the others are listened to.
	Faults() ([]Fault, error)
	// Close releases the library.
	Close() error
}

// Device is one physical GPU.
type Device struct {
	Index int `json:"index"`
	// UUID is how the kubelet's device plugin names it, such as GPU-8f1e….
	UUID        string `json:"uuid"`
	Model       string `json:"model"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// Slices are its MIG devices, empty while MIG is off.
	Slices []Slice `json:"slices,omitempty"`
}

// Slice is one MIG device of a GPU.
type Slice struct {
	UUID        string `json:"uuid"`
	MemoryBytes uint64 `json:"memoryBytes"`
}

// Reading is what a GPU's counters said at one moment.
type Reading struct {
	// UtilisationPercent is the share of the driver's last sample period in which a kernel ran, 0 to 100.
	UtilisationPercent uint32
	// EnergyMillijoules counts since the driver was loaded; it only grows. 0 where the device has no such counter.
	EnergyMillijoules uint64
}

// Fault is an XID error of one GPU. The driver hands it out without a time.
type Fault struct {
	UUID string
	// XID is NVIDIA's number of the error.
	XID uint64
}

var (
	// ErrUnavailable: there is no NVML on this node, or this binary cannot load it.
	ErrUnavailable = errors.New("NVML is not available")
	// ErrUnsupported: this device has no such counter.
	ErrUnsupported = errors.New("not supported by this device")
	// ErrUnknownDevice: no device has this UUID now.
	ErrUnknownDevice = errors.New("no such device")
	// ErrImplausible: the counters cannot be true. The reading is to be discarded.
	ErrImplausible = errors.New("implausible device counters")
)

// noValue is what drivers report for a 32-bit counter that has no value: all ones.
const noValue = 1<<32 - 1

// Plausible checks current against the previous plausible reading of the same device, the zero Reading if there is
// none. It returns an error wrapping ErrImplausible for a reading that cannot be true.
func Plausible(previous, current Reading) error {
	switch {
	case current.UtilisationPercent > 100:
		return fmt.Errorf("%w: utilisation of %d percent", ErrImplausible, current.UtilisationPercent)
	case current.EnergyMillijoules == noValue || current.EnergyMillijoules == 1<<64-1:
		return fmt.Errorf("%w: energy counter reads %d, which stands for no value", ErrImplausible, current.EnergyMillijoules)
	case current.EnergyMillijoules < previous.EnergyMillijoules:
		return fmt.Errorf("%w: energy counter went back from %d mJ to %d mJ", ErrImplausible, previous.EnergyMillijoules, current.EnergyMillijoules)
	}
	return nil
}
