package intake

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what the intake answered.
type Metrics struct {
	intervals *prometheus.CounterVec
	refused   *prometheus.CounterVec
	faults    *prometheus.CounterVec
}

// NewMetrics registers the intake's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		intervals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_intake_intervals_total",
			Help: "Intervals answered, by outcome (charged, repeat, refused) and refusal code.",
		}, []string{"outcome", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_intake_refused_total",
			Help: "Requests that were turned away as a whole, by reason.",
		}, []string{"reason"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_intake_device_faults_total",
			Help: "GPU faults that node agents reported, by XID; repeats are counted again.",
		}, []string{"xid"}),
	}
	registry.MustRegister(m.intervals, m.refused, m.faults)
	return m
}
