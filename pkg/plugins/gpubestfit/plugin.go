package gpubestfit

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/gpubank/gpubank/pkg/placement"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/workload"
)

// GPUBestFit chooses the node of a GPU pod.
type GPUBestFit struct {
	handle  fwk.Handle
	catalog *catalog.Catalog
	learner *learner
	gangs   Gangs // nil where nothing tells of gangs
}

var _ fwk.PreFilterPlugin = &GPUBestFit{}
var _ fwk.FilterPlugin = &GPUBestFit{}
var _ fwk.PostFilterPlugin = &GPUBestFit{}
var _ fwk.PreScorePlugin = &GPUBestFit{}
var _ fwk.ScorePlugin = &GPUBestFit{}
var _ fwk.ScoreExtensions = &GPUBestFit{}
var _ fwk.EnqueueExtensions = &GPUBestFit{}
var _ fwk.SignPlugin = &GPUBestFit{}

const (
	// Name of the plugin in the registry and in configurations.
	Name = "GPUBestFit"

	stateKey fwk.StateKey = "PreFilter" + Name
	// signatureKey is this plugin's part of a pod's signature.
	signatureKey = "gpubank.io/GPUBestFit.Demand"

	scoringKey fwk.StateKey = "PreScore" + Name
)

// state is a pod's demand, computed once per scheduling cycle.
type state struct {
	demand workload.Demand
	need   need
}

// Clone returns the state itself: it is never written again.
func (s *state) Clone() fwk.StateData { return s }

// Name returns the plugin's name.
func (pl *GPUBestFit) Name() string { return Name }

// PreFilter computes the pod's demand; pods without GPUs skip the plugin.
func (pl *GPUBestFit) PreFilter(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	computed, err := stateOf(pod, pl.catalog)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Placement: "+err.Error())
	}
	if computed == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	cycle.Write(stateKey, computed)
	return nil, nil
}

// stateOf tells what a pod demands, nil if no GPU.
func stateOf(pod *corev1.Pod, objects *catalog.Catalog) (*state, error) {
	demand, err := workload.DemandOf(&pod.Spec, pod.Labels, objects.Classes())
	if err != nil || demand.IsZero() {
		return nil, err
	}
	class, known := objects.Class(demand.Class)
	if !known { // removed since DemandOf read it
		return nil, fmt.Errorf("GPUClass %s was removed", demand.Class)
	}
	memoryMiB, err := memoryOf(pod.Labels)
	if err != nil {
		return nil, err
	}
	return &state{demand, need{class: demand.Class, nodeSelector: class.Spec.NodeSelector, memoryMiB: memoryMiB}}, nil
}

// PreFilterExtensions do not exist: which class a node is of does not depend on the pods on it.
func (pl *GPUBestFit) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps the pod on the nodes of its class that have as much memory on their GPUs as it needs.
func (pl *GPUBestFit) Filter(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	s := read(cycle)
	if s == nil {
		return nil
	}
	if refusal := s.need.refusal(node.Node().Labels); refusal != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, refusal)
	}
	return nil
}

// PostFilter explains why a GPU pod fits nowhere. It changes nothing.
func (pl *GPUBestFit) PostFilter(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	s := read(cycle)
	if s == nil { // not a GPU pod, or refused before it came to placement
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("list nodes to explain a placement: %w", err))
	}
	var space freeSpace
	for _, node := range nodes {
		name := corev1.ResourceName(s.demand.Resource)
		if s.need.refusal(node.Node().Labels) == "" && node.GetAllocatable().GetScalarResources()[name] > 0 {
			space.add(catalog.Free(node, s.demand.Resource))
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, space.message(s.demand, s.need.memoryMiB))
}

// scoring is what Score needs, computed once per scheduling cycle.
type scoring struct {
	view
	resource corev1.ResourceName // empty for a pod without GPUs
	request  placement.Request
	images   []string
	gang     neighbours
}

// Clone returns the scoring itself: it is never written again.
func (s *scoring) Clone() fwk.StateData { return s }

// PreScore tells what the pod asks for and looks at what is likely to come. It reads memory only.
func (pl *GPUBestFit) PreScore(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	s := &scoring{images: imagesOf(pod)}
	computed := read(cycle)
	if computed != nil {
		s.resource = corev1.ResourceName(computed.demand.Resource)
	}
	var err error
	if s.view, err = pl.learner.look(pl.handle.SnapshotSharedLister().NodeInfos().List, nodes, s.resource); err != nil {
		return fwk.AsStatus(fmt.Errorf("list nodes to tell what they have free: %w", err))
	}
	s.request = requestOf(pod, computed, s.pools)
	if pl.gangs != nil {
		s.gang = neighboursOf(pl.gangs.PlacedOn(pod), pl.labels)
	}
	cycle.Write(scoringKey, s)
	return nil
}

// labels of a node, nil if it is gone.
func (pl *GPUBestFit) labels(name string) map[string]string {
	node, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(name)
	if err != nil {
		return nil
	}
	return node.Node().Labels
}

// Score is what the cluster loses if the node takes the pod (see placement.Outlook), how far the node is from the pod's gang,
// and what of its images is there. A pod without GPUs loses nothing on a node without.
func (pl *GPUBestFit) Score(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := cycle.Read(scoringKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("score a node before PreScore: %w", err))
	}
	s := data.(*scoring)
	devices, has := s.pools.on(node.Node().Name, s.resource)
	if !has && s.resource == "" {
		return rawScore(-worstCost), nil
	}
	if !has { // its devices have only just appeared
		return rawScore(worstCost), nil
	}
	free := freeOn(node, devices)
	if !free.Fits(&s.request) { // only just, as memory is counted in MiB here: Filter has the last word, and this node comes last
		return rawScore(worstCost), nil
	}
	cost, _ := s.outlook.Cost(&free, &s.request)
	return rawScore(cost + s.gang.cost(node.Node().Labels) - placement.ImageGain(presentBytes(node, s.images))), nil
}

// ScoreExtensions returns the plugin: raw scores are ranked.
func (pl *GPUBestFit) ScoreExtensions() fwk.ScoreExtensions { return pl }

// NormalizeScore ranks the nodes; see rank.
func (pl *GPUBestFit) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	rank(scores)
	return nil
}

// signature is what Filter and Score depend on beside the node, its pod's node selector and affinity, which NodeAffinity signs.
type signature struct {
	Demand       workload.Demand
	GPUMemoryMiB int64
	MilliCPU     int32
	MemoryMiB    int32
}

// SignPod adds what the pod demands to its signature. A pod whose demand cannot be told is not batched, nor is one of a gang
// that has nodes.
func (pl *GPUBestFit) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	computed, err := stateOf(pod, pl.catalog)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if pl.gangs != nil && len(pl.gangs.PlacedOn(pod)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "each member of a gang that is placed changes what is near for the next")
	}
	asked := requestOf(pod, nil, nil)
	signed := signature{MilliCPU: asked.MilliCPU, MemoryMiB: asked.MemoryMiB}
	if computed != nil {
		signed.Demand, signed.GPUMemoryMiB = computed.demand, computed.need.memoryMiB
	}
	return []fwk.SignFragment{{Key: signatureKey, Value: signed}}, nil
}

// EventsToRegister returns what can make a pod fit that this plugin rejected.
func (pl *GPUBestFit) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A node that joins, or is labelled, may serve the pod.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel}, QueueingHintFn: pl.afterNodeChange},
		// The pod's labels decide its class and how much memory its GPUs need.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodLabel}},
		// A class may gain the pod's resource, or other nodes.
		{Event: fwk.ClusterEvent{Resource: catalog.GPUClasses, ActionType: fwk.Add | fwk.Update}},
	}, nil
}

func (pl *GPUBestFit) afterNodeChange(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*corev1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	computed, err := stateOf(pod, pl.catalog)
	if err != nil || computed == nil {
		return fwk.QueueSkip, nil // a node cannot help; a class, or the pod's own labels, can
	}
	if computed.need.refusal(after.Labels) != "" || before != nil && computed.need.refusal(before.Labels) == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func read(cycle fwk.CycleState) *state {
	data, err := cycle.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*state)
}

// NewFactory returns what makes the plugin, for kube-scheduler's registry. gangs finds what tells of gangs; nil if nothing does.
func NewFactory(source *catalog.Source, gangs func(context.Context, fwk.Handle) (Gangs, error)) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if args != nil {
			return nil, fmt.Errorf("plugin %s takes no arguments, got %T; remove its pluginConfig", Name, args)
		}
		objects, err := source.Get(ctx, handle.KubeConfig())
		if err != nil {
			return nil, err
		}
		learner := newLearner(objects)
		if err := learner.submissions.follow(handle.SharedInformerFactory().Core().V1().Pods().Informer()); err != nil {
			return nil, err
		}
		pl := &GPUBestFit{handle: handle, catalog: objects, learner: learner}
		if gangs != nil {
			if pl.gangs, err = gangs(ctx, handle); err != nil {
				return nil, err
			}
		}
		return pl, nil
	}
}
