package gpubestfit

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/gpubank/gpubank/pkg/placement"
)

// submissions collects the GPU pods that appear in the API server until the next scheduling cycle learns from them. After a
// restart the first list is all the pods that still exist, running, waiting and over: the mix is rebuilt from those, in the
// order of their creation, and needs no store.
type submissions struct {
	mu      sync.Mutex
	waiting []submission
}

type submission struct {
	created time.Time
	uid     types.UID
	pod     *corev1.Pod
}

// follow hears of every pod that appears. Its handler is called for each pod once, however often the pod is tried or changed.
func (s *submissions) follow(informer toolscache.SharedInformer) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod, ok := object.(*corev1.Pod); ok && len(pod.Spec.Containers) > 0 {
				s.add(pod)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods, to learn what is submitted: %w", err)
	}
	return nil
}

func (s *submissions) add(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, submission{pod.CreationTimestamp.Time, pod.UID, pod})
	// While nothing is scheduled, only the newest can matter: older ones would have decayed.
	if len(s.waiting) > 8*placement.HalfLife {
		sortByCreation(s.waiting)
		s.waiting = slices.Clone(s.waiting[4*placement.HalfLife:])
	}
}

// take returns what has appeared since the last call, oldest first.
func (s *submissions) take() []submission {
	s.mu.Lock()
	taken := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	sortByCreation(taken)
	return taken
}

func sortByCreation(pods []submission) {
	slices.SortFunc(pods, func(a, b submission) int {
		if order := a.created.Compare(b.created); order != 0 {
			return order
		}
		// Creation times are whole seconds; any fixed order will do, so that every restart learns the same.
		switch {
		case a.uid < b.uid:
			return -1
		case a.uid > b.uid:
			return 1
		}
		return 0
	})
}
