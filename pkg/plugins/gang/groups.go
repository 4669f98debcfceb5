package gang

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/gpubank/gpubank/pkg/workload"
)

// Groups tells which pods belong together, from watches' memory.
type Groups struct {
	pods toolscache.Indexer // by groupIndex
	jobs batchlisters.JobLister
	// upstream and coscheduling are the PodGroups of either API.
	upstream, coscheduling *objects
	rounds                 *rounds
	// schedulers has the names of the profiles that place gangs.
	schedulers sync.Map
}

// groupIndex finds the pods of a group by its key.
const groupIndex = "gpubank.io/gang"

func indexByGroup(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	if key := workload.GroupOf(pod).Key(); key != "" {
		return []string{key}, nil
	}
	return nil, nil
}

// of is the gang that a pod belongs to; ok is false for a pod in none.
func (gs *Groups) of(pod *corev1.Pod) (g Group, ok bool) {
	r := workload.GroupOf(pod)
	switch r.Kind {
	case workload.NoGroup:
		return Group{}, false
	case workload.JobGroup:
		job, err := gs.jobs.Jobs(r.Namespace).Get(r.Name)
		if err != nil || string(job.UID) != r.UID { // its pods are about to go
			return Group{}, false
		}
		g, ok = jobGroup(job)
	case workload.UpstreamGroup:
		g, ok = gs.upstream.get(r)
	case workload.CoschedulingGroup:
		g, ok = gs.coscheduling.get(r)
	}
	g.Key = r.Key()
	return g, ok && (g.Min > 0 || g.Problem != "")
}

// tally is how a gang stands.
type tally struct {
	// pending members have no node, and could be given one.
	pending []*corev1.Pod
	// placed are members with a node: bound, or on their way there after an admitted round.
	placed map[types.UID]bool
	// together is how many of the pending have to be placed at once; 0 when the gang is whole without them.
	together int
}

// tally counts a gang's members. Those that are being deleted, are gated, are over, or are another scheduler's to place do not count.
func (gs *Groups) tally(g Group) tally {
	t := tally{placed: gs.rounds.underWay(g.Key)}
	members, err := gs.pods.ByIndex(groupIndex, g.Key)
	if err != nil {
		panic("gang: the index of pods by group is missing: " + err.Error())
	}
	for _, object := range members {
		pod := object.(*corev1.Pod)
		switch {
		case pod.DeletionTimestamp != nil || over(pod):
			delete(t.placed, pod.UID)
		case pod.Spec.NodeName != "":
			t.placed[pod.UID] = true
		case !t.placed[pod.UID] && len(pod.Spec.SchedulingGates) == 0 && gs.places(pod.Spec.SchedulerName):
			t.pending = append(t.pending, pod)
		}
	}
	t.together = max(0, g.Min-len(t.placed))
	if len(t.placed) > 0 {
		// It has been whole, and the watch does not show members that have finished since.
		t.together = min(t.together, len(t.pending))
	}
	return t
}

func (gs *Groups) places(scheduler string) bool {
	_, ours := gs.schedulers.Load(scheduler)
	return ours
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// complete: enough members exist to go together.
func (t tally) complete() bool { return len(t.pending) >= t.together }

// GroupOf returns the key of the gang that a pod belongs to and how many of its pods have to be placed together with it;
// "" and 0 for a pod that can be placed by itself.
func (gs *Groups) GroupOf(pod *corev1.Pod) (key string, together int) {
	g, ok := gs.of(pod)
	if !ok || g.Problem != "" {
		return "", 0
	}
	if t := gs.tally(g); t.together > 0 {
		return g.Key, t.together
	}
	return "", 0
}
