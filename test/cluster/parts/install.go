package parts

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// Render returns what `kubectl apply -k manifests/` would apply, in its order.
func Render() ([]*unstructured.Unstructured, error) { return RenderFolder("manifests") }

// RenderFolder is Render for another folder of the checkout, such as manifests/kueue.
func RenderFolder(folder string) ([]*unstructured.Unstructured, error) {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return nil, err
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, filepath.FromSlash(folder)))
	if err != nil {
		return nil, fmt.Errorf("render %s/: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range rendered.Resources() {
		content, err := resource.Map()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", resource.CurId(), err)
		}
		// Through JSON, so that numbers have the types that the API machinery expects.
		object := &unstructured.Unstructured{}
		encoded, err := runtime.Encode(unstructured.UnstructuredJSONScheme, &unstructured.Unstructured{Object: content})
		if err == nil {
			err = object.UnmarshalJSON(encoded)
		}
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Applier applies objects of any kind to an API server, with server-side apply.
type Applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// fieldManager owns the fields that an Applier sets.
const fieldManager = "gpubank-installer"

// NewApplier returns an applier for the API server that config names.
func NewApplier(config *rest.Config) (*Applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(server))}, nil
}

// Apply applies one object. A dry run is checked by the API server in full, and not stored.
func (a *Applier) Apply(ctx context.Context, object *unstructured.Unstructured, dryRun bool) error {
	resource, err := a.resource(object)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if _, err := resource.Apply(ctx, object.GetName(), object, options); err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), name(object), err)
	}
	return nil
}

func (a *Applier) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset() // a kind that a CRD has brought meanwhile
		mapping, err = a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API of %s: %w", kind, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
	}
	return a.client.Resource(mapping.Resource), nil
}

// WaitEstablished waits until the API server serves the kinds of a CRD.
func (a *Applier) WaitEstablished(ctx context.Context, crd *unstructured.Unstructured) error {
	resource, err := a.resource(crd)
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		current, err := resource.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("wait for %s: %w", crd.GetName(), err)
		}
		if err == nil && established(current) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be served: %w", crd.GetName(), ctx.Err())
		case <-tick.C:
		}
	}
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == "Established" && fields["status"] == "True"
	})
}

func name(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// runElsewhere are the kinds that would run, or expose, in the cluster what runs as a process of this machine here.
var runElsewhere = []string{"Deployment", "DaemonSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}

// install applies the manifests but for what runs as a process here: namespace, CRDs, identities and rights, policies.
// Webhook configurations come later (see configureWebhooks), when somebody answers them.
func install(ctx context.Context, applier *Applier, objects []*unstructured.Unstructured) error {
	var crds []*unstructured.Unstructured
	for _, object := range objects {
		if slices.Contains(runElsewhere, object.GetKind()) || isWebhookConfiguration(object) {
			continue
		}
		if err := applier.Apply(ctx, object, false); err != nil {
			return err
		}
		if object.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, object)
		}
	}
	for _, crd := range crds {
		if err := applier.WaitEstablished(ctx, crd); err != nil {
			return err
		}
	}
	return nil
}

func isWebhookConfiguration(object *unstructured.Unstructured) bool {
	return object.GetKind() == "MutatingWebhookConfiguration" || object.GetKind() == "ValidatingWebhookConfiguration"
}

// configureWebhooks applies the webhook configurations with an address instead of a Service.
func configureWebhooks(ctx context.Context, applier *Applier, objects []*unstructured.Unstructured, address string, authority []byte) error {
	for _, object := range objects {
		if !isWebhookConfiguration(object) {
			continue
		}
		object = object.DeepCopy()
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("read %s: %w", object.GetName(), err)
		}
		for _, each := range webhooks {
			webhook := each.(map[string]any)
			path, _, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
			if err != nil {
				return fmt.Errorf("read %s: %w", object.GetName(), err)
			}
			webhook["clientConfig"] = map[string]any{
				"url": address + path, "caBundle": base64.StdEncoding.EncodeToString(authority),
			}
		}
		if err := unstructured.SetNestedSlice(object.Object, webhooks, "webhooks"); err != nil {
			return fmt.Errorf("change %s: %w", object.GetName(), err)
		}
		if err := applier.Apply(ctx, object, false); err != nil {
			return err
		}
	}
	return nil
}
