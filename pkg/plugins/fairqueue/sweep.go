package fairqueue

import (
	"context"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// How often a sweep also does what need not be done at once.
const (
	tidyPeriod   = 5 * time.Second
	metricPeriod = 5 * time.Second
)

// kick asks for the next pod to be let through, from where that cannot be done itself.
func (d *desk) kick() {
	select {
	case d.kicked <- struct{}{}:
	default: // somebody has asked already
	}
}

// run lets pods through when asked, and looks over the queue every SweepPeriod, until ctx ends.
func (d *desk) run(ctx context.Context) {
	go d.remember(ctx)
	go d.explain(ctx)
	ticker := d.clock.NewTicker(d.args.SweepPeriod.Duration)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.kicked:
		case <-ticker.C():
			d.sweep(ctx)
		}
		d.next(ctx)
	}
}

// sweep takes over what has changed around the queue.
func (d *desk) sweep(ctx context.Context) {
	d.takeAccounts(ctx)
	d.takeCapacity()
	d.lookAgain(ctx)
	d.openUp(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	d.queue.Advance(now)
	d.emptyHand(now)
	if now.Sub(d.tidied) >= tidyPeriod {
		d.tidied = now
		d.tidy(now)
	}
	if now.Sub(d.measured) >= metricPeriod {
		d.measured = now
		measure(d.queue.Standings(), d.hand.uid != "")
	}
}

// takeAccounts takes over policies that have changed. Pods that lose their account go on to be refused.
func (d *desk) takeAccounts(ctx context.Context) {
	change := d.catalog.Change()
	if change == d.catalogChange {
		return
	}
	d.catalogChange = change
	accounts := d.accountsOf(d.catalog.Accounts())
	listed := map[string]bool{} // namespaces by account: who lists whom decides who pays
	for _, object := range d.catalog.Accounts() {
		for _, namespace := range object.Spec.Namespaces {
			listed[object.Name+"/"+namespace] = true
		}
	}
	classes := d.catalog.Classes()
	d.mu.Lock()
	if !reflect.DeepEqual(listed, d.listed) || len(classes) != len(d.classes) || len(classes) > 0 && &classes[0] != &d.classes[0] {
		d.listed, d.classes = listed, classes
		d.changed, d.nodesChanged = true, true
	}
	var orphans []string
	if !reflect.DeepEqual(accounts, d.accounts) {
		d.accounts = accounts
		before := d.queue.HalfLives()
		orphans = d.queue.SetAccounts(d.clock.Now(), accounts)
		if !slices.Equal(before, d.queue.HalfLives()) {
			d.askPast()
		}
	}
	pods := map[string]*corev1.Pod{}
	for _, uid := range orphans {
		if w := d.waiting[uid]; w != nil {
			pods[uid] = w.pod
		}
	}
	d.mu.Unlock()
	if len(pods) > 0 {
		d.activator.Activate(klog.FromContext(ctx), pods)
	}
}

// takeCapacity counts the GPUs there are, after a change of nodes or classes.
func (d *desk) takeCapacity() {
	d.mu.Lock()
	changed := d.nodesChanged
	d.nodesChanged = false
	d.mu.Unlock()
	if !changed || d.watches.nodeLister == nil {
		return
	}
	nodes, err := d.watches.nodeLister.List(labels.Everything())
	if err != nil {
		return // a lister of memory has no errors
	}
	gpus := capacityOf(nodes, d.catalog.Classes())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.SetCapacity(d.clock.Now(), gpus)
}

// lookAgain sorts all pods anew, after a change of who pays for them or of what a GPU is.
func (d *desk) lookAgain(ctx context.Context) {
	d.mu.Lock()
	changed := d.changed && (d.watches.namespaces == nil || d.watches.namespaces.HasSynced())
	if changed {
		d.changed = false
	}
	again := map[string]*corev1.Pod{}
	if changed {
		for uid, pod := range d.unsorted {
			again[uid] = pod
		}
		clear(d.unsorted)
		for uid, w := range d.waiting {
			if uid != d.hand.uid {
				again[uid] = w.pod
			}
		}
	}
	d.mu.Unlock()
	if !changed {
		return
	}
	if all, err := d.pods.List(labels.Everything()); err == nil {
		for _, pod := range all {
			if pod.Spec.NodeName != "" {
				d.observe(pod)
			}
		}
	}
	// The scheduler's queue asks about each again, and gets the answer that is right now.
	for uid, pod := range again {
		p, managed := d.managed(pod)
		d.mu.Lock()
		w := d.waiting[uid]
		same := w != nil && managed && d.queue.Same(p)
		d.mu.Unlock()
		if same {
			delete(again, uid)
		}
	}
	if len(again) > 0 {
		d.activator.Activate(klog.FromContext(ctx), again)
	}
}

// openUp begins to let pods through, once all pods are counted and the past is known or has been waited for.
func (d *desk) openUp(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open || !d.watches.pods.HasSynced() || !d.watches.namespaces.HasSynced() || !d.watches.nodes.HasSynced() {
		return
	}
	now := d.clock.Now()
	if d.counted.IsZero() {
		d.counted = now
		d.askPast()
	}
	if !d.history.known && now.Sub(d.counted) < d.args.HistoryPatience.Duration {
		return
	}
	d.open = true
	klog.FromContext(ctx).Info("Fair queue is open", "accounts", len(d.accounts), "pastKnown", d.history.known)
}

// emptyHand sets the pod in hand aside when it does not come. While nothing has ever been scheduled, this may be a standby: so that its
// queue does not fill, patience doubles.
func (d *desk) emptyHand(now time.Time) {
	if d.hand.uid == "" || now.Sub(d.hand.since) < d.hand.patience {
		return
	}
	if !d.hand.begun {
		d.queue.Park(now, d.hand.uid)
		if w := d.waiting[d.hand.uid]; w != nil {
			w.lost = now
		}
		missedTurns.Inc()
	} else {
		klog.InfoS("Nothing was heard of a scheduling cycle's end; the next pod has its turn", "podUID", d.hand.uid, "after", now.Sub(d.hand.since))
	}
	d.hand.uid = ""
	if !d.leading {
		d.hand.patience *= 2
	}
}

// tidy looks again for pods that were not where they were looked for, and drops those that are gone, in case that went unnoticed.
func (d *desk) tidy(now time.Time) {
	for uid, w := range d.waiting {
		pod := d.current(w.pod)
		if pod == nil {
			if now.Sub(w.since) > tidyPeriod {
				d.drop(uid)
			}
			continue
		}
		if pod.Spec.NodeName != "" {
			d.drop(uid)
			continue
		}
		if !w.lost.IsZero() && now.Sub(w.lost) >= lostRetry {
			w.lost = time.Time{}
			d.queue.Ready(now, uid)
		}
	}
}
