package checkpointpreemption

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Why a preemption was refused.
const (
	refusedByPolicy    = "PolicyNever"      // the pod's preemptionPolicy
	refusedByKueue     = "Kueue"            // Kueue preempts for it
	refusedWaiting     = "WaitingForVictim" // it has stopped others, and they are not over
	refusedNoChoice    = "NobodyMayBeTaken" // no node where enough may be taken
	refusedByFilters   = "WouldNotFit"      // enough may be taken somewhere, and it would not fit there
	refusedByLedger    = "NotRecorded"      // the ledger has not recorded it
	refusedByEvaluator = "Evaluator"        // upstream's evaluator or an extender
)

var (
	preempted = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "gpubank", Subsystem: "preemption", Name: "victims_total",
		Help:           "Pods stopped for others, by the account that lost them and the reason: Priority, Reclaim.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"account", "reason"})
	believed = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "gpubank", Subsystem: "preemption", Name: "believed_lost_gpu_seconds_total",
		Help:           "GPU-seconds of work that stopping pods was believed to destroy, by account and reason. What was found is the controller's to say.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"account", "reason"})
	// From seconds to two days.
	checkpointAge = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: "gpubank", Subsystem: "preemption", Name: "checkpoint_age_seconds",
		Help:           "Age of the last checkpoint, as believed, of pods that were stopped.",
		Buckets:        metrics.ExponentialBuckets(10, 2.5, 11),
		StabilityLevel: metrics.ALPHA,
	})
	refused = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "gpubank", Subsystem: "preemption", Name: "refused_total",
		Help:           "Preemptions that did not take place, by why.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"why"})
	// A decision on 5,000 nodes takes some tens of milliseconds.
	decisionSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: "gpubank", Subsystem: "preemption", Name: "decision_seconds",
		Help:           "Time to decide whom to stop, until eviction begins.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 13),
		StabilityLevel: metrics.ALPHA,
	})
	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(preempted, believed, checkpointAge, refused, decisionSeconds)
	})
)
