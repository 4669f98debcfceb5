package meter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// PodWatch follows the pods of one node. It keeps its own view of them, changed by one event at a time, because a pod
// must at every moment be either there or gone: one that is neither would count as vanished.
type PodWatch struct {
	factory informers.SharedInformerFactory
	synced  cache.InformerSynced
	ended   chan struct{}

	mu   sync.Mutex
	pods map[PodName]PodFacts
	gone map[string]PodFacts // by UID
}

// NewPodWatch prepares a watch of the node's pods; nothing is asked before Start.
func NewPodWatch(client kubernetes.Interface, node string) (*PodWatch, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		}),
		informers.WithTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				pod.ManagedFields = nil // half of a pod's size, and not needed
			}
			return object, nil
		}))
	w := &PodWatch{
		factory: factory,
		ended:   make(chan struct{}, 1),
		pods:    map[PodName]PodFacts{},
		gone:    map[string]PodFacts{},
	}
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.seen(FactsOf(object.(*corev1.Pod))) },
		UpdateFunc: func(_, object any) { w.seen(FactsOf(object.(*corev1.Pod))) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				w.deleted(FactsOf(pod))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods of node %s: %w", node, err)
	}
	w.synced = registration.HasSynced
	return w, nil
}

// Start follows the pods until ctx ends, and returns once the first list is there.
func (w *PodWatch) Start(ctx context.Context) error {
	w.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), w.synced) {
		return fmt.Errorf("the node's pods could not be listed: %w", context.Cause(ctx))
	}
	return nil
}

// Ended receives a token when a pod's finish or deletion was seen, so that its last interval need not wait.
func (w *PodWatch) Ended() <-chan struct{} { return w.ended }

// Pods are the node's pods now, and those deleted since they were last forgotten, as they were last seen: the last
// event of a pod carries its finish.
func (w *PodWatch) Pods() (pods map[PodName]PodFacts, gone []PodFacts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.pods), slices.Collect(maps.Values(w.gone))
}

// ForgetGone drops deleted pods that were dealt with.
func (w *PodWatch) ForgetGone(dealtWith []PodFacts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, facts := range dealtWith {
		delete(w.gone, facts.UID)
	}
}

func (w *PodWatch) seen(now PodFacts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.pods[now.Name]
	if known && before.UID != now.UID {
		// A watch that was interrupted shows a pod and its successor of the same name as one change.
		w.gone[before.UID] = before
		w.signal()
	}
	w.pods[now.Name] = now
	if now.Held.Ended && !before.Held.Ended {
		w.signal()
	}
}

func (w *PodWatch) deleted(last PodFacts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[last.Name].UID == last.UID {
		delete(w.pods, last.Name)
	}
	w.gone[last.UID] = last
	w.signal()
}

func (w *PodWatch) signal() {
	select {
	case w.ended <- struct{}{}:
	default: // one is waiting already
	}
}
