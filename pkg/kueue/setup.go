package kueue

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// ControllerName is what an AdmissionCheck names in spec.controllerName to be answered here.
const ControllerName = "gpubank.io/credit"

const (
	// lookEvery is how often Kueue's API is looked for where it is not served: an installation takes longer.
	lookEvery = 15 * time.Second
	// parallel, retryLeast and retryMost are those of the controllers beside it (pkg/controller/lifecycle).
	parallel   = 16
	retryLeast = 100 * time.Millisecond
	retryMost  = 10 * time.Second
)

// Options configure the package. Every field is required.
type Options struct {
	Ledger   Ledger
	Clock    clock.Clock
	Registry prometheus.Registerer
}

// SetupWithManager has the checks answered by the replica that leads, from when the cluster serves Kueue's API.
func SetupWithManager(mgr manager.Manager, options Options) error {
	if err := kueuev1beta2.AddToScheme(mgr.GetScheme()); err != nil {
		return fmt.Errorf("know Kueue's kinds: %w", err)
	}
	waits := &waiting{}
	return mgr.Add(&starter{mgr: mgr, options: options, logger: mgr.GetLogger().WithName("kueue"), reconciler: &reconciler{
		gatherer: gatherer{cached: mgr.GetClient(), live: mgr.GetAPIReader(), ledger: options.Ledger},
		client:   mgr.GetClient(), recorder: mgr.GetEventRecorder("credit-controller"), clock: options.Clock,
		metrics: newMetrics(options.Registry, waits), waiting: waits,
	}})
}

// starter starts the reconcilers once there is something to reconcile. It implements manager.Runnable.
type starter struct {
	mgr        manager.Manager
	options    Options
	logger     logr.Logger
	reconciler *reconciler
}

// NeedLeaderElection is true.
func (s *starter) NeedLeaderElection() bool { return true }

// Start returns once the reconcilers run, or ctx ends.
func (s *starter) Start(ctx context.Context) error {
	for said := ""; ; {
		obstacle := s.obstacle(ctx)
		if obstacle == "" {
			s.logger.Info("Answering Kueue's admission checks", "controllerName", ControllerName)
			return s.start()
		}
		if obstacle != said && ctx.Err() == nil {
			said = obstacle
			s.logger.Info("Kueue's admission checks are not answered yet", "reason", obstacle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.options.Clock.After(lookEvery):
		}
	}
}

// obstacle says why Kueue's kinds cannot be watched; empty if they can. A watch that cannot begin would end the process.
func (s *starter) obstacle(ctx context.Context) string {
	for _, list := range []client.ObjectList{&kueuev1beta2.WorkloadList{}, &kueuev1beta2.AdmissionCheckList{}, &kueuev1beta2.ResourceFlavorList{}} {
		err := s.reconciler.live.List(ctx, list, client.Limit(1))
		switch {
		case err == nil:
		case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return "the API server does not serve " + kueuev1beta2.GroupVersion.String() + ": Kueue is not installed"
		case apierrors.IsForbidden(err):
			return "no right to read Kueue's kinds: apply manifests/kueue"
		default:
			return err.Error()
		}
	}
	return ""
}

func (s *starter) start() error {
	err := builder.ControllerManagedBy(s.mgr).Named("kueue-admission-check").For(&kueuev1beta2.AdmissionCheck{}).
		Complete(&checkReconciler{client: s.mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("set up the reconciler of admission checks: %w", err)
	}
	err = builder.TypedControllerManagedBy[Key](s.mgr).Named("kueue-workload").
		Watches(&kueuev1beta2.Workload{}, asking(keysOfWorkload)).
		Watches(&batchv1.Job{}, asking(keysOfJob)).
		Watches(&v1alpha1.CreditAccount{}, asking(func(account client.Object) []Key { return s.reconciler.waiting.on(account.GetName()) })).
		Watches(&v1alpha1.GPUClass{}, asking(func(client.Object) []Key { return s.reconciler.waiting.on("") })).
		WithOptions(controller.TypedOptions[Key]{
			MaxConcurrentReconciles: parallel,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Key](retryLeast, retryMost),
		}).
		Complete(s.reconciler)
	if err != nil {
		return fmt.Errorf("set up the reconciler of Workloads: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[Key]

// asking asks about what an object concerns, as it was and as it is.
func asking(keys func(client.Object) []Key) handler.TypedEventHandler[client.Object, Key] {
	ask := func(object client.Object, queue queue) {
		for _, key := range keys(object) {
			queue.Add(key)
		}
	}
	return handler.TypedFuncs[client.Object, Key]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue queue) { ask(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue queue) {
			ask(e.ObjectOld, queue)
			ask(e.ObjectNew, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue queue) { ask(e.Object, queue) },
	}
}

func keysOfWorkload(object client.Object) []Key {
	w, ok := object.(*kueuev1beta2.Workload)
	if !ok {
		return nil
	}
	if owner, ok := jobOwner(w); ok {
		return []Key{{Namespace: w.Namespace, Name: owner.Name, UID: owner.UID}}
	}
	return []Key{{Namespace: w.Namespace, Workload: w.Name}}
}

func keysOfJob(object client.Object) []Key {
	job, ok := object.(*batchv1.Job)
	// One that runs is told about by its Workload; one that stops, by its last pods.
	if !ok || !workload.WaitsForKueue(job) {
		return nil
	}
	return []Key{{Namespace: job.Namespace, Name: job.Name, UID: job.UID}}
}
