package fairqueue

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
	"github.com/gpubank/gpubank/pkg/workload"
)

// watches are what the desk is told by the API server.
type watches struct {
	// pods has seen the first list when every pod in it is counted.
	pods cache.ResourceEventHandlerRegistration
	// namespaces has seen the first list when it is known who pays for whom.
	namespaces cache.ResourceEventHandlerRegistration
	nodes      cache.ResourceEventHandlerRegistration
	nodeLister corelisters.NodeLister
}

// open makes the desk and starts what keeps it.
func open(ctx context.Context, deps Deps, args configv1.FairQueueArgs, handle fwk.Handle) (*desk, error) {
	registerMetrics()
	objects, err := deps.Catalog.Get(ctx, handle.KubeConfig())
	if err != nil {
		return nil, err
	}
	ledger, err := deps.Open(ctx)
	if err != nil {
		return nil, err
	}
	core := handle.SharedInformerFactory().Core().V1()
	d := newDesk(args, deps.Clock, objects, core.Namespaces().Lister(), core.Pods().Lister(), handle, deps.Gates)
	d.client, d.watches.nodeLister = handle.ClientSet(), core.Nodes().Lister()
	d.history.ledger, d.groups = ledger, deps.Groups
	d.takeAccounts(ctx) // no pod comes before the accounts do
	if d.watches.pods, err = core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { d.observe(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) {
			d.observe(obj.(*corev1.Pod))
		},
		DeleteFunc: func(obj any) {
			if pod, ok := last[*corev1.Pod](obj); ok {
				d.forget(string(pod.UID))
				d.kick()
			}
		},
	}); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if d.watches.namespaces, err = core.Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { d.relook() },
		UpdateFunc: func(before, after any) {
			if before.(*corev1.Namespace).Labels[v1alpha1.AccountLabel] != after.(*corev1.Namespace).Labels[v1alpha1.AccountLabel] {
				d.relook()
			}
		},
	}); err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	if d.watches.nodes, err = core.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { d.recount() },
		UpdateFunc: func(any, any) { d.recount() },
		DeleteFunc: func(any) { d.recount() },
	}); err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	go d.run(ctx)
	return d, nil
}

// last is an object that was deleted, as it was last known.
func last[T any](obj any) (T, bool) {
	if gone, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		obj = gone.Obj
	}
	object, ok := obj.(T)
	return object, ok
}

// observe is told of a pod as it is now: one that is assigned holds its GPUs until it has finished.
func (d *desk) observe(pod *corev1.Pod) {
	if finished(pod) {
		d.forget(string(pod.UID))
		d.kick()
		return
	}
	if pod.Spec.NodeName == "" {
		return // PreEnqueue is asked about it
	}
	p, managed := d.managed(pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hand.uid == string(pod.UID) {
		d.hand.uid = ""
	}
	delete(d.waiting, string(pod.UID))
	if managed {
		d.queue.Take(d.clock.Now(), p)
	} else {
		d.drop(string(pod.UID))
	}
}

// keepUnsorted keeps a GPU pod that comes before it is known who pays for whom; it comes again then.
func (d *desk) keepUnsorted(pod *corev1.Pod) bool {
	if d.watches.namespaces == nil || d.watches.namespaces.HasSynced() {
		return false
	}
	if demand, err := workload.DemandOf(&pod.Spec, pod.Labels, d.catalog.Classes()); err != nil || demand.IsZero() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsorted[string(pod.UID)] = pod
	return true
}

// relook asks for another look at all pods, because who pays for them may have changed.
func (d *desk) relook() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = true
}

// recount asks for another count of GPUs, because a node has changed.
func (d *desk) recount() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodesChanged = true
}

// capacityOf counts the GPUs of each class on nodes.
func capacityOf(nodes []*corev1.Node, classes []v1alpha1.GPUClass) map[string]int64 {
	gpus := map[string]int64{}
	for _, class := range classes {
		for _, node := range nodes {
			if !catalog.OfClass(node.Labels, class.Spec.NodeSelector) {
				continue
			}
			for _, name := range class.Spec.ResourceNames {
				quantity := node.Status.Allocatable[corev1.ResourceName(name)]
				gpus[class.Name] += quantity.Value()
			}
		}
	}
	return gpus
}

// current returns the pod as the API server last told, or nil when it is gone or replaced.
func (d *desk) current(pod *corev1.Pod) *corev1.Pod {
	now, err := d.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID {
		return nil
	}
	return now
}

// turnOptions are the arguments as package turn wants them.
func turnOptions(args configv1.FairQueueArgs) turn.Options {
	return turn.Options{HalfLife: args.HalfLife.Duration, Patience: args.QuotaPatience.Duration, ShapeRetry: args.AlikeRetry.Duration}
}
