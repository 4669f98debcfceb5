package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// NewScheme knows the types that the webhook reads and decides about.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the webhook's scheme: %w", err)
	}
	return scheme, nil
}

// CacheOptions are for the manager whose cache decisions are made from. Nothing here changes what it reads, so the cache
// need not copy it for each request.
func CacheOptions() cache.Options {
	return cache.Options{DefaultUnsafeDisableDeepCopy: ptr.To(true)}
}

// Options are what Register needs. Every field is required.
type Options struct {
	Ledger  Ledger
	Metrics *Metrics
	Clock   clock.PassiveClock
	Logger  logr.Logger
}

// Register adds the webhook's handlers to the manager's webhook server, and its caches to the manager. The returned check fails
// until the caches have synced: a replica that cannot read accounts should not be sent requests.
func Register(ctx context.Context, mgr manager.Manager, options Options) (ready func(*http.Request) error, err error) {
	h := &handler{
		gatherer: gatherer{cached: mgr.GetClient(), live: mgr.GetAPIReader(), ledger: options.Ledger},
		metrics:  options.Metrics,
		clock:    options.Clock,
		logger:   options.Logger,
	}
	for path, answer := range map[string]func(context.Context, admission.Request) (outcome, error){
		MutateWorkloadPath:   h.mutateWorkload,
		ValidateWorkloadPath: h.validateWorkload,
		ValidateAccountPath:  h.validateAccount,
	} {
		mgr.GetWebhookServer().Register(path, &webhook.Admission{Handler: h.handle(path[1:], answer)})
	}
	return watchCaches(ctx, mgr)
}

// watchCaches starts the informers with the manager rather than with the first request.
func watchCaches(ctx context.Context, mgr manager.Manager) (ready func(*http.Request) error, err error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for _, object := range []client.Object{namespace, &v1alpha1.CreditAccount{}, &v1alpha1.GPUClass{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, object); err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	// The manager starts this kind of runnable after its caches have synced.
	synced := make(chan struct{})
	err = mgr.Add(afterSync{func() { close(synced) }})
	return func(*http.Request) error {
		select {
		case <-synced:
			return nil
		default:
			return errors.New("namespaces, accounts and GPU classes have not been read yet")
		}
	}, err
}

// afterSync runs on every replica once the manager's caches have synced.
type afterSync struct{ run func() }

// Start implements manager.Runnable.
func (a afterSync) Start(context.Context) error {
	a.run()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (a afterSync) NeedLeaderElection() bool { return false }
