package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

const (
	// parallel is how many pods and workloads are followed at once. Each waits for a group commit most of the time, and
	// commits merge.
	parallel = 16
	// retryLeast and retryMost bound the wait after a failure of the world: short enough that everything resumes by
	// itself soon after PostgreSQL or the API server is back.
	retryLeast = 100 * time.Millisecond
	retryMost  = 10 * time.Second
)

// Ledger is what the package needs of the store.
type Ledger interface {
	PodLedger
	WorkloadLedger
	OpenLister
}

// Options configure the package. Every field is required.
type Options struct {
	Ledger Ledger
	// Holder names this process in the ledger's leadership.
	Holder string
	// HoldExpiry is how old a hold without an object must be; more than the API server's longest request.
	HoldExpiry time.Duration
	// Resync is how often everything open is asked about.
	Resync time.Duration
	// NodeGrace is how old a node's last lease renewal may be before the node counts as silent.
	NodeGrace time.Duration
	Clock     clock.WithTicker
	Registry  prometheus.Registerer
}

// SetupWithManager registers the reconcilers, the sweeper and the node monitor.
func SetupWithManager(ctx context.Context, mgr manager.Manager, options Options) error {
	var (
		readers = cluster{cached: mgr.GetClient(), live: mgr.GetAPIReader()}
		beats   = newHeartbeats()
		counts  = newMetrics(options.Registry)
		pods    = newInbox[PodKey]()
		works   = newInbox[WorkloadKey]()
		events  = mgr.GetEventRecorder("credit-controller")
	)
	if err := beats.watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	podReconciler := &PodReconciler{
		cluster: readers, client: mgr.GetClient(), ledger: options.Ledger, recorder: events, clock: options.Clock,
		heartbeats: beats, nodeGrace: options.NodeGrace, metrics: counts, workloads: works, holder: options.Holder,
		sights: map[string]sight{}, placed: newPlacements(),
	}
	workloadReconciler := &WorkloadReconciler{
		cluster: readers, client: mgr.GetClient(), ledger: options.Ledger, recorder: events, clock: options.Clock,
		holdExpiry: options.HoldExpiry, metrics: counts,
	}
	err := builder.TypedControllerManagedBy[PodKey](mgr).Named("pod").
		Watches(&corev1.Pod{}, podHandler(podReconciler)).
		WatchesRawSource(pods.source()).
		WithOptions(retrying[PodKey]()).
		Complete(podReconciler)
	if err != nil {
		return fmt.Errorf("set up the pod reconciler: %w", err)
	}
	err = builder.TypedControllerManagedBy[WorkloadKey](mgr).Named("workload").
		Watches(&batchv1.Job{}, jobHandler()).
		Watches(&corev1.Pod{}, podWorkloadHandler()).
		WatchesRawSource(works.source()).
		WithOptions(retrying[WorkloadKey]()).
		Complete(workloadReconciler)
	if err != nil {
		return fmt.Errorf("set up the workload reconciler: %w", err)
	}
	runnables := []manager.Runnable{
		&Sweeper{
			ledger: options.Ledger, cached: mgr.GetClient(), pods: podReconciler, podInbox: pods, workloads: works,
			resync: options.Resync, clock: options.Clock, logger: mgr.GetLogger().WithName("sweeper"), metrics: counts,
		},
		&NodeMonitor{
			cluster: readers, placed: podReconciler.placed, heartbeats: beats, pods: pods, grace: options.NodeGrace,
			clock: options.Clock, logger: mgr.GetLogger().WithName("nodes"),
		},
	}
	for _, runnable := range runnables {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("set up the lifecycle: %w", err)
		}
	}
	return nil
}

func retrying[key comparable]() controller.TypedOptions[key] {
	return controller.TypedOptions[key]{
		MaxConcurrentReconciles: parallel,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryLeast, retryMost),
	}
}

// concerns reports whether a pod may hold GPUs that somebody pays for.
func concerns(pod *corev1.Pod) bool {
	return controllerutil.ContainsFinalizer(pod, v1alpha1.MeteringFinalizer) || asksForGPU(&pod.Spec)
}

type (
	podQueue      = workqueue.TypedRateLimitingInterface[PodKey]
	workloadQueue = workqueue.TypedRateLimitingInterface[WorkloadKey]
)

// podHandler asks about every GPU pod that changed, and keeps the last sight of one that went.
func podHandler(reconciler *PodReconciler) handler.TypedEventHandler[client.Object, PodKey] {
	ask := func(object client.Object, queue podQueue) {
		if pod, ok := object.(*corev1.Pod); ok && concerns(pod) {
			reconciler.placed.put(podKeyOfPod(pod), pod.Spec.NodeName)
			queue.Add(podKeyOfPod(pod))
		}
	}
	gone := func(object client.Object, queue podQueue) {
		if pod, ok := object.(*corev1.Pod); ok && concerns(pod) {
			reconciler.placed.remove(podKeyOfPod(pod))
			queue.Add(podKeyOfPod(pod))
		}
	}
	return handler.TypedFuncs[client.Object, PodKey]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue podQueue) { ask(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue podQueue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				gone(e.ObjectOld, queue) // deleted and created again while the watch was away
			}
			ask(e.ObjectNew, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue podQueue) {
			if pod, ok := e.Object.(*corev1.Pod); ok && concerns(pod) && !e.DeleteStateUnknown {
				reconciler.notePodDeletion(pod)
			}
			gone(e.Object, queue)
		},
	}
}

// jobHandler asks about a Job's reservation when the Job is over or gone.
func jobHandler() handler.TypedEventHandler[client.Object, WorkloadKey] {
	ask := func(object client.Object, seen bool, queue workloadQueue) {
		job, ok := object.(*batchv1.Job)
		if ok && asksForGPU(&job.Spec.Template.Spec) && (seen || jobState(job) == objectFinished) {
			queue.Add(WorkloadKey{UID: string(job.UID), Seen: seen})
		}
	}
	return workloadFuncs(ask)
}

// podWorkloadHandler asks about the reservation that a pod may have of its own when the pod is over or gone.
func podWorkloadHandler() handler.TypedEventHandler[client.Object, WorkloadKey] {
	ask := func(object client.Object, seen bool, queue workloadQueue) {
		pod, ok := object.(*corev1.Pod)
		over := ok && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
		if ok && concerns(pod) && (seen || over) {
			queue.Add(WorkloadKey{UID: string(pod.UID), Seen: seen})
		}
	}
	return workloadFuncs(ask)
}

func workloadFuncs(ask func(object client.Object, seen bool, queue workloadQueue)) handler.TypedEventHandler[client.Object, WorkloadKey] {
	return handler.TypedFuncs[client.Object, WorkloadKey]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue workloadQueue) { ask(e.Object, false, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workloadQueue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				ask(e.ObjectOld, true, queue)
			}
			ask(e.ObjectNew, false, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workloadQueue) { ask(e.Object, true, queue) },
	}
}
