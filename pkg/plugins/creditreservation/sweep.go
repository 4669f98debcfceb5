package creditreservation

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// pingTimeout is how long a ledger that is tried again may take to answer; it keeps a sweep short.
const pingTimeout = 2 * time.Second

// sweep looks over the waiting pods, every SweepPeriod, until ctx ends.
func (pl *CreditReservation) sweep(ctx context.Context) {
	ticker := pl.clock.NewTicker(pl.args.SweepPeriod.Duration)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			pl.sweepOnce(ctx)
		}
	}
}

// sweepOnce tries a ledger that is down, and activates the pods whose wait is over.
func (pl *CreditReservation) sweepOnce(ctx context.Context) {
	if pl.health.down() != nil {
		pl.checkLedger(ctx)
	}
	alive := map[types.UID]bool{}
	ready := map[string]*corev1.Pod{}
	for _, w := range pl.waits.all() {
		pod := pl.current(w.pod)
		if pod == nil {
			pl.waits.forget(w.pod.UID)
			continue
		}
		alive[pod.UID] = true
		if !w.woken && pl.waitOver(&w, pod) {
			ready[string(pod.UID)] = pod
		}
	}
	if len(ready) > 0 {
		pl.handle.Activate(klog.FromContext(ctx), ready)
	}
	pl.lanes.prune(func(uid types.UID) bool { return alive[uid] })
}

// checkLedger finds out whether it is the ledger that does not answer, or only one command that fails. While it is down
// no pod is sent to wait for it.
func (pl *CreditReservation) checkLedger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := pl.ledger.Ping(ctx); pl.health.saw(err, pl.clock.Now()) {
		klog.FromContext(pl.ctx).Info("Ledger's answering has changed", "answers", err == nil, "reason", err)
	}
}

// current returns the pod as the scheduler knows it now, or nil when it is gone, replaced or bound.
func (pl *CreditReservation) current(pod *corev1.Pod) *corev1.Pod {
	now, err := pl.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
		return nil
	}
	return now
}

func (pl *CreditReservation) waitOver(w *wait, pod *corev1.Pod) bool {
	return w.over(pl.clock.Now(), pl.catalog, pl.health.down() == nil, func() judgement { return judge(pl.gather(pod)) })
}
