package checkpointpreemption

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
	"github.com/gpubank/gpubank/pkg/workload"
)

// CheckpointPreemption stops whose stop destroys least, for GPU pods; for others it is DefaultPreemption.
type CheckpointPreemption struct {
	*defaultpreemption.DefaultPreemption

	args       configv1.CheckpointPreemptionArgs
	policy     victims.Policy
	handle     fwk.Handle
	catalog    *catalog.Catalog
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	budgets    policylisters.PodDisruptionBudgetLister
	jobs       jobs
	together   together
	kueue      labels.Selector
	clock      clock.WithTicker
	evaluator  *preemption.Evaluator

	records Records
	epoch   func(ctx context.Context, leadership string) (int64, error)
	exit    func(reason string)

	memory memory
	lately recently
	// decisions are those that are being carried out, by the preemptor's UID.
	decisions sync.Map
}

var _ fwk.PostFilterPlugin = &CheckpointPreemption{}
var _ fwk.PodGroupPostFilterPlugin = &CheckpointPreemption{}
var _ fwk.PreEnqueuePlugin = &CheckpointPreemption{}
var _ fwk.EnqueueExtensions = &CheckpointPreemption{}

// Name of the plugin in the registry and in configurations.
const Name = "CheckpointPreemption"

// Name returns the plugin's name.
func (pl *CheckpointPreemption) Name() string { return Name }

// PostFilter stops others for a pod that fits nowhere, if it may. PreEnqueue, and preemption for groups of pods that kube-scheduler
// itself knows, are DefaultPreemption's.
func (pl *CheckpointPreemption) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, verdicts fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	demand, err := workload.DemandOf(&pod.Spec, pod.Labels, pl.catalog.Classes())
	if err == nil && demand.IsZero() {
		return pl.DefaultPreemption.PostFilter(ctx, state, pod, verdicts)
	}
	metrics.PreemptionAttempts.Inc()
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	started := pl.clock.Now()
	result, status := pl.preempt(ctx, state, pod, demand, verdicts)
	decisionSeconds.Observe(pl.clock.Since(started).Seconds())
	return result, status
}

func (pl *CheckpointPreemption) preempt(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, demand workload.Demand, verdicts fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	// The queue's copy may not show the nomination yet.
	pod, err := pl.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("read the pod that may stop others: %w", err))
	}
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return nil, refuse(refusedByPolicy, "it stops nobody: its preemptionPolicy is Never")
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	s, err := pl.gather(ctx, pod, info.CalculateResource().Resource, demand)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if s.leftToKueue(pod) {
		return nil, refuse(refusedByKueue, "it stops nobody: Kueue preempts for its namespace")
	}
	if pods, gpus := s.awaits(verdicts); pods > 0 {
		return nil, refuse(refusedWaiting, fmt.Sprintf("waiting for %d pods on node %s to stop, which hold %d GPUs", pods, pod.Status.NominatedNodeName, gpus))
	}
	nodes, err := verdicts.NodesForStatusCode(pl.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("list nodes on which stopping others could help: %w", err))
	}
	best, candidates, tried := s.plan(ctx, state, nodes)
	if best == nil {
		why, says := refusedNoChoice, fmt.Sprintf("on none of %d nodes may enough be stopped for it", len(nodes))
		if tried > 0 {
			why, says = refusedByFilters, fmt.Sprintf("enough could be stopped on %d nodes, and it would not fit any of them", tried)
		}
		// A nomination that nothing comes of keeps capacity from others.
		return framework.NewPostFilterResultWithNominatedNode(""), refuse(why, says)
	}
	d := s.decide(best, candidates)
	state.Write(decisionKey, d)
	pl.decisions.Store(pod.UID, d)
	result, status := pl.evaluator.Preempt(ctx, state, pod, only{NodeToStatusReader: verdicts, node: best.node})
	if !status.IsSuccess() {
		refused.WithLabelValues(refusedByEvaluator).Inc()
	}
	return result, status
}

func refuse(why, says string) *fwk.Status {
	refused.WithLabelValues(why).Inc()
	return fwk.NewStatus(fwk.Unschedulable, "preemption: "+says)
}

// awaits counts the pods that were stopped on the node to which the pod is nominated and are not over, and their GPUs. What has not
// stopped long after it should have is waited for no more, nor anything if the pod cannot go to that node any longer.
func (s *scene) awaits(verdicts fwk.NodeToStatusReader) (pods int, gpus int64) {
	name := s.pod.Status.NominatedNodeName
	if name == "" || s.nodes[name] == nil || verdicts.Get(name).Code() == fwk.UnschedulableAndUnresolvable {
		return 0, 0
	}
	for i := range s.nodes[name].pods {
		f := &s.nodes[name].pods[i]
		if preemption.PodTerminatingByPreemption(f.pod) && s.awaited(f) {
			pods++
			gpus += f.gpus
		}
	}
	return pods, gpus
}

// yieldsTo reports whether a nominated pod has precedence, as kube-scheduler's filters have it.
func (s *scene) yieldsTo(nominated *corev1.Pod) bool {
	return nominated.UID != s.pod.UID && corev1helpers.PodPriority(nominated) >= s.priority
}

func compareUID(a, b types.UID) int { return cmp.Compare(a, b) }

func labelsOf(pod *corev1.Pod) labels.Set { return labels.Set(pod.Labels) }

// Deps are what the plugin cannot make itself.
type Deps struct {
	Catalog *catalog.Source
	// Open returns the ledger. It should not fail because the ledger is away.
	Open func(context.Context) (Records, error)
	// Epoch returns this process's epoch of a leadership in the ledger.
	Epoch func(ctx context.Context, leadership string) (int64, error)
	// Exit ends the process: it must not lead any longer.
	Exit func(reason string)
	// Clock is the real one by default.
	Clock clock.WithTicker
}

// NewFactory returns what makes the plugin, for kube-scheduler's registry.
func NewFactory(deps Deps) frameworkruntime.PluginFactory {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*configv1.CheckpointPreemptionArgs)
		if !ok {
			return nil, fmt.Errorf("plugin %s wants arguments of type CheckpointPreemptionArgs, got %T", Name, object)
		}
		if err := configv1.ValidateCheckpointPreemptionArgs(args); err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
		registerMetrics()
		objects, err := deps.Catalog.Get(ctx, handle.KubeConfig())
		if err != nil {
			return nil, err
		}
		records, err := deps.Open(ctx)
		if err != nil {
			return nil, err
		}
		features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
		// kube-scheduler's own defaults.
		upstream, err := defaultpreemption.New(ctx, &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}, handle, features)
		if err != nil {
			return nil, err
		}
		kueue := labels.Nothing()
		if args.KueueNamespaces != nil {
			if kueue, err = metav1.LabelSelectorAsSelector(args.KueueNamespaces); err != nil {
				return nil, err
			}
		}
		factory := handle.SharedInformerFactory()
		known := jobs{factory.Batch().V1().Jobs().Lister()}
		pl := &CheckpointPreemption{
			DefaultPreemption: upstream, args: *args, handle: handle, catalog: objects, clock: deps.Clock,
			policy: victims.Policy{DefaultInterval: args.DefaultInterval.Duration, AgeCap: args.AgeCap.Duration, MaxRestart: args.MaxRestart.Duration},
			pods:   factory.Core().V1().Pods().Lister(), namespaces: factory.Core().V1().Namespaces().Lister(),
			budgets: factory.Policy().V1().PodDisruptionBudgets().Lister(),
			jobs:    known, together: known, kueue: kueue,
			records: records, epoch: deps.Epoch, exit: deps.Exit,
			memory: memory{nodes: map[string]*nodeFacts{}}, lately: recently{stopped: map[string]stop{}},
		}
		// One executor, so that one PreEnqueue knows of all evictions.
		upstream.Executor.PreemptPod = pl.evicting(upstream.Executor.PreemptPod)
		pl.evaluator = preemption.NewEvaluator(Name, handle, evaluation{}, upstream.Executor)
		go pl.remember(ctx)
		go pl.watch(ctx)
		return pl, nil
	}
}

// watchPeriod is how often decisions that are being carried out are looked over.
const watchPeriod = 5 * time.Second

// watch tries a pod again whose victims should have stopped long ago: nothing happens to it by itself then, and it is to go elsewhere. It
// forgets decisions that are over.
func (pl *CheckpointPreemption) watch(ctx context.Context) {
	ticker := pl.clock.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		pl.decisions.Range(func(key, value any) bool {
			pl.lookOver(ctx, key.(types.UID), value.(*decision))
			return true
		})
	}
}
