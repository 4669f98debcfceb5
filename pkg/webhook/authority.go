package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	crhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ConfigurationName is the name of both webhook configurations in manifests/webhook.
const ConfigurationName = "gpubank-webhook"

// AuthorityInjector makes both webhook configurations trust the authority that signed the serving certificate, and puts
// it back when somebody applies them without it.
type AuthorityInjector struct {
	client   client.Client // reads without a cache
	bundle   atomic.Pointer[[]byte]
	injected atomic.Bool
}

// NewAuthorityInjector takes a client whose reads are live.
func NewAuthorityInjector(live client.Client) *AuthorityInjector {
	return &AuthorityInjector{client: live}
}

// Publish injects the PEM certificates from now on. It fails when one of the configurations does not exist.
func (a *AuthorityInjector) Publish(ctx context.Context, authorities []byte) error {
	a.bundle.Store(&authorities)
	return a.inject(ctx)
}

// Ready is a readiness check: without the authority in the configurations the API server refuses our certificate.
func (a *AuthorityInjector) Ready(*http.Request) error {
	if !a.injected.Load() {
		return errors.New("the certificate authority has not been written into the webhook configurations yet")
	}
	return nil
}

func (a *AuthorityInjector) inject(ctx context.Context) error {
	bundle := a.bundle.Load()
	if bundle == nil {
		return nil // Publish will come
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err := errors.Join(
		a.injectInto(ctx, validating, func() (configs []*admissionregistrationv1.WebhookClientConfig) {
			for i := range validating.Webhooks {
				configs = append(configs, &validating.Webhooks[i].ClientConfig)
			}
			return configs
		}, *bundle),
		a.injectInto(ctx, mutating, func() (configs []*admissionregistrationv1.WebhookClientConfig) {
			for i := range mutating.Webhooks {
				configs = append(configs, &mutating.Webhooks[i].ClientConfig)
			}
			return configs
		}, *bundle),
	)
	if err == nil {
		a.injected.Store(true)
	}
	return err
}

// injectInto patches the object's client configurations by the webhooks' names, so that fields this build does not know
// stay as they are.
func (a *AuthorityInjector) injectInto(ctx context.Context, object client.Object,
	configs func() []*admissionregistrationv1.WebhookClientConfig, bundle []byte,
) error {
	if err := a.client.Get(ctx, client.ObjectKey{Name: ConfigurationName}, object); err != nil {
		return fmt.Errorf("read %T %s to inject the certificate authority: %w", object, ConfigurationName, err)
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		panic(fmt.Sprintf("webhook: the copy of a %T is no object", object))
	}
	changed := false
	for _, config := range configs() {
		if !bytes.Equal(config.CABundle, bundle) {
			config.CABundle = bundle
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if err := a.client.Patch(ctx, object, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("inject the certificate authority into %T %s: %w", object, ConfigurationName, err)
	}
	return nil
}

// ConfigurationCache restricts the manager's cache to our own two configurations, the only ones we may read.
func ConfigurationCache() map[client.Object]cache.ByObject {
	ours := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigurationName)}
	return map[client.Object]cache.ByObject{
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: ours,
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   ours,
	}
}

// Watch injects again whenever one of the configurations changes.
func (a *AuthorityInjector) Watch(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificate-authority").
		For(&admissionregistrationv1.ValidatingWebhookConfiguration{}, builder.OnlyMetadata).
		WatchesMetadata(&admissionregistrationv1.MutatingWebhookConfiguration{}, &crhandler.EnqueueRequestForObject{}).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, a.inject(ctx)
		}))
}
