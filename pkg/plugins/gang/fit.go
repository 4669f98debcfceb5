package gang

import (
	"cmp"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
)

// amounts are of resources, by name: CPU in thousandths, everything else in its own unit.
type amounts map[corev1.ResourceName]int64

// copies is how often each fits into what is free.
func (free amounts) copies(each amounts) int64 {
	most := int64(math.MaxInt64)
	for name, amount := range each {
		if amount > 0 {
			most = min(most, max(0, free[name])/amount)
		}
	}
	return most
}

func (free amounts) take(each amounts) {
	for name, amount := range each {
		free[name] -= amount
	}
}

// scarce are the resources that gangs compete for: extended ones, such as GPUs, where it asks for any.
func (each amounts) scarce() []corev1.ResourceName {
	var names []corev1.ResourceName
	for name, amount := range each {
		if amount > 0 && !ordinary[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var ordinary = map[corev1.ResourceName]bool{
	corev1.ResourceCPU: true, corev1.ResourceMemory: true, corev1.ResourceEphemeralStorage: true, corev1.ResourcePods: true,
}

// shape is members that ask for the same and may go to the same nodes.
type shape struct {
	each    amounts
	members int
	// may says by a node's index whether the filters let one of them go there.
	may []bool
}

// slots is how many members of the shape the nodes take, each node by itself.
func (s shape) slots(free []amounts) int64 {
	var sum int64
	for i, node := range free {
		if s.may[i] {
			sum += min(node.copies(s.each), int64(s.members))
		}
	}
	return sum
}

// fit is how many of the shapes' members go onto the nodes together; it uses free up. For one shape that is exact: whoever goes
// where, the slots left are one fewer. For several it is what placing the largest first, each on the fullest node that takes it,
// achieves: never more than is possible, and sometimes less. If not all have to go, the smallest go first.
func fit(free []amounts, shapes []shape, needed int) (placed int) {
	all := 0
	for _, s := range shapes {
		all += s.members
	}
	if len(shapes) == 1 {
		return int(min(shapes[0].slots(free), int64(needed)))
	}
	order := slices.Clone(shapes)
	slices.SortStableFunc(order, func(a, b shape) int { return compareSize(b.each, a.each) })
	if all > needed {
		slices.Reverse(order)
	}
	for _, s := range order {
		for range s.members {
			if placed == needed {
				return placed
			}
			node := fullest(free, s)
			if node < 0 {
				break
			}
			free[node].take(s.each)
			placed++
		}
	}
	return placed
}

// fullest is the node with the least left that takes one more of the shape, -1 if none does.
func fullest(free []amounts, s shape) int {
	best := -1
	for i := range free {
		if s.may[i] && free[i].copies(s.each) > 0 && (best < 0 || compareSize(free[i], free[best]) < 0) {
			best = i
		}
	}
	return best
}

// compareSize orders by extended resources first, since they decide where anything fits, then by CPU and memory.
func compareSize(a, b amounts) int {
	names := slices.Sorted(maps.Keys(a))
	for _, name := range names {
		if !ordinary[name] {
			if c := cmp.Compare(a[name], b[name]); c != 0 {
				return c
			}
		}
	}
	for name := range b {
		if !ordinary[name] && b[name] > 0 && a[name] == 0 {
			return -1
		}
	}
	return cmp.Or(cmp.Compare(a[corev1.ResourceCPU], b[corev1.ResourceCPU]), cmp.Compare(a[corev1.ResourceMemory], b[corev1.ResourceMemory]))
}

// freeOn is what no pod has requested on a node.
func freeOn(node fwk.NodeInfo) amounts {
	all, used := node.GetAllocatable(), node.GetRequested()
	free := amounts{
		corev1.ResourceCPU:              all.GetMilliCPU() - used.GetMilliCPU(),
		corev1.ResourceMemory:           all.GetMemory() - used.GetMemory(),
		corev1.ResourceEphemeralStorage: all.GetEphemeralStorage() - used.GetEphemeralStorage(),
		corev1.ResourcePods:             int64(all.GetAllowedPodNumber() - len(node.GetPods())),
	}
	for name, amount := range all.GetScalarResources() {
		free[name] = amount - used.GetScalarResources()[name]
	}
	return free
}

// askedBy is what a pod requests of its node.
func askedBy(pod *corev1.Pod) amounts {
	asked := amounts{corev1.ResourcePods: 1}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if name == corev1.ResourceCPU {
			asked[name] = quantity.MilliValue()
			continue
		}
		asked[name] = quantity.Value()
	}
	return asked
}
