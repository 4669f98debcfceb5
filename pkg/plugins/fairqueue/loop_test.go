package fairqueue

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
)

const (
	testProfile = "gpubank-scheduler"
	testClass   = "h100"
	// fits stands for the plugin that finds no node; the scheduler's queue tries its pods again when a pod has ended.
	fits = "NodeResourcesFit"
)

// loop is the scheduler's own queue with the plugin in it, and a scheduling loop of which placement is a count of free GPUs.
type loop struct {
	ctx        context.Context
	queue      *queue.PriorityQueue
	plugin     *FairQueue
	desk       *desk
	clock      *clocktesting.FakeClock
	objects    *catalog.Catalog
	namespaces cache.Indexer
	pods       cache.Indexer
	free       int64
	running    []*corev1.Pod
	made       int
}

// closedGate gates what it lists, without saying so but to who asks.
type closedGate map[types.UID]bool

func (g closedGate) Closed(pod *corev1.Pod) bool { return g[pod.UID] }
func (g closedGate) Name() string                { return "Closed" }
func (g closedGate) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if g[pod.UID] {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "closed")
	}
	return nil
}

func newLoop(ctx context.Context, gpus int64, hidden, told closedGate, accounts ...*v1alpha1.CreditAccount) *loop {
	metrics.Register()
	registerMetrics()
	l := &loop{
		ctx: ctx, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)), objects: catalog.New(), free: gpus,
		namespaces: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		pods:       cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	l.objects.SetClass(v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: testClass}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}}})
	for _, account := range accounts {
		l.account(account)
	}
	args := configv1.FairQueueArgs{}
	configv1.SetDefaultsFairQueueArgs(&args)
	l.desk = newDesk(args, l.clock, l.objects, corelisters.NewNamespaceLister(l.namespaces), corelisters.NewPodLister(l.pods), nil, []Gate{told})
	l.desk.open = true
	l.plugin = &FairQueue{desk: l.desk}
	hint := &queue.QueueingHintFunction{PluginName: fits, QueueingHintFn: func(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil }}
	sort := &queuesort.PrioritySort{}
	l.queue = queue.NewPriorityQueue(sort.Less, informers.NewSharedInformerFactory(fake.NewClientset(), 0),
		queue.WithClock(l.clock),
		queue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Hour, ctx.Done())),
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{testProfile: {Name: l.plugin, "Closed": hidden}}),
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{testProfile: {framework.EventAssignedPodDelete: {hint}}}),
	)
	l.desk.activator = l.queue
	l.desk.takeAccounts(ctx)
	l.desk.queue.SetCapacity(l.clock.Now(), map[string]int64{testClass: gpus})
	return l
}

func testAccount(name string, weight int64, limits ...v1alpha1.GPULimit) *v1alpha1.CreditAccount {
	return &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditAccountSpec{
		Namespaces: []string{name}, Policy: v1alpha1.AccountPolicy{GPUs: limits, FairShare: v1alpha1.FairSharePolicy{Weight: weight}},
	}}
}

// account makes an account, and the namespace of that name that it pays for.
func (l *loop) account(a *v1alpha1.CreditAccount) {
	l.objects.SetAccount(a)
	if err := l.namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Labels: map[string]string{v1alpha1.AccountLabel: a.Name}}}); err != nil {
		panic(err)
	}
}

func (l *loop) pod(namespace string, gpus int64) *corev1.Pod {
	l.made++
	name := fmt.Sprintf("p%04d", l.made)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(l.clock.Now())},
		Spec:       corev1.PodSpec{SchedulerName: testProfile, Containers: []corev1.Container{{Name: "main"}}},
	}
	if gpus > 0 {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return pod
}

// submit is a pod's creation, as the scheduler sees it.
func (l *loop) submit(pod *corev1.Pod) *corev1.Pod {
	if err := l.pods.Add(pod); err != nil {
		panic(err)
	}
	l.queue.Add(l.ctx, pod)
	l.kicked()
	return pod
}

// kicked does what the plugin's own goroutine does when it is asked.
func (l *loop) kicked() {
	select {
	case <-l.desk.kicked:
		l.desk.next(l.ctx)
	default:
	}
}

// sweep is the passage of time, and what the plugin's own goroutine does then.
func (l *loop) sweep(passed time.Duration) {
	l.clock.Step(passed)
	l.desk.takeAccounts(l.ctx)
	l.desk.lookAgain(l.ctx)
	l.desk.mu.Lock()
	l.desk.queue.Advance(l.clock.Now())
	l.desk.emptyHand(l.clock.Now())
	l.desk.tidy(l.clock.Now())
	l.desk.mu.Unlock()
	l.desk.next(l.ctx)
}

func (l *loop) ready() int { return len(l.queue.PodsInActiveQ()) + len(l.queue.PodsInBackoffQ()) }

// cycle is one scheduling cycle, and the binding that follows; nil if the scheduler's queue has nothing.
func (l *loop) cycle() (pod *corev1.Pod, bound bool) {
	if l.ready() == 0 {
		return nil, false
	}
	logger := klog.FromContext(l.ctx)
	entity, err := l.queue.Pop(logger)
	if err != nil {
		panic(err)
	}
	info := entity.(*framework.QueuedPodInfo)
	pod = info.Pod
	state := framework.NewCycleState()
	node := framework.NewNodeInfo()
	node.SetNode(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(l.free, resource.DecimalSI)}}})
	_, status := l.plugin.PreFilter(l.ctx, state, pod, []fwk.NodeInfo{node})
	var asked int64
	if quantity, some := pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]; some {
		asked = quantity.Value()
	}
	if !status.IsSuccess() && !status.IsSkip() || asked > l.free {
		l.plugin.PostFilter(l.ctx, state, pod, nil)
		info.UnschedulablePlugins = sets.New(fits)
		if !status.IsSuccess() {
			info.UnschedulablePlugins = sets.New(Name)
		}
		if err := l.queue.AddUnschedulablePodIfNotPresent(logger, info, l.queue.SchedulingCycle()); err != nil {
			panic(err)
		}
		return pod, false
	}
	l.free -= asked
	l.plugin.Reserve(l.ctx, state, pod, "node")
	l.queue.Done(pod.UID)
	running := pod.DeepCopy()
	running.Spec.NodeName, running.ResourceVersion = "node", "2"
	if err := l.pods.Update(running); err != nil {
		panic(err)
	}
	l.desk.observe(running)
	l.running = append(l.running, running)
	return pod, true
}

// finish ends a running pod.
func (l *loop) finish(at int) {
	pod := l.running[at]
	l.running = append(l.running[:at], l.running[at+1:]...)
	quantity := pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
	l.free += quantity.Value()
	if err := l.pods.Delete(pod); err != nil {
		panic(err)
	}
	l.desk.forget(string(pod.UID))
	l.queue.MoveAllToActiveOrBackoffQueue(klog.FromContext(l.ctx), framework.EventAssignedPodDelete, pod, nil, nil)
	l.desk.next(l.ctx)
}

// GPUs that become free go to the account whose turn it is, in whatever order the scheduler's queue, its nodes and the plugin hear of it, and
// whoever rests after a failure then.
func TestFreedGPUsGoToWhoseTurnItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		l := newLoop(ctx, 16, closedGate{}, closedGate{}, testAccount("has", 1), testAccount("lacks", 1))
		for range 2 {
			l.submit(l.pod("has", 8))
			l.cycle()
		}
		// Tried, or not, and at rest for as long as it may be.
		for _, account := range rapid.Permutation([]string{"has", "has", "has", "lacks"}).Draw(t, "who waits") {
			l.submit(l.pod(account, 8))
			for range rapid.IntRange(1, 3).Draw(t, "cycles") { // no pod stays in hand while the scheduler runs
				l.cycle()
			}
			l.sweep(rapid.SampledFrom([]time.Duration{10 * time.Millisecond, 900 * time.Millisecond, 11 * time.Second}).Draw(t, "passed"))
		}
		for pod, _ := l.cycle(); pod != nil; pod, _ = l.cycle() {
		}
		over := l.running[0]
		l.running = l.running[1:]
		if err := l.pods.Delete(over); err != nil {
			t.Fatal(err)
		}
		hears := map[string]func(){
			"plugin": func() { l.desk.forget(string(over.UID)); l.desk.next(l.ctx) },
			"nodes": func() {
				l.free += 8
				l.queue.MoveAllToActiveOrBackoffQueue(klog.FromContext(l.ctx), framework.EventAssignedPodDelete, over, nil, nil)
				l.kicked()
			},
		}
		for _, who := range rapid.Permutation([]string{"plugin", "nodes"}).Draw(t, "who hears of it first") {
			hears[who]()
			for range rapid.IntRange(0, 2).Draw(t, "cycles between") {
				l.cycle()
			}
		}
		for range 100 {
			if len(l.running) == 2 {
				break
			}
			if pod, _ := l.cycle(); pod == nil {
				l.sweep(250 * time.Millisecond)
			}
		}
		if len(l.running) != 2 || l.running[1].Namespace != "lacks" {
			t.Fatalf("%d run, the last of %s", len(l.running), l.running[len(l.running)-1].Namespace)
		}
	})
}

// After every cycle, whatever came before, the one GPU pod in the scheduler's queue is the one whose turn it is by the shares of that
// moment; there is never a second; and in the end, when there is room, everything has been placed.
func TestTheSchedulersQueueHoldsTheNextPodAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		hidden, hiding := closedGate{}, rapid.Bool().Draw(t, "another plugin gates pods")
		l := newLoop(ctx, rapid.Int64Range(1, 24).Draw(t, "GPUs"), hidden, closedGate{}, testAccount("a", 1), testAccount("b", 2),
			testAccount("c", 1, v1alpha1.GPULimit{Class: testClass, Guaranteed: 2, Borrowable: 6}))
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				pod := l.pod(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "account"), rapid.SampledFrom([]int64{1, 2, 8}).Draw(t, "GPUs"))
				if hiding && rapid.IntRange(0, 9).Draw(t, "gated by another plugin") == 0 {
					hidden[pod.UID] = true
				}
				l.submit(pod)
			},
			"cycle": func(t *rapid.T) {
				if pod, _ := l.cycle(); pod == nil || hiding {
					return
				}
				want, some := l.desk.queue.Next(l.clock.Now())
				active := l.queue.PodsInActiveQ()
				if some != (len(active) == 1) || some && string(active[0].UID) != want.Pod.UID {
					t.Fatalf("after a cycle the scheduler's queue has %d pods, the next pod is %v %+v", len(active), some, want)
				}
			},
			"finish": func(t *rapid.T) {
				if len(l.running) > 0 {
					l.finish(rapid.IntRange(0, len(l.running)-1).Draw(t, "which"))
				}
			},
			"sweep": func(*rapid.T) {
				l.cycle() // no pod stays in hand for a second while the scheduler runs
				l.sweep(900 * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if n := l.ready(); n > 1 && !hiding {
					t.Fatalf("%d GPU pods are in the scheduler's queue", n)
				}
			},
		})
		clear(hidden)
		l.free = 1 << 40
		l.objects.SetAccount(testAccount("c", 1))
		for range 1000 {
			if len(l.desk.waiting) == 0 {
				break
			}
			if pod, _ := l.cycle(); pod == nil {
				l.queue.MoveAllToActiveOrBackoffQueue(klog.FromContext(ctx), framework.EventAssignedPodDelete, nil, nil, nil)
				l.sweep(time.Second)
			}
		}
		if len(l.desk.waiting) > 0 {
			t.Errorf("%d pods are never placed", len(l.desk.waiting))
		}
	})
}

// A thousand pods of one account are one attempt while they fit nowhere, and another account's pod does not wait for any of them.
func TestAThousandPodsDelayNobody(t *testing.T) {
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{}, testAccount("many", 1), testAccount("one", 1))
	for range 1000 {
		l.submit(l.pod("many", 8))
	}
	attempts := 0
	for pod, _ := l.cycle(); pod != nil; pod, _ = l.cycle() {
		attempts++
	}
	if attempts != 2 {
		t.Errorf("%d attempts: want one that fits and one that does not", attempts)
	}
	one := l.submit(l.pod("one", 8))
	if pod, _ := l.cycle(); pod == nil || pod.UID != one.UID {
		t.Fatalf("next is %v", pod)
	}
	l.sweep(2 * time.Second) // the first has used something by then
	l.finish(0)
	if pod, bound := l.cycle(); pod == nil || pod.UID != one.UID || !bound {
		t.Errorf("after a pod has ended, the next is %v", pod)
	}
}

// E27 and quota: who is held back by a limit is never tried, and goes on when the limit is raised.
func TestLimitHoldsPodsOutOfTheSchedulersQueue(t *testing.T) {
	limit := v1alpha1.GPULimit{Class: testClass, Guaranteed: 1, Borrowable: 1}
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{}, testAccount("a", 1, limit))
	for range 4 {
		l.submit(l.pod("a", 1))
	}
	for range 2 {
		if _, bound := l.cycle(); !bound {
			t.Fatal("a pod within the limit is not placed")
		}
	}
	if pod, _ := l.cycle(); pod != nil {
		t.Fatalf("pod %s is tried beyond the limit", pod.Name)
	}
	limit.Borrowable = 3
	l.objects.SetAccount(testAccount("a", 1, limit))
	l.sweep(time.Second)
	for range 2 {
		if _, bound := l.cycle(); !bound {
			t.Fatal("a pod within the new limit is not placed")
		}
	}
}

// Pods that are none of the queue's business go straight through, and pods that another plugin keeps do not stand in the way.
func TestOthersAreLeftAlone(t *testing.T) {
	told := closedGate{}
	l := newLoop(t.Context(), 8, told, told, testAccount("a", 1))
	if err := l.namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.submit(l.pod("a", 0))
		l.submit(l.pod("stranger", 4))
	}
	if n := len(l.queue.PodsInActiveQ()); n != 6 {
		t.Errorf("%d of 6 pods are in the scheduler's queue", n)
	}
	for range 20 {
		kept := l.pod("a", 1)
		told[kept.UID] = true
		l.submit(kept)
	}
	last := l.submit(l.pod("a", 1))
	if l.desk.hand.uid != string(last.UID) {
		t.Errorf("in hand is %q, want %q", l.desk.hand.uid, last.UID)
	}
}

// A standby's queue is filled by the API server, and emptied by nobody: it must not let through all that waits.
func TestStandbyLetsFewThrough(t *testing.T) {
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{}, testAccount("a", 1))
	for range 100 {
		l.submit(l.pod("a", 1))
	}
	for range 3600 {
		l.sweep(time.Second)
	}
	if n := len(l.queue.PodsInActiveQ()); n > 13 {
		t.Errorf("after an hour %d pods are in a standby's queue", n)
	}
	bound := 0
	for range 8 {
		if _, placed := l.cycle(); placed {
			bound++
		}
	}
	if bound != 8 {
		t.Errorf("%d pods are placed once it leads", bound)
	}
}

// A2: what runs already is counted before anything is let through, and a pod that comes before its namespace is known waits for it.
func TestRestartCountsBeforeItOpens(t *testing.T) {
	limit := v1alpha1.GPULimit{Class: testClass, Guaranteed: 2}
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{}, testAccount("a", 1, limit))
	l.desk.open = false
	waits := l.submit(l.pod("a", 1))
	if pod, _ := l.cycle(); pod != nil {
		t.Fatal("a pod is tried before the queue is open")
	}
	for range 2 {
		running := l.pod("a", 1)
		running.Spec.NodeName = "node"
		l.desk.observe(running)
	}
	l.desk.open = true
	l.sweep(time.Second)
	if pod, _ := l.cycle(); pod != nil {
		t.Fatalf("pod %s goes beyond the limit that running pods use up", pod.Name)
	}
	if text := l.desk.queue.Explain(string(waits.UID)); text == "" {
		t.Error("the pod that waits has no reason")
	}
}
