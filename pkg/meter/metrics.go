package meter

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

// Metrics are the agent's Prometheus metrics. Allocated time is computed from the records at each scrape, so a scrape
// shows what was measured, and a restart does not make it begin anew.
type Metrics struct {
	spool *Spool

	answers      *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	failures     *prometheus.CounterVec
	looks        *prometheus.CounterVec
	unattributed prometheus.Counter
	vanished     prometheus.Counter
	clockSteps   prometheus.Counter
	gaps         *prometheus.CounterVec
	faults       *prometheus.CounterVec
	lastAck      prometheus.Gauge
	heldUnknown  prometheus.Gauge
	full         prometheus.Gauge
	limit        prometheus.Gauge
	movedAside   prometheus.Gauge

	mu      sync.Mutex
	devices []deviceSample
}

// deviceSample is what the last reading of a device said.
type deviceSample struct {
	uuid, model  string
	memoryBytes  uint64
	utilisation  float64 // 0 to 1
	energyJoules float64 // 0 where there is no such counter
	known        bool    // whether the counters were plausible; no sample is shown otherwise
}

var (
	allocatedDesc = prometheus.NewDesc("gpubank_allocated_gpu_seconds_total",
		"GPU-seconds a pod has held of a GPU, from its start as far as it is measured. A share of a time-sliced GPU counts as that share.",
		[]string{"account", "namespace", "pod", "uid", "gpu", "class"}, nil)
	utilisationDesc = prometheus.NewDesc("gpubank_gpu_utilisation_ratio",
		"Share of the last sample period in which a kernel ran on the GPU. Shown only, never billed.",
		[]string{"gpu", "model"}, nil)
	energyDesc = prometheus.NewDesc("gpubank_gpu_energy_joules_total",
		"Energy the GPU has used since its driver was loaded.", []string{"gpu", "model"}, nil)
	memoryDesc = prometheus.NewDesc("gpubank_gpu_memory_bytes",
		"Memory of the GPU.", []string{"gpu", "model"}, nil)
	depthDesc = prometheus.NewDesc("gpubank_spool_intervals",
		"Intervals on disk that the intake has not acknowledged.", nil, nil)
	oldestDesc = prometheus.NewDesc("gpubank_spool_oldest_interval_timestamp_seconds",
		"End of the interval that has waited longest; absent when none waits.", nil, nil)
)

// NewMetrics makes the metrics and registers them.
func NewMetrics(spool *Spool, limit int, registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		spool:        spool,
		answers:      counters("gpubank_intervals_answered_total", "Intervals the intake has answered, by outcome.", "outcome"),
		refusals:     counters("gpubank_intervals_refused_total", "Intervals the intake refused, for now or for good, by code.", "code"),
		failures:     counters("gpubank_intake_failures_total", "Requests to the intake without results, by HTTP status or connection.", "reason"),
		looks:        counters("gpubank_node_looks_total", "Looks at the node, by result.", "result"),
		unattributed: counter("gpubank_unattributed_gpu_seconds_total", "GPU-seconds held by pods that could not be told from others of the same name; charged to no one here."),
		vanished:     counter("gpubank_vanished_pods_total", "Pods that disappeared before their finish was seen."),
		clockSteps:   counter("gpubank_clock_steps_total", "Steps of the node's wall clock against its monotonic clock."),
		gaps:         counters("gpubank_gpu_reading_gaps_total", "Device readings that were missing or implausible.", "gpu"),
		faults:       counters("gpubank_gpu_faults_total", "XID errors that the driver raised.", "gpu", "xid"),
		lastAck:      gauge("gpubank_spool_last_ack_timestamp_seconds", "When the intake last acknowledged an interval."),
		heldUnknown:  gauge("gpubank_unattributed_gpus", "GPUs held by pods that cannot be told from others of the same name now."),
		full:         gauge("gpubank_spool_full", "1 while cutting is stopped because the spool, or one pod's part of it, is at its limit. Nothing is lost; time is cut later."),
		limit:        gauge("gpubank_spool_limit_intervals", "Most intervals the spool takes."),
		movedAside:   gauge("gpubank_spool_moved_aside", "1 if the spool was found damaged and moved aside when this process started."),
	}
	m.limit.Set(float64(limit))
	if spool.MovedAside != "" {
		m.movedAside.Set(1)
	}
	registry.MustRegister(m, m.answers, m.refusals, m.failures, m.looks, m.unattributed, m.vanished, m.clockSteps, m.gaps, m.faults,
		m.lastAck, m.heldUnknown, m.full, m.limit, m.movedAside)
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{allocatedDesc, utilisationDesc, energyDesc, memoryDesc, depthDesc, oldestDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, record := range m.spool.State().Records {
		seconds := record.LastCut.Sub(record.StartedAt).Seconds()
		for _, device := range record.Devices {
			metrics <- prometheus.MustNewConstMetric(allocatedDesc, prometheus.CounterValue, seconds*device.Share(),
				record.Account, record.Name.Namespace, record.Name.Name, record.PodUID, device.UUID, record.Class)
		}
	}
	metrics <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(m.spool.Depth()))
	if oldest, err := m.spool.Oldest(); err != nil {
		metrics <- prometheus.NewInvalidMetric(oldestDesc, err)
	} else if !oldest.IsZero() {
		metrics <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, float64(oldest.UnixMilli())/1000)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, device := range m.devices {
		metrics <- prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, float64(device.memoryBytes), device.uuid, device.model)
		if !device.known {
			continue
		}
		metrics <- prometheus.MustNewConstMetric(utilisationDesc, prometheus.GaugeValue, device.utilisation, device.uuid, device.model)
		if device.energyJoules > 0 {
			metrics <- prometheus.MustNewConstMetric(energyDesc, prometheus.CounterValue, device.energyJoules, device.uuid, device.model)
		}
	}
}

func (m *Metrics) sampled(devices []deviceSample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices = devices
}

func (m *Metrics) answered(result intakeapi.Result) {
	m.answers.WithLabelValues(string(result.Outcome)).Inc()
	if result.Outcome == intakeapi.Refused {
		m.refusals.WithLabelValues(result.Code).Inc()
	}
}

func (m *Metrics) acknowledged(at time.Time) { m.lastAck.Set(float64(at.UnixMilli()) / 1000) }

func (m *Metrics) failed(reason string) { m.failures.WithLabelValues(reason).Inc() }
