package creditreservation

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/gang"
)

// CreditReservation lets no GPU pod be bound before its allocation is committed.
type CreditReservation struct {
	ctx        context.Context // of the scheduler: attempts outlive scheduling cycles
	args       configv1.CreditReservationArgs
	handle     fwk.Handle
	client     kubernetes.Interface
	namespaces corelisters.NamespaceLister
	pods       corelisters.PodLister
	catalog    *catalog.Catalog
	clock      clock.WithTicker

	ledger     Ledger
	leadership *leadership
	exit       func(reason string)

	health   health
	waits    waits
	lanes    lanes
	parties  parties
	attempts atomic.Int64 // makes the keys of this process's commands unique
}

var _ fwk.PreEnqueuePlugin = &CreditReservation{}
var _ fwk.PreFilterPlugin = &CreditReservation{}
var _ fwk.ReservePlugin = &CreditReservation{}
var _ fwk.PreBindPlugin = &CreditReservation{}
var _ fwk.PostBindPlugin = &CreditReservation{}
var _ fwk.EnqueueExtensions = &CreditReservation{}
var _ fwk.SignPlugin = &CreditReservation{}

// CommitSpacing is how far apart the ledger's commits start while pods come one after the other. A scheduler picks the
// next pod while earlier ones wait to be bound, so what counts is the work per pod, not how soon each is answered.
const CommitSpacing = 20 * time.Millisecond

const (
	// Name of the plugin in the registry and in configurations.
	Name = "CreditReservation"

	factsKey   fwk.StateKey = "PreFilter" + Name
	attemptKey fwk.StateKey = "Reserve" + Name
)

// Clone returns the facts themselves: they are never written again.
func (f *facts) Clone() fwk.StateData { return f }

// Name returns the plugin's name.
func (pl *CreditReservation) Name() string { return Name }

// PreEnqueue keeps a pod out of the queue for as long as it is known why it would be refused. The pod's condition says so already.
func (pl *CreditReservation) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	w, waiting := pl.waits.get(pod.UID)
	if !waiting {
		return nil
	}
	over := pl.waitOver(&w, pod)
	pl.waits.woken(pod.UID, over)
	if over {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, w.message)
}

// PreFilter refuses, without preempting anyone, what no account pays for.
func (pl *CreditReservation) PreFilter(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	f := pl.gather(pod)
	j := judge(f)
	if j.skip {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if j.refusal != "" {
		pl.waits.put(wait{pod: pod, reason: forEnrolment, message: j.refusal, notBefore: pl.clock.Now()})
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, j.refusal)
	}
	cycle.Write(factsKey, &f)
	return nil, nil
}

// PreFilterExtensions do not exist: other pods on a node do not change who pays.
func (pl *CreditReservation) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Reserve starts an attempt and does not wait for it.
func (pl *CreditReservation) Reserve(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	data, err := cycle.Read(factsKey)
	if err != nil || cycle.IsPodGroupSchedulingCycle() {
		return nil // no GPUs, or kube-scheduler only tries out where a group would go: then it reserves once more
	}
	f := data.(*facts)
	if status := pl.checkClass(f, node); status != nil {
		return status
	}
	a := pl.newAttempt(pod, node, *f)
	cycle.Write(attemptKey, a)
	if round := gang.RoundOf(cycle); round != nil {
		pl.join(round, a)
		return nil
	}
	if err := pl.health.down(); err != nil {
		// Asking would only make the pod hold its node for the whole timeout.
		a.answer = answer{err: err}
		close(a.answered)
		return nil
	}
	go a.run()
	return nil
}

// checkClass keeps the price honest whatever else the profile enables: a pod priced as one class must hold GPUs of it.
func (pl *CreditReservation) checkClass(f *facts, node string) *fwk.Status {
	class, known := pl.catalog.Class(f.demand.Class)
	info, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("read node %s to check its class: %w", node, err))
	}
	if !known || !catalog.OfClass(info.Node().Labels, class.Spec.NodeSelector) {
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("Placement: node %s is not of GPU class %s; enable the plugin GPUBestFit in this profile", node, f.demand.Class))
	}
	return nil
}

// PreBindPreFlight skips pods without GPUs.
func (pl *CreditReservation) PreBindPreFlight(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if attemptOf(cycle) == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind waits until the allocation is committed.
func (pl *CreditReservation) PreBind(ctx context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	a := attemptOf(cycle)
	if a == nil {
		return nil
	}
	select {
	case <-a.answered:
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	}
	if a.answer.committed() {
		pl.waits.forget(pod.UID)
		a.bindable = true
		failpoint.Hit("scheduler.after-allocate")
		return nil
	}
	if a.answer.stale() {
		pl.exit("Another scheduler has acquired the leadership in the ledger; exiting, so that only one leads")
		return fwk.AsStatus(a.answer.verdict.Refusal)
	}
	message := a.answer.explain()
	waitsFor, needed := a.answer.waitFor()
	now := pl.clock.Now()
	retry := pl.args.RefusalRetry.Duration
	if waitsFor == forCredits || waitsFor == forQuota {
		retry = creditRetry
	}
	pl.waits.put(wait{
		pod: pod, reason: waitsFor, message: message, account: a.facts.account.Name, needed: needed,
		since: a.since, notBefore: now, retryAt: now.Add(retry),
	})
	return fwk.NewStatus(fwk.Unschedulable, message)
}

// PostBind tells the ledger that the pod is bound.
func (pl *CreditReservation) PostBind(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ string) {
	if a := attemptOf(cycle); a != nil {
		a.bound()
	}
}

// Unreserve abandons the attempt, if there is one. It may be called twice, and does not wait.
func (pl *CreditReservation) Unreserve(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ string) {
	if a := attemptOf(cycle); a != nil {
		a.abandon()
	}
}

// SignPod adds nothing to the pod's signature: which nodes fit it does not depend on this plugin, and what it decides for each pod
// is decided for batched pods too.
func (pl *CreditReservation) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

func attemptOf(cycle fwk.CycleState) *attempt {
	data, err := cycle.Read(attemptKey)
	if err != nil {
		return nil
	}
	return data.(*attempt)
}

// Deps are what the plugin cannot make itself.
type Deps struct {
	Catalog *catalog.Source
	// Open returns the ledger; it is called once. It should not fail because the ledger is away.
	Open func(context.Context) (Ledger, error)
	// Exit ends the process: it must not lead any longer.
	Exit func(reason string)
	// Gates is told of every plugin that is made; nil for nobody to ask.
	Gates *Gates
	// Clock is the real one by default.
	Clock clock.WithTicker
}

// NewFactory returns what makes the plugin, for kube-scheduler's registry. All profiles of a process share the ledger, and its
// leadership: two would make each other stale.
func NewFactory(deps Deps) frameworkruntime.PluginFactory { return NewDesk(deps).Factory() }

// Factory returns what makes the plugin, for kube-scheduler's registry.
func (d *Desk) Factory() frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*configv1.CreditReservationArgs)
		if !ok {
			return nil, fmt.Errorf("plugin %s wants arguments of type CreditReservationArgs, got %T", Name, object)
		}
		if err := configv1.ValidateCreditReservationArgs(args); err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
		registerMetrics()
		objects, err := d.deps.Catalog.Get(ctx, handle.KubeConfig())
		if err != nil {
			return nil, err
		}
		leads, err := d.leadership(ctx, args.Leadership)
		if err != nil {
			return nil, err
		}
		core := handle.SharedInformerFactory().Core().V1()
		pl := &CreditReservation{
			ctx: ctx, args: *args, handle: handle, client: handle.ClientSet(),
			namespaces: core.Namespaces().Lister(), pods: core.Pods().Lister(),
			catalog: objects, clock: d.deps.Clock,
			ledger: leads.ledger, leadership: leads, exit: d.deps.Exit,
			waits: waits{byUID: map[types.UID]*wait{}},
			lanes: lanes{byUID: map[types.UID]*lane{}},
		}
		d.deps.Gates.add(pl)
		go pl.sweep(ctx)
		return pl, nil
	}
}

// Desk is what a process's profiles share, and what other plugins of it write to the ledger under.
type Desk struct {
	deps        Deps
	mu          sync.Mutex
	ledger      Ledger
	leaderships map[string]*leadership
}

// NewDesk returns the one desk of a process.
func NewDesk(deps Deps) *Desk {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Desk{deps: deps, leaderships: map[string]*leadership{}}
}

// Epoch returns this process's epoch of a leadership, acquiring it if nobody here has needed it yet. Only the leader comes to need it.
func (d *Desk) Epoch(ctx context.Context, name string) (int64, error) {
	leads, err := d.leadership(ctx, name)
	if err != nil {
		return 0, err
	}
	return leads.get(ctx)
}

func (d *Desk) leadership(ctx context.Context, name string) (*leadership, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ledger == nil {
		opened, err := d.deps.Open(ctx)
		if err != nil {
			return nil, err
		}
		d.ledger = opened
	}
	if d.leaderships[name] == nil {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name this scheduler in the ledger: %w", err)
		}
		d.leaderships[name] = newLeadership(d.ledger, name, host+"_"+string(uuid.NewUUID()))
	}
	return d.leaderships[name], nil
}
