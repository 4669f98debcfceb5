package fairqueue

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
	"github.com/gpubank/gpubank/pkg/plugins/gang"
)

// FairQueue lets GPU pods through in their turn. It is the part of one profile; all share a desk.
type FairQueue struct {
	handle fwk.Handle
	desk   *desk
	// personal are the plugins whose refusals say nothing of pods that look alike.
	personal []string
}

var _ fwk.PreEnqueuePlugin = &FairQueue{}
var _ fwk.PreFilterPlugin = &FairQueue{}
var _ fwk.PostFilterPlugin = &FairQueue{}
var _ fwk.ReservePlugin = &FairQueue{}
var _ fwk.EnqueueExtensions = &FairQueue{}
var _ fwk.SignPlugin = &FairQueue{}

const (
	// Name of the plugin in the registry and in configurations.
	Name = "FairQueue"

	podKey fwk.StateKey = "PreFilter" + Name
)

// inCycle is the pod of a scheduling cycle, as the queue knows it, and the nodes as the scheduler knows them then.
type inCycle struct {
	turn.Pod
	nodes []fwk.NodeInfo
}

// Clone returns the pod itself: it is never written again.
func (p *inCycle) Clone() fwk.StateData { return p }

// notYet is what a gated pod gets. Only a debug log shows it; what people read is written by explain.
var notYet = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Turn: not yet")

// Name returns the plugin's name.
func (pl *FairQueue) Name() string { return Name }

// PreEnqueue lets the pod through if it is its turn. It runs under the lock of the scheduler's queue, so it only looks at memory.
func (pl *FairQueue) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if pl.desk.keepUnsorted(pod) {
		return notYet
	}
	p, managed := pl.desk.managed(pod)
	if !managed {
		pl.desk.dismiss(string(pod.UID))
		return nil
	}
	if len(pod.Spec.SchedulingGates) > 0 || slices.ContainsFunc(pl.desk.gates, func(g Gate) bool { return g.Closed(pod) }) {
		pl.desk.aside(pod, p)
		return nil
	}
	through, more := pl.desk.admit(pod, p)
	if more {
		pl.desk.kick()
	}
	if through {
		return nil
	}
	return notYet
}

// PreFilter refuses, without preempting anyone, what a limit holds back by now.
func (pl *FairQueue) PreFilter(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p, managed := pl.desk.managed(pod)
	if gang.Trying(cycle) {
		if quota := pl.desk.limited(p, managed); quota != "" {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, turn.ByQuota+": "+quota)
		}
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !managed {
		pl.desk.begin(nil)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if quota := pl.desk.begin(&p); quota != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, turn.ByQuota+": "+quota)
	}
	c := &inCycle{Pod: p, nodes: nodes}
	if pl.desk.overtakes(p.UID, p.Class, pl.room(c)) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, turn.ByTurn+": GPUs have become free, and another pod that waits for them goes first")
	}
	cycle.Write(podKey, c)
	return nil, nil
}

// PreFilterExtensions do not exist: other pods on a node do not change whose turn it is.
func (pl *FairQueue) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PostFilter sets a pod aside that fits nowhere, and lets the next one through. It makes nothing schedulable.
func (pl *FairQueue) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	room := 0
	if c := read(cycle); c != nil {
		room = pl.room(c)(c.GPUs)
	}
	pl.desk.fail(string(pod.UID), !pl.isPersonal(statuses), room)
	pl.desk.next(ctx)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// isPersonal reports whether the pod was refused for a reason of its own, before any node was looked at.
func (pl *FairQueue) isPersonal(statuses fwk.NodeToStatusReader) bool {
	if len(pl.personal) == 0 {
		return false
	}
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) == 0 {
		return false
	}
	status := statuses.Get(nodes[0].Node().Name)
	return status != nil && slices.Contains(pl.personal, status.Plugin())
}

// Reserve counts the pod's GPUs from now on, and lets the next pod through.
func (pl *FairQueue) Reserve(ctx context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ string) *fwk.Status {
	if p := podOf(cycle); p != nil {
		pl.desk.reserve(*p)
		pl.desk.next(ctx)
	}
	return nil
}

// Unreserve no longer counts them. It may be called twice, and without Reserve.
func (pl *FairQueue) Unreserve(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ string) {
	if p := podOf(cycle); p != nil {
		pl.desk.unreserve(*p, pl.desk.current(pod))
		pl.desk.kick()
	}
}

// SignPod adds nothing to the pod's signature: which nodes fit it does not depend on whose turn it is.
func (pl *FairQueue) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// EventsToRegister returns none: a gated pod is let through by the desk alone, so events need not look at it.
func (pl *FairQueue) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// room counts, when it is first asked, the nodes of the pod's class with as many GPUs free.
func (pl *FairQueue) room(c *inCycle) func(gpus int64) int {
	var free []int64 // by node, sorted
	count := sync.OnceFunc(func() {
		class, _ := pl.desk.catalog.Class(c.Class)
		for _, node := range c.nodes {
			if !catalog.OfClass(node.Node().Labels, class.Spec.NodeSelector) {
				continue
			}
			most := int64(0)
			for _, name := range class.Spec.ResourceNames {
				most = max(most, catalog.Free(node, name))
			}
			free = append(free, most)
		}
		slices.Sort(free)
	})
	return func(gpus int64) int {
		count()
		at, _ := slices.BinarySearch(free, gpus)
		return len(free) - at
	}
}

func read(cycle fwk.CycleState) *inCycle {
	data, err := cycle.Read(podKey)
	if err != nil {
		return nil
	}
	return data.(*inCycle)
}

func podOf(cycle fwk.CycleState) *turn.Pod {
	if c := read(cycle); c != nil {
		return &c.Pod
	}
	return nil
}

// Deps are what the plugin cannot make itself.
type Deps struct {
	Catalog *catalog.Source
	// Open returns the ledger's memory of usage; it is called once. It should not fail because the ledger is away.
	Open func(context.Context) (Ledger, error)
	// Gates are other plugins that gate pods.
	Gates []Gate
	// Groups are the pods that are placed together; nil if there are none.
	Groups Groups
	// Personal names the plugins whose refusal of one pod says nothing of another that looks alike, such as for its credits.
	Personal []string
	// Clock is the real one by default.
	Clock clock.WithTicker
}

// NewFactory returns what makes the plugin, for kube-scheduler's registry. All profiles of a process share one queue, since they share
// the scheduler's; their arguments are those of the first.
func NewFactory(deps Deps) frameworkruntime.PluginFactory {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	var shared *desk
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*configv1.FairQueueArgs)
		if !ok {
			return nil, fmt.Errorf("plugin %s wants arguments of type FairQueueArgs, got %T", Name, object)
		}
		if err := configv1.ValidateFairQueueArgs(args); err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
		if shared == nil { // profiles are made one after the other
			made, err := open(ctx, deps, *args, handle)
			if err != nil {
				return nil, err
			}
			shared = made
		}
		return &FairQueue{handle: handle, desk: shared, personal: deps.Personal}, nil
	}
}
