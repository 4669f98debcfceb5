package auditor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// metrics are shown by the replica that leads; another one's stay at zero.
type metrics struct {
	violations    *prometheus.GaugeVec
	frozen        prometheus.Gauge
	sealed        prometheus.Counter
	unsealed      prometheus.Gauge
	discrepancies *prometheus.GaugeVec
	success       *prometheus.GaugeVec
}

// What is done again and again, as the metric of last successes names it.
const (
	sealing   = "seal"
	auditing  = "audit"
	comparing = "compare"
)

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpubank_ledger_audit_violations", Help: "Violations that the last audit found, by invariant. A sound ledger has none.",
		}, []string{"invariant"}),
		frozen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gpubank_ledger_frozen_accounts", Help: "Accounts that are frozen, by audits or by hand.",
		}),
		sealed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gpubank_ledger_sealed_entries_total", Help: "Entries sealed by this process, once for each account that they concern.",
		}),
		unsealed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gpubank_ledger_unsealed_entries", Help: "Entries that wait to be sealed, up to a million.",
		}),
		discrepancies: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpubank_ledger_open_discrepancies", Help: "Disagreements of node, scheduler, pod status and ledger that no adjustment has closed, by kind.",
		}, []string{"kind"}),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpubank_ledger_last_success_timestamp_seconds", Help: "When this process last did it all (seal, audit, compare), or began to lead.",
		}, []string{"task"}),
	}
	registry.MustRegister(m.violations, m.frozen, m.sealed, m.unsealed, m.discrepancies, m.success)
	return m
}

func (m *metrics) succeeded(task string, now time.Time) {
	m.success.WithLabelValues(task).Set(float64(now.UnixMilli()) / 1_000)
}

func (m *metrics) showViolations(violations []ledger.Violation) {
	m.violations.Reset()
	for _, invariant := range []string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10"} {
		m.violations.WithLabelValues(invariant).Set(0)
	}
	for invariant, count := range perInvariant(violations) {
		m.violations.WithLabelValues(invariant).Set(float64(count))
	}
}

func (m *metrics) showDiscrepancies(open map[ledger.DiscrepancyKind]int64) {
	for _, kind := range ledger.DiscrepancyKinds {
		m.discrepancies.WithLabelValues(string(kind)).Set(float64(open[kind]))
	}
}
