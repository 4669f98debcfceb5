package nodesim

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byNode indexes the pods of the shared cache by the node they are bound to.
const byNode = "node"

// Simulator plays a set of nodes until its context ends.
type Simulator struct {
	options Options
	nodes   map[string]*node
	done    sync.WaitGroup
}

// Start plays the nodes and returns once they are Ready and serve PodResources. It goes on, through API server
// restarts, until ctx ends; Wait then waits for it to have stopped.
func Start(ctx context.Context, config *rest.Config, options Options) (*Simulator, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	// One client speaks for all nodes; the default of 5 requests a second is meant for one kubelet.
	config.QPS, config.Burst = 200, 400
	config.UserAgent = "gpubank-nodesim"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("nodesim: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(list *metav1.ListOptions) {
		list.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	if err := informer.AddIndexers(cache.Indexers{byNode: func(object any) ([]string, error) {
		return []string{object.(*v1.Pod).Spec.NodeName}, nil
	}}); err != nil {
		return nil, fmt.Errorf("nodesim: %w", err)
	}

	s := &Simulator{options: options, nodes: map[string]*node{}}
	for _, spec := range options.Nodes {
		n, err := newNode(spec, options, client, informer.GetIndexer())
		if err != nil {
			return nil, fmt.Errorf("nodesim: node %s: %w", spec.Name, err)
		}
		s.nodes[spec.Name] = n
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.enqueue,
		UpdateFunc: func(_, object any) { s.enqueue(object) },
		DeleteFunc: s.enqueue,
	}); err != nil {
		return nil, fmt.Errorf("nodesim: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("nodesim: pods could not be listed before the context ended: %w", context.Cause(ctx))
	}
	for _, spec := range options.Nodes {
		if err := s.nodes[spec.Name].start(ctx); err != nil {
			return nil, fmt.Errorf("nodesim: node %s: %w", spec.Name, err)
		}
	}
	s.done.Go(func() {
		<-ctx.Done()
		for _, n := range s.nodes {
			n.stop()
			n.queue.ShutDown()
		}
		factory.Shutdown()
	})
	klog.FromContext(ctx).Info("Simulated nodes are ready", "nodes", len(s.nodes), "socketDir", options.SocketDir)
	return s, nil
}

// Wait returns when everything has stopped after the context ended.
func (s *Simulator) Wait() { s.done.Wait() }

// Silence makes a node die: no lease renewals, no PodResources, no pod handled, until Revive. Its devices stay with
// its pods.
func (s *Simulator) Silence(name string) { s.node(name).stop() }

// Revive brings a silenced node back.
func (s *Simulator) Revive(ctx context.Context, name string) error { return s.node(name).start(ctx) }

func (s *Simulator) node(name string) *node {
	n, ok := s.nodes[name]
	if !ok {
		panic("nodesim: node " + name + " is not one of this simulator's")
	}
	return n
}

func (s *Simulator) enqueue(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	if n, ok := s.nodes[pod.Spec.NodeName]; ok {
		n.queue.Add(pod.Namespace + "/" + pod.Name)
	}
}

// retryAfter is how soon a failed write to the API server is tried again.
const retryAfter = 500 * time.Millisecond
