package checkpointpreemption

import (
	"cmp"
	"container/heap"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
)

// floor is what the best choice of a node costs at least, and whether there can be one, without searching for it: as if GPUs were all that
// is scarce and a part of a pod could be taken, cheapest first. Most nodes are never searched.
func (s *scene) floor(node fwk.NodeInfo) (victims.Cost, bool) {
	facts := s.nodes[node.Node().Name]
	if facts == nil {
		return victims.Cost{}, false
	}
	type offer struct{ gpus, lost int64 }
	var (
		space  [32]offer
		offers = space[:0]
		sum    int64
		least  = int64(victims.NoPriority)
		some   bool
	)
	for i := range facts.pods {
		f := &facts.pods[i]
		if !s.mayTake(f) {
			continue
		}
		o, priority := offer{gpus: s.gpusOf(f)}, int64(victims.NoPriority)
		if f.stoppingUntil == 0 {
			o.lost, priority = s.policy.Lost(f.work, s.now), int64(f.priority)
		}
		if !some || priority < least {
			least, some = priority, true
		}
		if o.gpus > 0 {
			offers = append(offers, o)
			sum += o.gpus
		}
	}
	need := s.needGPUs(node)
	if !some || sum < need {
		return victims.Cost{}, false
	}
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Compare(a.lost*b.gpus, b.lost*a.gpus) })
	c := victims.Cost{Priority: least, GPUs: need, Units: 1}
	for _, o := range offers {
		if need <= 0 {
			break
		}
		part := min(need, o.gpus)
		c.Lost += o.lost * part / o.gpus // rounded down: it is a floor
		need -= part
	}
	return c, true
}

// needGPUs is need's figure for GPUs.
func (s *scene) needGPUs(node fwk.NodeInfo) int64 {
	gpu := corev1.ResourceName(s.demand.Resource)
	need := s.demand.GPUs + node.GetRequested().GetScalarResources()[gpu] - node.GetAllocatable().GetScalarResources()[gpu]
	for _, nominated := range s.pl.handle.NominatedPodsForNode(node.Node().Name) {
		if s.yieldsTo(nominated.GetPod()) {
			need += nominated.CalculateResource().Resource.GetScalarResources()[gpu]
		}
	}
	return max(0, need)
}

// bids is a heap, the cheapest first.
type bids []*bid

func (b bids) Len() int           { return len(b) }
func (b bids) Less(i, j int) bool { return before(b[i], b[j]) < 0 }
func (b bids) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *bids) Push(x any)        { *b = append(*b, x.(*bid)) }
func (b *bids) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

var _ heap.Interface = &bids{}
