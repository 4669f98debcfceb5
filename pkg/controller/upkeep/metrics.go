package upkeep

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// What is done again and again, as the metric of last successes names it.
const (
	compacting     = "compact"
	forgetting     = "forget-answers"
	forgettingGPUs = "forget-gpus"
)

// metrics are shown by the replica that leads; another one's stay at zero.
type metrics struct {
	allocations, intervals, answers, gpuHolds prometheus.Counter
	loose, unsound                            prometheus.Gauge
	success                                   *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		allocations: counter("gpubank_ledger_compacted_allocations_total", "Allocations whose intervals this process made as few rows as can be."),
		intervals:   counter("gpubank_ledger_compacted_intervals_total", "Rows of intervals that went by that."),
		answers:     counter("gpubank_ledger_forgotten_answers_total", "Remembered answers that this process forgot."),
		gpuHolds:    counter("gpubank_ledger_forgotten_gpu_holds_total", "Pods on GPUs that this process forgot."),
		loose:       gauge("gpubank_ledger_loose_allocations", "Allocations that are old enough to be compacted and were not, after the last pass; up to 100,000."),
		unsound:     gauge("gpubank_ledger_uncompactable_allocations", "Allocations that the last pass left as they are because they do not add up. A sound ledger has none."),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpubank_ledger_upkeep_last_success_timestamp_seconds", Help: "When this process last finished a pass (compact, forget-answers, forget-gpus), or began to lead.",
		}, []string{"task"}),
	}
	registry.MustRegister(m.allocations, m.intervals, m.answers, m.gpuHolds, m.loose, m.unsound, m.success)
	return m
}

func (m *metrics) succeeded(task string, now time.Time) {
	m.success.WithLabelValues(task).Set(float64(now.UnixMilli()) / 1_000)
}

func (m *metrics) compacted(step ledger.CompactionResult) {
	m.allocations.Add(float64(step.Allocations))
	m.intervals.Add(float64(step.Intervals - step.Rows))
}
