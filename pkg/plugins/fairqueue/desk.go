package fairqueue

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

// handPatience is how long the pod in hand may take until its cycle begins. One scheduling cycle takes some milliseconds.
const handPatience = time.Second

// cyclePatience is how long after its begin a scheduling cycle is taken for over, if nothing is heard of it: a hundred cycles of a busy
// cluster. Not every cycle that ends without a node is heard of, and meanwhile nobody else has a turn.
const cyclePatience = time.Second

// lostRetry is after how long a pod that was not where it was looked for is looked for again.
const lostRetry = 10 * time.Second

// desk is the one queue of a process, whatever profiles it has.
type desk struct {
	args       configv1.FairQueueArgs
	clock      clock.WithTicker
	catalog    *catalog.Catalog
	namespaces corelisters.NamespaceLister
	pods       corelisters.PodLister
	activator  activator
	gates      []Gate
	groups     Groups

	client  kubernetes.Interface
	watches watches
	kicked  chan struct{}
	// Of the sweep alone: the catalog's change that was taken over last, and when less urgent things were done last.
	catalogChange    int64
	tidied, measured time.Time

	// turning is held while somebody lets the next pod through, so that two do not look for the same one.
	turning sync.Mutex

	mu      sync.Mutex
	queue   *turn.Queue
	waiting map[string]*waiting
	hand    hand
	// wanted is the pod that next has told the scheduler's queue to try.
	wanted string
	// open: pods are counted, the past is known, and pods are let through.
	open bool
	// leading: a scheduling cycle has begun in this process, so it is no standby.
	leading bool
	// unsorted are pods that came before their namespaces were known.
	unsorted map[string]*corev1.Pod
	// changed asks for another look at all pods: which account pays may have changed. nodesChanged asks to count GPUs again.
	changed, nodesChanged bool
	// What was taken over from the catalog.
	accounts []turn.Account
	listed   map[string]bool
	classes  []v1alpha1.GPUClass
	// counted is when all pods were first counted.
	counted time.Time
	history history
}

// newDesk is a desk that lets nothing through yet.
func newDesk(args configv1.FairQueueArgs, c clock.WithTicker, objects *catalog.Catalog, namespaces corelisters.NamespaceLister, pods corelisters.PodLister, a activator, gates []Gate) *desk {
	return &desk{
		args: args, clock: c, catalog: objects, namespaces: namespaces, pods: pods, activator: a, gates: gates,
		queue: turn.New(turnOptions(args)), waiting: map[string]*waiting{}, unsorted: map[string]*corev1.Pod{},
		kicked: make(chan struct{}, 1), catalogChange: -1,
	}
}

// activator is the scheduler's queue: Activate runs PreEnqueue for those pods that it has and does not hold ready.
type activator interface {
	Activate(logger klog.Logger, pods map[string]*corev1.Pod)
}

var _ activator = fwk.Handle(nil)

// Gate is another plugin that keeps pods out of the scheduler's queue.
type Gate interface {
	// Closed reports whether the plugin would gate the pod now. It must not block.
	Closed(pod *corev1.Pod) bool
}

// Groups tells which pods are placed together or not at all.
type Groups interface {
	// Together names the group of a pod, the same for all its pods; empty for one that is placed by itself. It must not block.
	Together(pod *corev1.Pod) string
}

// waiting is a pod that waits for its turn.
type waiting struct {
	pod   *corev1.Pod
	shape uint64
	// asked counts how often the scheduler's queue has asked about it.
	asked int
	// lost is when it was not where it was looked for; zero if it was.
	lost time.Time
	// since is when it came, or came back, told what its condition says and when that was written.
	since  time.Time
	told   string
	toldAt time.Time
}

// hand is the pod that was let through.
type hand struct {
	uid   string // empty: none
	tier  turn.Tier
	since time.Time
	// woken is what queue.Woken was when it was let through.
	woken int64
	// begun: its scheduling cycle has.
	begun bool
	// patience until it is set aside.
	patience time.Duration
}

// admit is told that the scheduler's queue would try the pod, and says whether it may: only if next has asked for it and it is still the one
// whose turn it is. One event may bring many pods one after the other, and only when all are here can one be chosen. It is called
// under that queue's lock.
func (d *desk) admit(pod *corev1.Pod, p turn.Pod) (through, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	w := d.wait(pod, now)
	w.asked++
	w.lost, w.since = time.Time{}, now
	p.Shape = w.shape
	if d.hand.uid == p.UID {
		if d.hand.begun { // its cycle ended in an error
			d.queue.Fail(now, p.UID, false, 0)
		}
		d.hand.uid = ""
	}
	if d.queue.Holds(p.UID) {
		return true, false // it is being bound, or is
	}
	if !d.queue.Add(now, p) { // its account is new: the next sweep knows it
		d.unsorted[p.UID], d.changed = pod, true
		return false, false
	}
	d.queue.Ready(now, p.UID)
	if !d.open || d.hand.uid != "" {
		return false, false
	}
	if d.wanted != p.UID {
		return false, true
	}
	next, some := d.queue.Next(now)
	if some && next.Pod.UID == p.UID {
		d.give(next, now)
		return true, false
	}
	return false, false // next goes on
}

// aside is told of a pod that another plugin keeps.
func (d *desk) aside(pod *corev1.Pod, p turn.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	w := d.wait(pod, now)
	w.asked++
	p.Shape = w.shape
	if d.hand.uid == p.UID {
		d.hand.uid = ""
	}
	d.queue.Add(now, p)
	d.queue.Park(now, p.UID)
}

// wait remembers a pod.
func (d *desk) wait(pod *corev1.Pod, now time.Time) *waiting {
	w := d.waiting[string(pod.UID)]
	if w == nil {
		w = &waiting{since: now}
		d.waiting[string(pod.UID)] = w
	}
	if w.pod == nil || w.pod.ResourceVersion != pod.ResourceVersion {
		w.shape = shapeOf(pod)
	}
	w.pod = pod
	return w
}

// give puts a pod into the hand.
func (d *desk) give(next turn.Turn, now time.Time) {
	patience := handPatience
	if !d.leading { // a standby's queue goes nowhere
		patience = max(patience, d.hand.patience)
	}
	d.hand = hand{uid: next.Pod.UID, tier: next.Tier, since: now, patience: patience, woken: d.queue.Woken()}
}

// begin is told that a pod's cycle has begun, and returns which limit holds it back; p is nil if the pod is none of the queue's.
func (d *desk) begin(p *turn.Pod) (quota string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leading = true
	if d.hand.begun { // cycles come one after the other, so that one is over
		d.hand.uid = ""
	}
	if p == nil {
		return ""
	}
	now := d.clock.Now()
	if quota = d.queue.Quota(*p); quota != "" {
		if d.hand.uid == p.UID {
			d.hand.uid = ""
		}
		return quota
	}
	tier, woken := turn.Fair, d.queue.Woken()
	if d.hand.uid == p.UID {
		tier, woken = d.hand.tier, d.hand.woken
	}
	d.hand = hand{uid: p.UID, tier: tier, since: now, begun: true, patience: cyclePatience, woken: woken}
	return ""
}

// overtakes is asked about the pod in hand, whose cycle has begun, with what is free in that cycle: it reports whether another one goes
// before it that could not be placed until just now. Then the pod waits for its next turn.
func (d *desk) overtakes(uid, class string, room func(gpus int64) int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if d.hand.uid != uid || !d.queue.Has(uid) {
		return false
	}
	if d.queue.Rouse(now, class, room); d.queue.Woken() == d.hand.woken {
		return false
	}
	if next, some := d.queue.Next(now); !some || next.Pod.UID == uid {
		return false
	}
	d.hand.uid = ""
	return true
}

// limited says which limit would hold a pod back whose cycle has not begun; nothing changes.
func (d *desk) limited(p turn.Pod, managed bool) string {
	if !managed {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Quota(p)
}

// fail is told that a pod in its cycle fits nowhere; alike says whether for a reason that pods which look alike share, room on how many nodes
// there were as many free GPUs as it asks for.
func (d *desk) fail(uid string, alike bool, room int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hand.uid == uid {
		d.hand.uid = ""
		d.queue.Fail(d.clock.Now(), uid, alike, room)
	}
}

// reserve is told that a pod has got a node: from now on it holds its GPUs.
func (d *desk) reserve(p turn.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if d.hand.uid == p.UID {
		observeWait(d.hand.tier, now.Sub(p.Created))
		d.hand.uid = ""
	}
	d.queue.Take(now, p)
	delete(d.waiting, p.UID)
}

// unreserve is told that a pod was not bound. known is the pod as the API server last told, nil if it is gone.
func (d *desk) unreserve(p turn.Pod, known *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if known != nil && known.Spec.NodeName != "" {
		return // binding it only seemed to fail
	}
	d.queue.Free(now, p.UID)
	if d.hand.uid == p.UID {
		d.hand.uid = ""
	}
	if known == nil {
		return
	}
	w := d.wait(known, now)
	p.Shape = w.shape
	d.queue.Add(now, p)
	d.queue.Fail(now, p.UID, false, 0)
}

// forget is told that a pod is gone.
func (d *desk) forget(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.Free(d.clock.Now(), uid)
	d.drop(uid)
}

// dismiss is told that a pod that waits is none of the queue's.
func (d *desk) dismiss(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(uid)
}

// drop a pod that waits, if it does.
func (d *desk) drop(uid string) {
	d.queue.Remove(d.clock.Now(), uid)
	delete(d.waiting, uid)
	delete(d.unsorted, uid)
	if d.hand.uid == uid {
		d.hand.uid = ""
	}
}

// next lets the pod through whose turn it is, if no other is in hand. The scheduler's queue asks admit, under its lock; by then
// another one's turn may have come, which is then looked for.
func (d *desk) next(ctx context.Context) {
	d.turning.Lock()
	defer d.turning.Unlock()
	for {
		uid, pod, asked := d.candidate()
		if pod == nil {
			return
		}
		d.activator.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{uid: pod})
		d.missed(uid, asked)
	}
}

// candidate is the pod to look for; nil if there is none, or no need.
func (d *desk) candidate() (uid string, pod *corev1.Pod, asked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open || d.hand.uid != "" {
		return "", nil, 0
	}
	next, some := d.queue.Next(d.clock.Now())
	if !some {
		return "", nil, 0
	}
	w := d.waiting[next.Pod.UID]
	d.wanted = next.Pod.UID
	return next.Pod.UID, w.pod, w.asked
}

// missed sets a pod aside that the scheduler's queue did not ask about when told to: another plugin gates it, or it is on its way already.
// It comes back when that queue asks; just in case, it is also looked for again.
func (d *desk) missed(uid string, asked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = ""
	if w := d.waiting[uid]; w != nil && w.asked == asked && d.hand.uid != uid {
		now := d.clock.Now()
		d.queue.Park(now, uid)
		w.lost = now
		missedTurns.Inc()
	}
}
