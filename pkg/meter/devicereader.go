package meter

import (
	"context"
	"errors"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
	"github.com/gpubank/gpubank/pkg/nvml"
)

// deviceReader reads the node's devices for the metrics, and hears their faults. Its failures are gaps, and never stop the
// metering.
type deviceReader struct {
	devices  nvml.Devices
	previous map[string]nvml.Reading
	// slices are the MIG devices on each GPU, as they were last listed.
	slices map[string][]nvml.Slice
	// faultsAt is when faults were last asked for.
	faultsAt time.Time
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
	r.slices = map[string][]nvml.Slice{}
	for _, device := range listed {
		r.slices[device.UUID] = device.Slices
	}
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

// faults returns what the driver has raised since it was last asked; now is the time to go by. A fault of a GPU is one of
// every MIG device on it.
func (r *deviceReader) faults(ctx context.Context, now time.Time, metrics *Metrics) []intakeapi.Fault {
	if r.devices == nil {
		return nil
	}
	raised, err := r.devices.Faults()
	r.say(ctx, "faults", err, "Some GPUs' faults cannot be heard")
	since := r.faultsAt
	r.faultsAt = now
	if since.IsZero() || now.Before(since) {
		since = now
	}
	var faults []intakeapi.Fault
	seen := map[nvml.Fault]bool{}
	for _, fault := range raised {
		if seen[fault] {
			continue // raised again within moments
		}
		seen[fault] = true
		metrics.faults.WithLabelValues(fault.UUID, strconv.FormatUint(fault.XID, 10)).Inc()
		klog.FromContext(ctx).Error(nil, "GPU raised an XID error", "gpu", fault.UUID, "xid", fault.XID)
		uuids := []string{fault.UUID}
		for _, slice := range r.slices[fault.UUID] {
			uuids = append(uuids, slice.UUID)
		}
		for _, uuid := range uuids {
			faults = append(faults, intakeapi.Fault{GPUUUID: uuid, XID: int64(fault.XID), Since: since.UTC(), At: now.UTC()})
		}
	}
	return faults
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
