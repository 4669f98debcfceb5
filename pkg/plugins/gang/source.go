package gang

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Source makes the one Groups that all plugins of a scheduler share. The zero value is ready.
type Source struct {
	// Clock is the real one by default.
	Clock clock.WithTicker

	mu      sync.Mutex
	groups  *Groups
	changes atomic.Int64
}

func (s *Source) clock() clock.WithTicker {
	if s.Clock != nil {
		return s.Clock
	}
	return clock.RealClock{}
}

// upstreamPlaces: kube-scheduler's own gang scheduling is on.
func upstreamPlaces() bool { return utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload) }

// Get returns the groups, starting their watches at the first call; they stop with that call's ctx. It has to come before the handle's
// informers are started, as a plugin's factory does.
func (s *Source) Get(ctx context.Context, handle fwk.Handle) (*Groups, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups != nil {
		s.groups.schedulers.Store(profileName(handle), nil)
		return s.groups, nil
	}
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	if err := pods.AddIndexers(toolscache.Indexers{groupIndex: indexByGroup}); err != nil {
		return nil, fmt.Errorf("index pods by their group: %w", err)
	}
	jobs := handle.SharedInformerFactory().Batch().V1().Jobs()
	if err := jobs.Informer().SetTransform(gangPartOf); err != nil {
		return nil, fmt.Errorf("watch Jobs: %w", err)
	}
	groups := &Groups{pods: pods.GetIndexer(), jobs: jobs.Lister(), rounds: newRounds()}
	groups.schedulers.Store(profileName(handle), nil)
	wake := func(r workload.Group) {
		s.changes.Add(1)
		if members := groups.members(r.Key()); len(members) > 0 {
			handle.Activate(klog.FromContext(ctx), podsByUID(members))
		}
	}
	if _, err := jobs.Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if was, is := before.(*batchv1.Job), after.(*batchv1.Job); wanted(was) != wanted(is) {
			wake(workload.Group{Kind: workload.JobGroup, Namespace: is.Namespace, Name: is.Name, UID: string(is.UID)})
		}
	}}); err != nil {
		return nil, fmt.Errorf("watch Jobs: %w", err)
	}
	groups.upstream, groups.coscheduling = newUpstreamObjects(wake), newCoschedulingObjects(wake)
	client, err := dynamic.NewForConfig(jsonConfig(handle.KubeConfig()))
	if err != nil {
		return nil, fmt.Errorf("watch PodGroups: %w", err)
	}
	for _, each := range []*objects{groups.upstream, groups.coscheduling} {
		if err := each.follow(ctx, handle.ClientSet().Discovery(), client, s.clock()); err != nil {
			return nil, err
		}
	}
	s.groups = groups
	return groups, nil
}

func profileName(handle fwk.Handle) string { return handle.(framework.Framework).ProfileName() }

// wanted is how many pods a Job's gang is of, -1 for none.
func wanted(job *batchv1.Job) int {
	g, ok := jobGroup(job)
	if !ok {
		return -1
	}
	return g.Min
}

// gangPartOf keeps of a Job what decides about its gang: there may be many Jobs, and their templates are long.
func gangPartOf(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion, Annotations: gangAnnotations(job.Annotations),
		},
		Spec:   batchv1.JobSpec{Parallelism: job.Spec.Parallelism, Completions: job.Spec.Completions},
		Status: batchv1.JobStatus{Succeeded: job.Status.Succeeded},
	}, nil
}

func gangAnnotations(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name, _ string) bool { return name != v1alpha1.GangAnnotation })
	return kept
}

// jsonConfig is the scheduler's configuration without its protobuf content type, which custom resources do not have.
func jsonConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
	return config
}
