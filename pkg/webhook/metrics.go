package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the decisions and how long they took.
type Metrics struct {
	decisions *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
}

// NewMetrics registers the webhook's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_webhook_decisions_total",
			Help: "Admission requests, by what was decided (allowed, denied, error) and why (code).",
		}, []string{"webhook", "decision", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gpubank_webhook_duration_seconds",
			Help: "Time from receiving an admission request to its answer, the ledger's commit included.",
			// A commit takes 1 to 10 ms; the API server gives up after 10 s (timeoutSeconds in manifests/webhook).
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"webhook"}),
	}
	registry.MustRegister(m.decisions, m.seconds)
	return m
}

func (m *Metrics) observe(webhook string, decision string, code Code, took time.Duration) {
	m.decisions.WithLabelValues(webhook, decision, string(code)).Inc()
	m.seconds.WithLabelValues(webhook).Observe(took.Seconds())
}
