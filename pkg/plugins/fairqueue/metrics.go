package fairqueue

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

// mostAccounts bounds the accounts that metrics name: those with most pods waiting, then most GPUs. The others are one, named others.
const (
	mostAccounts = 100
	others       = "(others)"
)

var (
	waitingPods = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "gpubank", Subsystem: "fairqueue", Name: "waiting_pods",
		Help:           "GPU pods of an account that wait, by class, and by whether only a turn or limit is in the way (turn) or something else (other). At most 100 accounts are named; the rest are (others).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"account", "class", "for"})
	inUse = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "gpubank", Subsystem: "fairqueue", Name: "gpus_in_use",
		Help:           "GPUs that an account and everything below it holds, by class, with what is reserved but not yet bound.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"account", "class"})
	shares = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "gpubank", Subsystem: "fairqueue", Name: "share",
		Help:           "Live share of an account by which turns are given: GPUs held and held lately over the class's, of the class where that is most, by weight.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"account"})
	inHand = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "gpubank", Subsystem: "fairqueue", Name: "pods_in_hand",
		Help:           "GPU pods that were let through and have no node yet: 0 or 1.",
		StabilityLevel: metrics.ALPHA,
	})
	missedTurns = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: "gpubank", Subsystem: "fairqueue", Name: "missed_turns_total",
		Help:           "Pods whose turn it was and that did not come: another plugin gates them, or the scheduler is busy with other pods.",
		StabilityLevel: metrics.ALPHA,
	})
	// From a scheduling cycle's order to two weeks.
	waitSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "gpubank", Subsystem: "fairqueue", Name: "wait_seconds",
		Help:           "Time from a pod's creation until it has a node, by the claim it had: floor, guaranteed, starved, fair.",
		Buckets:        metrics.ExponentialBuckets(0.02, 2.5, 20),
		StabilityLevel: metrics.ALPHA,
	}, []string{"tier"})
	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(waitingPods, inUse, shares, inHand, missedTurns, waitSeconds)
	})
)

func observeWait(tier turn.Tier, wait time.Duration) {
	waitSeconds.WithLabelValues(tier.String()).Observe(max(wait, 0).Seconds())
}

// measure shows how accounts stand.
func measure(standings []turn.Standing, full bool) {
	inHand.Set(0)
	if full {
		inHand.Set(1)
	}
	named := map[string]bool{}
	slices.SortFunc(standings, func(a, b turn.Standing) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InUse, a.InUse), cmp.Compare(a.Account, b.Account))
	})
	waitingPods.Reset()
	inUse.Reset()
	shares.Reset()
	for _, s := range standings {
		if len(named) < mostAccounts {
			named[s.Account] = true
		}
		account := others
		if named[s.Account] {
			account = s.Account
			shares.WithLabelValues(account).Set(s.Share)
			inUse.WithLabelValues(account, s.Class).Set(float64(s.InUse)) // of others it would count children twice
		}
		waitingPods.WithLabelValues(account, s.Class, "turn").Add(float64(s.Ready))
		waitingPods.WithLabelValues(account, s.Class, "other").Add(float64(s.Waiting - s.Ready))
	}
}
