package gang

import (
	corev1 "k8s.io/api/core/v1"
)

// Closed reports whether PreEnqueue would gate the pod now, for plugins that must not wait for a pod that does not come: members of a gang
// whose other pods do not exist yet. It only looks at memory.
func (s *Source) Closed(pod *corev1.Pod) bool {
	s.mu.Lock()
	groups := s.groups
	s.mu.Unlock()
	if groups == nil {
		return false
	}
	g, ok := groups.of(pod)
	if !ok || g.Problem != "" || upstreamPlaces() {
		return false
	}
	return !groups.tally(g).complete() && !groups.rounds.speaks(g.Key, pod.UID)
}

// Together names the gang of a pod that is placed with others; empty for one that is placed by itself. It only looks at memory.
func (s *Source) Together(pod *corev1.Pod) string {
	s.mu.Lock()
	groups := s.groups
	s.mu.Unlock()
	if groups == nil {
		return ""
	}
	g, ok := groups.of(pod)
	if !ok || g.Problem != "" {
		return ""
	}
	return g.Key
}
