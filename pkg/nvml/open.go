package nvml

import (
	"fmt"
	"strings"
)

// The values of the agent's flag --nvml.
const (
	// ModeAuto uses the driver's library where there is one.
	ModeAuto = "auto"
	// ModeReal is auto for nodes that must have it: its absence is an error worth an exit.
	ModeReal = "real"
	// ModeNone reads no device at all.
	ModeNone = "none"
	// simulatedPrefix is followed by the path of a file, see OpenSimulated.
	simulatedPrefix = "simulated:"
)

// CheckMode refuses anything but auto, real, none and simulated:<file>.
func CheckMode(mode string) error {
	switch {
	case mode == ModeAuto, mode == ModeReal, mode == ModeNone:
		return nil
	case strings.HasPrefix(mode, simulatedPrefix) && len(mode) > len(simulatedPrefix):
		return nil
	}
	return fmt.Errorf("--nvml=%q: want auto, real, none or simulated:<file>", mode)
}

// Open opens what mode names. An error wrapping ErrUnavailable may pass, for example once a driver is installed.
func Open(mode string) (Devices, error) {
	if err := CheckMode(mode); err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(mode, simulatedPrefix); ok {
		return OpenSimulated(path)
	}
	if mode == ModeNone {
		return nil, fmt.Errorf("%w: switched off by --nvml=none", ErrUnavailable)
	}
	return openReal()
}
