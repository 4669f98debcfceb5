package meter

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/pkg/nvml"
)

// deviceReader reads the node's devices for the metrics. Its failures are gaps, and never stop the metering.
type deviceReader struct {
	devices  nvml.Devices
	previous map[string]nvml.Reading
	// said are the problems that were logged and still stand, so that each is logged once.
	said map[string]string
}

// sample reads every device. Devices whose counters are missing or implausible are returned without them.
func (r *deviceReader) sample(ctx context.Context, open func() (nvml.Devices, error), metrics *Metrics) []deviceSample {
	if r.said == nil {
		r.said, r.previous = map[string]string{}, map[string]nvml.Reading{}
	}
	if r.devices == nil {
		devices, err := open()
		r.say(ctx, "node", err, "GPUs cannot be read; metering goes on without their utilisation")
		if err != nil {
			return nil
		}
		r.devices = devices
	}
	listed, err := r.devices.List()
	r.say(ctx, "list", err, "Some GPUs cannot be read")
	samples := make([]deviceSample, 0, len(listed))
	for _, device := range listed {
		sample := deviceSample{uuid: device.UUID, model: device.Model, memoryBytes: device.MemoryBytes}
		reading, err := r.devices.Read(device.UUID)
		if err == nil {
			err = nvml.Plausible(r.previous[device.UUID], reading)
			// The new value is what the next one is compared with, unless it stands for no value: a counter that was
			// reset goes on from there, and costs one gap.
			if err == nil || reading.EnergyMillijoules < r.previous[device.UUID].EnergyMillijoules {
				r.previous[device.UUID] = reading
			}
		}
		if errors.Is(err, nvml.ErrUnsupported) {
			samples = append(samples, sample)
			continue
		}
		r.say(ctx, device.UUID, err, "A GPU's counters are discarded")
		if err != nil {
			metrics.gaps.WithLabelValues(device.UUID).Inc()
		} else {
			sample.known = true
			sample.utilisation = float64(reading.UtilisationPercent) / 100
			sample.energyJoules = float64(reading.EnergyMillijoules) / 1000
		}
		samples = append(samples, sample)
	}
	return samples
}

func (r *deviceReader) say(ctx context.Context, about string, err error, sentence string) {
	if err == nil {
		delete(r.said, about)
		return
	}
	if r.said[about] != err.Error() {
		r.said[about] = err.Error()
		klog.FromContext(ctx).Info(sentence, "about", about, "reason", err.Error())
	}
}
