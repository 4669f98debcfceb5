package nvml

import (
	"fmt"
	"os"
	"sync"

	"sigs.k8s.io/yaml"
)

// SimulatedFile is the content of a file that stands in for a driver, in YAML or JSON.
type SimulatedFile struct {
	GPUs []SimulatedGPU `json:"gpus"`
}

// SimulatedGPU is a device with what its counters say.
type SimulatedGPU struct {
	Device `json:",inline"`
	// UtilisationPercent and EnergyMillijoules are passed on as they are, nonsense included.
	UtilisationPercent uint32 `json:"utilisationPercent"`
	EnergyMillijoules  uint64 `json:"energyMillijoules"`
	// XIDs are the errors that the driver has raised so far. Whoever plays the driver appends to them.
	XIDs []uint64 `json:"xids,omitempty"`
	// Lost makes the device fail as one that has fallen off the bus.
	Lost bool `json:"lost,omitempty"`
}

type simulated struct {
	path string

	mu sync.Mutex
	// heard is how many XIDs of each GPU have been returned or were there before anyone listened; nil before that.
	heard map[string]int
}

// OpenSimulated reads GPUs from a file. It is read again for every call, so that whoever writes it plays the driver.
func OpenSimulated(path string) (Devices, error) {
	s := &simulated{path: path}
	if _, err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *simulated) load() (SimulatedFile, error) {
	content, err := os.ReadFile(s.path)
	if err != nil {
		return SimulatedFile{}, fmt.Errorf("%w: read simulated GPUs: %w", ErrUnavailable, err)
	}
	var file SimulatedFile
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		return SimulatedFile{}, fmt.Errorf("read simulated GPUs from %s: %w", s.path, err)
	}
	return file, nil
}

func (s *simulated) List() ([]Device, error) {
	file, err := s.load()
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, gpu := range file.GPUs {
		if gpu.Lost {
			err = fmt.Errorf("open GPU %d: GPU is lost", gpu.Index)
			continue
		}
		devices = append(devices, gpu.Device)
	}
	return devices, err
}

func (s *simulated) Read(uuid string) (Reading, error) {
	file, err := s.load()
	if err != nil {
		return Reading{}, err
	}
	for _, gpu := range file.GPUs {
		if gpu.UUID == uuid && gpu.Lost {
			return Reading{}, fmt.Errorf("read GPU %s: GPU is lost", uuid)
		}
		if gpu.UUID == uuid {
			return Reading{UtilisationPercent: gpu.UtilisationPercent, EnergyMillijoules: gpu.EnergyMillijoules}, nil
		}
	}
	return Reading{}, fmt.Errorf("read GPU %s: %w", uuid, ErrUnknownDevice)
}

func (s *simulated) Faults() ([]Fault, error) {
	file, err := s.load()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []Fault
	listening := s.heard != nil
	if !listening {
		s.heard = map[string]int{}
	}
	for _, gpu := range file.GPUs {
		for i := s.heard[gpu.UUID]; i < len(gpu.XIDs) && listening; i++ {
			faults = append(faults, Fault{UUID: gpu.UUID, XID: gpu.XIDs[i]})
		}
		s.heard[gpu.UUID] = len(gpu.XIDs)
	}
	return faults, nil
}

func (s *simulated) Close() error { return nil }
