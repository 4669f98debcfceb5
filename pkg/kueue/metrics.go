package kueue

import "github.com/prometheus/client_golang/prometheus"

// metrics count answers, and what the ledger said.
type metrics struct {
	answers *prometheus.CounterVec
	holds   *prometheus.CounterVec
	pauses  prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, waits *waiting) *metrics {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_kueue_answers_total",
			Help: "Changes of admission checks, by state (Ready, Pending, Rejected).",
		}, []string{"state"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpubank_kueue_holds_total",
			Help: "Holds that the ledger was asked for at admission, by outcome: Held, or why they were refused.",
		}, []string{"outcome"}),
		pauses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gpubank_kueue_returned_total",
			Help: "Times that a hold was given back because its Job lost its admission.",
		}),
	}
	waitingJobs := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gpubank_kueue_waiting",
		Help: "Jobs with quota that wait for credits.",
	}, func() float64 { return float64(waits.count()) })
	registry.MustRegister(m.answers, m.holds, m.pauses, waitingJobs)
	return m
}
