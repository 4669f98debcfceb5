package gang

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PlacedOn names the nodes that other members of the pod's gang have, or keep in a round that collects, one entry for each
// member; empty for a pod of no gang. gpubestfit asks, so that the next member goes near them.
func (gs *Groups) PlacedOn(pod *corev1.Pod) []string {
	g, ok := gs.of(pod)
	if !ok {
		return nil
	}
	nodes := gs.rounds.keptNodes(g.Key)
	for _, member := range gs.members(g.Key) {
		if member.Spec.NodeName != "" && member.DeletionTimestamp == nil && !over(member) {
			nodes[member.UID] = member.Spec.NodeName
		}
	}
	delete(nodes, pod.UID)
	var names []string
	for _, name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// keptNodes are the nodes of the members that the gang's round has collected, by UID, as a new map.
func (rs *rounds) keptNodes(key string) map[types.UID]string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	nodes := map[types.UID]string{}
	if a := rs.byGang[key]; a != nil && a.round != nil {
		for _, pod := range a.round.reserved {
			nodes[pod.UID] = pod.Spec.NodeName
		}
	}
	return nodes
}
