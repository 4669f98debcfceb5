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

	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/workload"
)

// GPUBestFit chooses the node of a GPU pod.
type GPUBestFit struct {
	handle  fwk.Handle
	catalog *catalog.Catalog
}

var _ fwk.PreFilterPlugin = &GPUBestFit{}
var _ fwk.FilterPlugin = &GPUBestFit{}
var _ fwk.PostFilterPlugin = &GPUBestFit{}
var _ fwk.PreScorePlugin = &GPUBestFit{}
var _ fwk.ScorePlugin = &GPUBestFit{}
var _ fwk.EnqueueExtensions = &GPUBestFit{}
var _ fwk.SignPlugin = &GPUBestFit{}

const (
	// Name of the plugin in the registry and in configurations.
	Name = "GPUBestFit"

	stateKey fwk.StateKey = "PreFilter" + Name
	// signatureKey is this plugin's part of a pod's signature: what Filter and Score depend on beside the node.
	signatureKey = "gpubank.io/GPUBestFit.Demand"
)

// state is a pod's demand, computed once per scheduling cycle.
type state struct {
	demand       workload.Demand
	nodeSelector map[string]string // the class's
}

// Clone returns the state itself: it is never written again.
func (s *state) Clone() fwk.StateData { return s }

// Name returns the plugin's name.
func (pl *GPUBestFit) Name() string { return Name }

// PreFilter computes the pod's demand; pods without GPUs skip the plugin.
func (pl *GPUBestFit) PreFilter(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	demand, err := workload.DemandOf(&pod.Spec, pod.Labels, pl.catalog.Classes())
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Placement: "+err.Error())
	}
	if demand.IsZero() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	class, known := pl.catalog.Class(demand.Class)
	if !known { // removed since DemandOf read it
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("Placement: GPUClass %s was removed", demand.Class))
	}
	cycle.Write(stateKey, &state{demand: demand, nodeSelector: class.Spec.NodeSelector})
	return nil, nil
}

// PreFilterExtensions do not exist: which class a node is of does not depend on the pods on it.
func (pl *GPUBestFit) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps the pod on the nodes of its class.
func (pl *GPUBestFit) Filter(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	s := read(cycle)
	if s == nil || catalog.OfClass(node.Node().Labels, s.nodeSelector) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) are not of GPU class %s", s.demand.Class))
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
		if catalog.OfClass(node.Node().Labels, s.nodeSelector) && node.GetAllocatable().GetScalarResources()[name] > 0 {
			space.add(freeGPUs(node, s.demand.Resource))
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, space.message(s.demand))
}

// PreScore skips pods without GPUs.
func (pl *GPUBestFit) PreScore(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if read(cycle) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers the node with the fewest free GPUs; see score.
func (pl *GPUBestFit) Score(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	s := read(cycle)
	if s == nil {
		return 0, nil
	}
	return score(freeGPUs(node, s.demand.Resource), s.demand.GPUs), nil
}

// ScoreExtensions do not exist: scores are comparable as they are.
func (pl *GPUBestFit) ScoreExtensions() fwk.ScoreExtensions { return nil }

// SignPod adds the demand to the pod's signature. A pod whose demand cannot be told is not batched.
func (pl *GPUBestFit) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	demand, err := workload.DemandOf(&pod.Spec, pod.Labels, pl.catalog.Classes())
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return []fwk.SignFragment{{Key: signatureKey, Value: demand}}, nil
}

// EventsToRegister returns what can make a pod fit that this plugin rejected.
func (pl *GPUBestFit) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A node that joins, or is labelled, may be of the pod's class.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel}, QueueingHintFn: pl.afterNodeChange},
		// The pod's class label decides its class.
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
	demand, err := workload.DemandOf(&pod.Spec, pod.Labels, pl.catalog.Classes())
	if err != nil || demand.IsZero() {
		return fwk.QueueSkip, nil // a node cannot help; a class can
	}
	class, known := pl.catalog.Class(demand.Class)
	if !known || !catalog.OfClass(after.Labels, class.Spec.NodeSelector) || before != nil && catalog.OfClass(before.Labels, class.Spec.NodeSelector) {
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

// NewFactory returns what makes the plugin, for kube-scheduler's registry.
func NewFactory(source *catalog.Source) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if args != nil {
			return nil, fmt.Errorf("plugin %s takes no arguments, got %T; remove its pluginConfig", Name, args)
		}
		objects, err := source.Get(ctx, handle.KubeConfig())
		if err != nil {
			return nil, err
		}
		return &GPUBestFit{handle: handle, catalog: objects}, nil
	}
}
