package gang

import (
	"context"
	"fmt"
	"sync"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpubank/gpubank/pkg/workload"
)

var (
	upstreamResource     = schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups")
	coschedulingResource = coschedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups")
)

// servedRetry is how often an API that was not served at the start is looked for again: a CustomResourceDefinition is installed by a person.
const servedRetry = 15 * time.Second

// objects are the PodGroups of one API, if the cluster serves it.
type objects struct {
	resource schema.GroupVersionResource
	read     func(*unstructured.Unstructured) (Group, error)
	// changed is called with the key of a group that was made, changed or removed.
	changed func(group workload.Group)
	kind    workload.GroupKind

	mu     sync.RWMutex
	synced func() bool // nil while it is not served
	known  map[string]Group
}

func newUpstreamObjects(changed func(workload.Group)) *objects {
	return &objects{resource: upstreamResource, kind: workload.UpstreamGroup, changed: changed, known: map[string]Group{},
		read: func(object *unstructured.Unstructured) (Group, error) {
			typed := &schedulingv1beta1.PodGroup{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
			return upstreamGroup(typed), err
		}}
}

func newCoschedulingObjects(changed func(workload.Group)) *objects {
	return &objects{resource: coschedulingResource, kind: workload.CoschedulingGroup, changed: changed, known: map[string]Group{},
		read: func(object *unstructured.Unstructured) (Group, error) {
			typed := &coschedulingv1alpha1.PodGroup{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
			return coschedulingGroup(typed), err
		}}
}

// get is the group that a pod names. A group that is not there is one with a Problem.
func (o *objects) get(r workload.Group) (Group, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if g, known := o.known[r.Namespace+"/"+r.Name]; known {
		return g, true
	}
	return absent(r, o.synced != nil), true
}

// follow watches the API if it is served, and else looks for it again and again until ctx ends. It returns once that is known and, if it
// is served, the first list is in.
func (o *objects) follow(ctx context.Context, served discovery.DiscoveryInterface, client dynamic.Interface, c clock.WithTicker) error {
	found, err := o.isServed(served)
	if err != nil {
		return err
	}
	if found {
		return o.watch(ctx, client)
	}
	go func() {
		ticker := c.NewTicker(servedRetry)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			}
			found, err := o.isServed(served)
			if err == nil && found {
				err = o.watch(ctx, client)
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "PodGroups cannot be watched", "api", o.resource.String())
			} else if found {
				return
			}
		}
	}()
	return nil
}

func (o *objects) isServed(client discovery.DiscoveryInterface) (bool, error) {
	list, err := client.ServerResourcesForGroupVersion(o.resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the API server whether it serves %s: %w", o.resource, err)
	}
	for _, one := range list.APIResources {
		if one.Name == o.resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

func (o *objects) watch(ctx context.Context, client dynamic.Interface) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, o.resource, "", 0, toolscache.Indexers{}, nil).Informer()
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    o.set,
		UpdateFunc: func(_, object any) { o.set(object) },
		DeleteFunc: func(object any) {
			if last, gone := object.(toolscache.DeletedFinalStateUnknown); gone {
				object = last.Obj
			}
			if removed, ok := object.(*unstructured.Unstructured); ok {
				o.mu.Lock()
				delete(o.known, removed.GetNamespace()+"/"+removed.GetName())
				o.mu.Unlock()
				o.changed(o.reference(removed))
			}
		},
	})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	syncing, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !toolscache.WaitForCacheSync(syncing.Done(), handler.HasSynced) {
		return fmt.Errorf("watch %s (may the scheduler list them?): their first list did not arrive within %v", o.resource, syncTimeout)
	}
	o.mu.Lock()
	o.synced = handler.HasSynced
	o.mu.Unlock()
	return nil
}

// syncTimeout is how long a first list may take; what takes longer is a missing permission, which a person should hear of.
const syncTimeout = time.Minute

func (o *objects) set(object any) {
	found := object.(*unstructured.Unstructured)
	g, err := o.read(found)
	if err != nil {
		g = Group{Problem: fmt.Sprintf("PodGroup %s/%s cannot be read: %v", found.GetNamespace(), found.GetName(), err)}
	}
	o.mu.Lock()
	o.known[found.GetNamespace()+"/"+found.GetName()] = g
	o.mu.Unlock()
	o.changed(o.reference(found))
}

func (o *objects) reference(object *unstructured.Unstructured) workload.Group {
	return workload.Group{Kind: o.kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}
