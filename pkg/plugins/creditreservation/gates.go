package creditreservation

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Gates tells other plugins which pods this one keeps out of the scheduler's queue, since that queue does not. The zero value is ready.
type Gates struct {
	mu      sync.RWMutex
	plugins []*CreditReservation
}

func (g *Gates) add(pl *CreditReservation) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plugins = append(g.plugins, pl)
}

// Closed reports whether PreEnqueue would gate the pod now. It only looks at memory.
func (g *Gates) Closed(pod *corev1.Pod) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, pl := range g.plugins {
		if w, waiting := pl.waits.get(pod.UID); waiting && !pl.waitOver(&w, pod) {
			return true
		}
	}
	return false
}
