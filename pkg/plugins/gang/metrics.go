package gang

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	standing = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "gpubank", Subsystem: "scheduler", Name: "gangs",
		Help:           "Gangs that are not placed: waiting (for members, for their turn or for room) or collecting (some members have a node).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"state"})
	results = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "gpubank", Subsystem: "scheduler", Name: "gang_rounds_total",
		Help:           "Tries to place a gang by how they ended: admitted, timed_out, no_node (a member found none), member_left (deleted or refused).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	// From one scheduling cycle per member to a day in the queue.
	waitSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: "gpubank", Subsystem: "scheduler", Name: "gang_wait_seconds",
		Help:           "Time from a gang's first pod in the queue until all members had a node.",
		Buckets:        metrics.ExponentialBuckets(0.01, 4, 12),
		StabilityLevel: metrics.ALPHA,
	})
	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(standing, results, waitSeconds) })
)

func observeStanding(waiting, collecting int) {
	standing.WithLabelValues("waiting").Set(float64(waiting))
	standing.WithLabelValues("collecting").Set(float64(collecting))
}

func observeAdmitted(waited time.Duration) {
	results.WithLabelValues("admitted").Inc()
	waitSeconds.Observe(waited.Seconds())
}

func observeGivenUp(result string) { results.WithLabelValues(result).Inc() }
