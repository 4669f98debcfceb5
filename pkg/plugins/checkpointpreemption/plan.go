package checkpointpreemption

import (
	"cmp"
	"container/heap"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
)

const (
	// mostSets is how many sets of one node are tried where a filter refuses although the resources suffice.
	mostSets = 256
	// mostNodes is how many nodes are tried with the real filters before a decision is given up. Each costs two runs of them at least.
	mostNodes = 512
)

// bid is the best choice of one node, by its resources alone: with all filters it costs as much or more.
type bid struct {
	// searched is false while the cost is only a floor.
	searched bool
	node     fwk.NodeInfo
	problem  victims.Problem
	units    [][]*podFacts // the pods of each of the problem's units
	choice   victims.Choice
	found    bool
}

// pods are those of the choice, everywhere, in the order of UIDs.
func (b *bid) pods() []*podFacts {
	var pods []*podFacts
	for _, unit := range b.choice.Units {
		pods = append(pods, b.units[unit]...)
	}
	return pods
}

// before orders bids; nodes that are equal in cost go by name.
func before(a, b *bid) int {
	return cmp.Or(a.choice.Cost.Compare(b.choice.Cost), cmp.Compare(a.node.Node().Name, b.node.Node().Name))
}

// plan returns the best bid that all filters agree to, nil if there is none, how many nodes might have one, and how many were tried.
//
// Best first: a node's floor is no more than what its resources alone allow, and that is no more than what all filters allow. So a choice that has
// passed the filters, and that nothing left can beat by its lower bound, is the best of all.
func (s *scene) plan(ctx context.Context, state fwk.CycleState, nodes []fwk.NodeInfo) (best *bid, candidates, tried int) {
	all := make([]bid, len(nodes))
	s.pl.handle.Parallelizer().Until(ctx, len(nodes), func(i int) {
		all[i].node = nodes[i]
		all[i].choice.Cost, all[i].found = s.floor(nodes[i])
	}, Name)
	queue := make(bids, 0, len(all))
	for i := range all {
		if all[i].found {
			queue = append(queue, &all[i])
		}
	}
	candidates = len(queue)
	heap.Init(&queue)
	for len(queue) > 0 && tried < mostNodes && ctx.Err() == nil {
		b := heap.Pop(&queue).(*bid)
		if best != nil && before(best, b) < 0 {
			break
		}
		if !b.searched {
			if found := s.bid(b.node); found.found {
				found.searched = true
				heap.Push(&queue, &found)
			}
			continue
		}
		tried++
		if s.settle(ctx, state, b) && (best == nil || before(b, best) < 0) {
			best = b
		}
	}
	return best, candidates, tried
}

// bid is a node's.
func (s *scene) bid(node fwk.NodeInfo) bid {
	facts := s.nodes[node.Node().Name]
	if facts == nil {
		return bid{}
	}
	b := bid{node: node}
	resources, need := s.need(node)
	b.problem.Need = need
	var (
		local   = map[string]int{} // groups that have a unit here
		budgets indices[types.UID]
		shares  indices[string]
	)
	for i := range facts.pods {
		f := &facts.pods[i]
		key := s.pl.together.group(f.pod)
		if key != "" && f.stoppingUntil == 0 {
			if at, known := local[key]; known {
				addFrees(b.problem.Units[at].Frees, f, resources)
				continue
			}
			g := s.groups[key]
			if g.stays || key == s.ownGroup {
				continue
			}
			local[key] = len(b.problem.Units)
			s.addUnit(&b, "group:"+key, g.pods, f, resources, &budgets, &shares)
			continue
		}
		if !s.mayTake(f) {
			continue
		}
		s.addUnit(&b, string(f.pod.UID), []*podFacts{f}, f, resources, &budgets, &shares)
	}
	for _, account := range shares {
		b.problem.Shares = append(b.problem.Shares, victims.Share{Borrowed: s.book.Borrowed(account), Own: account == s.account})
	}
	for _, uid := range budgets {
		b.problem.Budgets = append(b.problem.Budgets, s.allowed(uid))
	}
	b.choice, b.found = victims.Choose(b.problem)
	b.found = b.found && len(b.choice.Units) > 0
	return b
}

// addUnit adds what stops if here, a pod on this node, is stopped.
func (s *scene) addUnit(b *bid, uid string, pods []*podFacts, here *podFacts, resources []resource, budgets *indices[types.UID], shares *indices[string]) {
	u := victims.Unit{UID: uid, Frees: make([]int64, len(resources)), Stopping: here.stoppingUntil != 0, Priority: here.priority}
	addFrees(u.Frees, here, resources)
	for _, f := range pods {
		u.Priority = max(u.Priority, f.priority)
		u.Lost += s.policy.Lost(f.work, s.now)
		for _, budget := range s.budgets[f.pod.Namespace] {
			_, counted := budget.object.Status.DisruptedPods[f.pod.Name]
			if !counted && budget.selector.Matches(labelsOf(f.pod)) {
				u.Evicts = increase(u.Evicts, budgets.of(budget.object.UID), 1)
			}
		}
		if gpus := s.gpusOf(f); gpus > 0 {
			for _, account := range s.guards[s.space(f.pod.Namespace).account].accounts {
				u.Takes = increase(u.Takes, shares.of(account), gpus)
			}
		}
	}
	b.problem.Units = append(b.problem.Units, u)
	b.units = append(b.units, pods)
}

// allowed is how many more evictions a budget allows.
func (s *scene) allowed(uid types.UID) int64 {
	for _, list := range s.budgets {
		for _, budget := range list {
			if budget.object.UID == uid {
				return int64(budget.object.Status.DisruptionsAllowed)
			}
		}
	}
	return 0
}

// settle runs the real filters on a bid's node, without those who would stop. Where they refuse, other sets of the node are tried; the
// bid's choice is then the best of those that pass.
func (s *scene) settle(ctx context.Context, state fwk.CycleState, b *bid) bool {
	if s.fits(ctx, state, b.node, b.pods()) {
		return true
	}
	everything := make([]int, len(b.units))
	for i := range everything {
		everything[i] = i
	}
	all := func(units []int) []*podFacts {
		return (&bid{units: b.units, choice: victims.Choice{Units: units}}).pods()
	}
	if !s.fits(ctx, state, b.node, all(everything)) {
		return false
	}
	if len(b.units) <= len(b.choice.Units) {
		return false
	}
	for _, other := range victims.Ordered(b.problem, mostSets) {
		if s.fits(ctx, state, b.node, all(other.Units)) {
			b.choice = other
			return true
		}
	}
	return s.giveBack(ctx, state, b, everything, all)
}

// giveBack starts from everybody and lets go whom the pod does not need, dearest first, as upstream does.
func (s *scene) giveBack(ctx context.Context, state fwk.CycleState, b *bid, units []int, all func([]int) []*podFacts) bool {
	dearest := slices.Clone(units)
	slices.SortStableFunc(dearest, func(x, y int) int {
		ux, uy := &b.problem.Units[x], &b.problem.Units[y]
		return cmp.Or(
			cmp.Compare(len(uy.Evicts), len(ux.Evicts)), cmp.Compare(uy.Priority, ux.Priority), cmp.Compare(uy.Lost, ux.Lost),
			cmp.Compare(uy.Frees[victims.GPUs], ux.Frees[victims.GPUs]), cmp.Compare(ux.UID, uy.UID),
		)
	})
	for _, unit := range dearest {
		without := slices.DeleteFunc(slices.Clone(units), func(u int) bool { return u == unit })
		if s.fits(ctx, state, b.node, all(without)) {
			units = without
		}
	}
	choice, allowed := victims.Of(b.problem, units)
	if !allowed || len(units) == 0 {
		return false
	}
	choice.Inexact = true
	b.choice = choice
	return true
}

// fits reports whether the pod would pass all filters on a node without those pods.
func (s *scene) fits(ctx context.Context, state fwk.CycleState, node fwk.NodeInfo, without []*podFacts) bool {
	logger := klog.FromContext(ctx)
	state, node = state.Clone(), node.Snapshot()
	name := node.Node().Name
	for _, f := range without {
		from := node
		if f.pod.Spec.NodeName == name {
			if err := node.RemovePod(logger, f.pod); err != nil {
				return false
			}
		} else {
			// As upstream has it: on other nodes only what plugins count over all nodes changes.
			other, err := s.pl.handle.SnapshotSharedLister().NodeInfos().Get(f.pod.Spec.NodeName)
			if err != nil {
				return false
			}
			from = other
		}
		if !s.pl.handle.RunPreFilterExtensionRemovePod(ctx, state, s.pod, f.info, from).IsSuccess() {
			return false
		}
	}
	return s.pl.handle.RunFilterPluginsWithNominatedPods(ctx, state, s.pod, node).IsSuccess()
}

// resource is one of which a pod asks for some.
type resource struct {
	of func(fwk.Resource) int64
	// pods: it is the number of pods.
	pods bool
}

// need says how much of which resources has to be given back on a node, GPUs first. Pods that are nominated to the node count as being
// on it where they have precedence.
func (s *scene) need(node fwk.NodeInfo) ([]resource, []int64) {
	asked := s.requests
	scalar := func(name corev1.ResourceName) resource {
		return resource{of: func(r fwk.Resource) int64 { return r.GetScalarResources()[name] }}
	}
	gpu := corev1.ResourceName(s.demand.Resource)
	resources := []resource{scalar(gpu), {pods: true}}
	for _, of := range []func(fwk.Resource) int64{fwk.Resource.GetMilliCPU, fwk.Resource.GetMemory, fwk.Resource.GetEphemeralStorage} {
		if of(asked) > 0 {
			resources = append(resources, resource{of: of})
		}
	}
	for name, count := range asked.GetScalarResources() {
		if count > 0 && name != gpu {
			resources = append(resources, scalar(name))
		}
	}
	need := make([]int64, len(resources))
	for i, r := range resources {
		if r.pods {
			need[i] = int64(len(node.GetPods())) + 1 - int64(node.GetAllocatable().GetAllowedPodNumber())
		} else {
			need[i] = r.of(asked) + r.of(node.GetRequested()) - r.of(node.GetAllocatable())
		}
	}
	for _, nominated := range s.pl.handle.NominatedPodsForNode(node.Node().Name) {
		if !s.yieldsTo(nominated.GetPod()) {
			continue
		}
		requests := nominated.CalculateResource().Resource
		for i, r := range resources {
			if r.pods {
				need[i]++
			} else {
				need[i] += r.of(requests)
			}
		}
	}
	for i := range need {
		need[i] = max(0, need[i])
	}
	return resources, need
}

func addFrees(frees []int64, f *podFacts, resources []resource) {
	for i, r := range resources {
		if r.pods {
			frees[i]++
		} else {
			frees[i] += r.of(f.requests)
		}
	}
}

// indices numbers what one problem speaks of.
type indices[K comparable] []K

func (n *indices[K]) of(key K) int {
	if at := slices.Index(*n, key); at >= 0 {
		return at
	}
	*n = append(*n, key)
	return len(*n) - 1
}

// increase adds to the amount of an index.
func increase(amounts []victims.Amount, index int, by int64) []victims.Amount {
	for i := range amounts {
		if amounts[i].Index == index {
			amounts[i].N += by
			return amounts
		}
	}
	return append(amounts, victims.Amount{Index: index, N: by})
}
