package catalog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// The custom resources as kube-scheduler names them in plugins' events: <plural>.<version>.<group>.
const (
	CreditAccounts fwk.EventResource = "creditaccounts.v1alpha1.gpubank.io"
	GPUClasses     fwk.EventResource = "gpuclasses.v1alpha1.gpubank.io"
)

// syncTimeout is how long a scheduler waits at its start for the first lists. They are two short lists; what takes longer is
// a missing permission or CustomResourceDefinition, which a person should hear of.
const syncTimeout = time.Minute

// Source makes the one catalog that all plugins of a scheduler share. The zero value is ready.
type Source struct {
	mu      sync.Mutex
	catalog *Catalog
}

// SourceOf returns a source of a catalog that its maker keeps, for programs without an API server to watch.
func SourceOf(c *Catalog) *Source { return &Source{catalog: c} }

// Get returns the catalog, filled, starting its watches at the first call; they stop with that call's ctx.
func (s *Source) Get(ctx context.Context, config *rest.Config) (*Catalog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.catalog != nil {
		return s.catalog, nil
	}
	catalog := New()
	if err := watch(ctx, config, catalog); err != nil {
		return nil, fmt.Errorf("watch gpubank's GPUClasses and CreditAccounts (are the CustomResourceDefinitions installed, and may the scheduler list them?): %w", err)
	}
	s.catalog = catalog
	return catalog, nil
}

func watch(ctx context.Context, config *rest.Config, catalog *Catalog) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	objects, err := cache.New(jsonConfig(config), cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	accounts, err := follow(ctx, objects, &v1alpha1.CreditAccount{},
		func(a *v1alpha1.CreditAccount) { catalog.SetAccount(a) },
		func(name string) { catalog.RemoveAccount(name) })
	if err != nil {
		return err
	}
	classes, err := follow(ctx, objects, &v1alpha1.GPUClass{},
		func(c *v1alpha1.GPUClass) { catalog.SetClass(*c) },
		func(name string) { catalog.RemoveClass(name) })
	if err != nil {
		return err
	}
	go func() { _ = objects.Start(ctx) }() // returns with ctx, and nil
	syncing, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	// Handlers, not only informers: an account that is listed but not yet in the catalog would be an unknown account.
	if !toolscache.WaitForCacheSync(syncing.Done(), accounts.HasSynced, classes.HasSynced) {
		return fmt.Errorf("their first lists did not arrive within %v", syncTimeout)
	}
	return nil
}

// jsonConfig is the scheduler's configuration without its protobuf content type, which custom resources do not have.
func jsonConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
	return config
}

func follow[T client.Object](ctx context.Context, objects cache.Cache, kind T, set func(T), remove func(name string)) (toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { set(obj.(T)) },
		UpdateFunc: func(_, obj any) { set(obj.(T)) },
		DeleteFunc: func(obj any) {
			if last, gone := obj.(toolscache.DeletedFinalStateUnknown); gone {
				obj = last.Obj
			}
			if object, ok := obj.(T); ok {
				remove(object.GetName())
			}
		},
	})
}
