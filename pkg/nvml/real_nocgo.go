//go:build !cgo

package nvml

import "fmt"

func openReal() (Devices, error) {
	return nil, fmt.Errorf("%w: this binary was built with CGO_ENABLED=0; use the agent's own image, or run it with --nvml=none or --nvml=simulated:<file>", ErrUnavailable)
}
