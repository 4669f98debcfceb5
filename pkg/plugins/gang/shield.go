package gang

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// shield is the open rounds of others, in one pod's scheduling cycle.
type shield struct {
	pod    *corev1.Pod
	asked  amounts
	rounds []guarded
}

// guarded is an open round and, for each of its shapes, how many slots may still be lost to others.
type guarded struct {
	round *Round
	spare []int64
}

// Clone returns the shield itself: it is never written again.
func (s *shield) Clone() fwk.StateData { return s }

// passBy writes the shield of a pod that is none of an open round's members; Skip where there is no such round.
func (pl *Gang) passBy(cycle fwk.CycleState, key string, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	guards := pl.rounds.guards(key, nodes)
	if len(guards) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	cycle.Write(shieldKey, &shield{pod: pod, asked: askedBy(pod), rounds: guards})
	return nil
}

// guards are the open rounds of other gangs with what they can spare: for each shape the slots of all nodes less the members that have
// no node yet. A negative number means that somebody was faster; then nothing more may be lost.
func (rs *rounds) guards(except string, nodes []fwk.NodeInfo) []guarded {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var all []guarded
	for key, a := range rs.byGang {
		if key == except || a.round == nil || a.round.shapes == nil {
			continue
		}
		g := guarded{round: a.round, spare: make([]int64, len(a.round.shapes))}
		for i, s := range a.round.shapes {
			g.spare[i] = -int64(min(s.members, a.round.needed))
		}
		for _, pod := range a.round.reserved {
			g.spare[a.round.shapeOf[pod.UID]]++
		}
		all = append(all, g)
	}
	for _, node := range nodes {
		var free amounts
		for _, g := range all {
			at, known := g.round.nodes[node.Node().Name]
			if !known {
				continue
			}
			if free == nil {
				free = freeOn(node)
			}
			for i, s := range g.round.shapes {
				if s.may[at] {
					g.spare[i] += free.copies(s.each)
				}
			}
		}
	}
	return all
}

// Filter keeps a pod off a node where it would take what an open round of a gang still needs.
func (pl *Gang) Filter(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	data, err := cycle.Read(shieldKey)
	if err != nil {
		return nil
	}
	s := data.(*shield)
	for _, g := range s.rounds {
		at, known := g.round.nodes[node.Node().Name]
		if !known {
			continue
		}
		free := freeOn(node)
		left := freeOn(node)
		left.take(s.asked)
		for i, shape := range g.round.shapes {
			if !shape.may[at] {
				continue
			}
			if lost := free.copies(shape.each) - left.copies(shape.each); lost > 0 && lost > g.spare[i] {
				pl.rounds.keep(g.round, s.pod)
				return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("Gang: node(s) are being taken by %s", g.round.gang.Title))
			}
		}
	}
	return nil
}

// keep remembers a pod to be tried again when the round is over.
func (rs *rounds) keep(r *Round, pod *corev1.Pod) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.state == collecting {
		r.kept[pod.UID] = pod
	}
}
