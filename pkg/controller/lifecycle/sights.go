package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/workload"
)

// sightTTL is how long a last sight waits to be used. A pod whose allocation is not ended by then is ended from what was
// metered instead.
const sightTTL = time.Hour

// notePodDeletion keeps what a watch last showed of a pod. The finalizer makes this rare: only a pod whose finalizer
// somebody else took off can go before it is settled.
func (r *PodReconciler) notePodDeletion(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sights[string(pod.UID)] = sight{held: workload.Held(pod), at: r.clock.Now()}
}

func (r *PodReconciler) sightOf(podUID string) *sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.sights[podUID]; ok {
		return &last
	}
	return nil
}

func (r *PodReconciler) forgetSight(podUID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sights, podUID)
}

func (r *PodReconciler) forgetOldSights(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, last := range r.sights {
		if now.Sub(last.at) > sightTTL {
			delete(r.sights, uid)
		}
	}
}
