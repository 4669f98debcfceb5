package creditreservation

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	// From a commit on a fast disk (about 1 ms) to the longest ledger timeout's order.
	allocateSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "gpubank", Subsystem: "scheduler", Name: "allocate_seconds",
		Help:           "Time from reserving a pod in memory to the ledger's durable answer, by result: committed, refused, unavailable.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 15),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "gpubank", Subsystem: "scheduler", Name: "allocate_refusals_total",
		Help:           "Refused allocations by the ledger's code; Terms where the pod's own terms allow no hold.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"code"})
	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(allocateSeconds, refusals) })
)

func observe(a answer, took time.Duration) {
	result := "refused"
	switch {
	case a.err == errAbandoned:
		return
	case a.err != nil:
		result = "unavailable"
	case a.committed():
		result = "committed"
	case a.refusal != "":
		refusals.WithLabelValues("Terms").Inc()
	default:
		refusals.WithLabelValues(string(a.verdict.Refusal.Code)).Inc()
	}
	allocateSeconds.WithLabelValues(result).Observe(took.Seconds())
}
