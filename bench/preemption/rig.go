package preemption

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"
	testingclock "k8s.io/utils/clock/testing"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption"
)

// side is one of the two plugins.
type side string

const (
	ours     side = "gpubank"
	upstream side = "DefaultPreemption"
)

// rig is kube-scheduler's framework with one preemption plugin, on one snapshot.
type rig struct {
	framework framework.Framework
	snapshot  *internalcache.Snapshot
	mu        sync.Mutex
	victims   []*corev1.Pod // of the last decision
	pods      interface{ Add(any) error }
}

// noRecords stands for the ledger: nothing was stopped before, and nothing is evicted here.
type noRecords struct{}

func (noRecords) RecordPreemption(context.Context, []ledger.Preemption) (bool, error) {
	return true, nil
}
func (noRecords) PreemptionsSince(context.Context, time.Time) ([]ledger.PreemptionRecord, error) {
	return nil, nil
}

func newRig(ctx context.Context, which side, nodes []*corev1.Node, pods []*corev1.Pod, now time.Time) (*rig, error) {
	metrics.Register()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	r := &rig{snapshot: internalcache.NewSnapshot(pods, nodes), pods: factory.Core().V1().Pods().Informer().GetIndexer()}
	if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugins := []tf.RegisterPluginFunc{
		tf.RegisterQueueSortPlugin(queuesort.Name, queuesort.New),
		tf.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
		tf.RegisterPluginAsExtensions(nodeunschedulable.Name, frameworkruntime.FactoryAdapter(features, nodeunschedulable.New), "Filter"),
		tf.RegisterPluginAsExtensions(nodeaffinity.Name, frameworkruntime.FactoryAdapter(features, nodeaffinity.New), "PreFilter", "Filter"),
		tf.RegisterPluginAsExtensions(tainttoleration.Name, frameworkruntime.FactoryAdapter(features, tainttoleration.New), "Filter"),
		tf.RegisterPluginAsExtensions(noderesources.Name, frameworkruntime.FactoryAdapter(features, noderesources.NewFit), "PreFilter", "Filter"),
		tf.RegisterPluginAsExtensions(interpodaffinity.Name, frameworkruntime.FactoryAdapter(features, interpodaffinity.New), "PreFilter", "Filter"),
		tf.RegisterPostFilterPlugin(string(which), r.factory(which, features, now)),
	}
	var err error
	r.framework, err = tf.NewFramework(ctx, plugins, "bench",
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(r.snapshot), frameworkruntime.WithMutableSnapshotLister(r.snapshot),
		frameworkruntime.WithPodNominator(internalqueue.NewSchedulingQueue(nil, factory)),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithParallelism(16), // kube-scheduler's default
	)
	if err != nil {
		return nil, fmt.Errorf("make the framework for %s: %w", which, err)
	}
	return r, nil
}

// factory makes the plugin, whose evictions are noted down.
func (r *rig) factory(which side, features feature.Features, now time.Time) frameworkruntime.PluginFactory {
	note := func(e *preemption.Executor) {
		e.PreemptPod = func(_ context.Context, _ preemption.Candidate, _ preemption.ExecutorPreemptor, victim *corev1.Pod, _ string) (bool, error) {
			r.mu.Lock() // all are evicted at once
			defer r.mu.Unlock()
			r.victims = append(r.victims, victim)
			return true, nil
		}
	}
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if which == upstream {
			pl, err := defaultpreemption.New(ctx, &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}, handle, features)
			if err == nil {
				note(pl.Executor)
			}
			return pl, err
		}
		known := catalog.New()
		known.SetClass(v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{gpuName}, CreditsPerGPUSecond: "1"}})
		args := &configv1.CheckpointPreemptionArgs{}
		configv1.SetDefaultsCheckpointPreemptionArgs(args)
		made, err := checkpointpreemption.NewFactory(checkpointpreemption.Deps{
			Catalog: catalog.SourceOf(known), Clock: testingclock.NewFakeClock(now),
			Open:  func(context.Context) (checkpointpreemption.Records, error) { return noRecords{}, nil },
			Epoch: func(context.Context, string) (int64, error) { return 1, nil },
			Exit:  func(reason string) { panic(reason) },
		})(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		note(made.(*checkpointpreemption.CheckpointPreemption).Executor)
		return made, nil
	}
}

// preempt lets a pod that fits nowhere stop others, and returns the node, the victims and how long PostFilter took.
func (r *rig) preempt(ctx context.Context, pod *corev1.Pod) (node string, victims []*corev1.Pod, took time.Duration, err error) {
	if err := r.pods.Add(pod); err != nil {
		return "", nil, 0, err
	}
	state := framework.NewCycleState()
	nodes, err := r.snapshot.NodeInfos().List()
	if err != nil {
		return "", nil, 0, err
	}
	if _, status, _ := r.framework.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		return "", nil, 0, fmt.Errorf("pod %s: %w", pod.Name, status.AsError())
	}
	verdicts := framework.NewDefaultNodeToStatus()
	for _, each := range nodes {
		status := r.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, each)
		if status.IsSuccess() {
			return "", nil, 0, fmt.Errorf("pod %s fits node %s: the cluster is not saturated", pod.Name, each.Node().Name)
		}
		verdicts.Set(each.Node().Name, status)
	}
	r.victims = nil
	began := time.Now()
	result, status := r.framework.RunPostFilterPlugins(ctx, state, pod, verdicts)
	took = time.Since(began)
	if !status.IsSuccess() || result == nil || result.NominatedNodeName == "" || len(r.victims) == 0 {
		return "", nil, took, fmt.Errorf("nobody is stopped for pod %s: %s", pod.Name, status.Message())
	}
	return result.NominatedNodeName, r.victims, took, nil
}

// remove takes a pod off its node.
func (r *rig) remove(ctx context.Context, pod *corev1.Pod) error {
	node, err := r.snapshot.NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	return node.RemovePod(klog.FromContext(ctx), pod)
}

// place puts a pod on a node.
func (r *rig) place(pod *corev1.Pod, node string) error {
	pod.Spec.NodeName = node
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	on, err := r.snapshot.NodeInfos().Get(node)
	if err != nil {
		return err
	}
	on.AddPodInfo(info)
	return nil
}
