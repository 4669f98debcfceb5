package gpubestfit

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/placement"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
)

// productLabel names a node's GPU model; NVIDIA's feature discovery sets it. Nodes of one class may differ in it, and a pod may
// ask for some models by its node selector or affinity.
const productLabel = "nvidia.com/gpu.product"

// pool is a kind of devices that are alike to every pod: what the score calls a node's class.
type pool struct {
	resource corev1.ResourceName
	product  string
	classes  string // of GPUs, that offer the resource there
}

// pooled are the devices that one node has of one pool.
type pooled struct {
	resource corev1.ResourceName
	number   uint16
}

// pools say which devices each node has. They are made for a list of nodes and then only read.
type pools struct {
	numbers map[pool]uint16
	// labels are those of some node of each pool, which tell what a pod's node selector and affinity admit.
	labels []map[string]string
	nodes  map[string][]pooled
	// largest is the most of each resource that one node has.
	largest map[corev1.ResourceName]int64
}

// lastPool is shared by all pools beyond the 63rd, which the score then does not tell apart.
const lastPool = 63

// poolsOf numbers the pools of nodes. Those of before keep their numbers, by which requests that were learned name them.
func poolsOf(nodes []fwk.NodeInfo, classes []v1alpha1.GPUClass, before *pools) *pools {
	p := &pools{numbers: map[pool]uint16{}, nodes: make(map[string][]pooled, len(nodes)), largest: map[corev1.ResourceName]int64{}}
	if before != nil {
		p.numbers, p.labels = maps.Clone(before.numbers), slices.Clone(before.labels)
	}
	for _, node := range nodes {
		labels := node.Node().Labels
		var has []pooled
		for name, count := range node.GetAllocatable().GetScalarResources() {
			if count <= 0 {
				continue
			}
			if offering := offering(string(name), labels, classes); offering != "" {
				p.largest[name] = max(p.largest[name], count)
				has = append(has, pooled{name, p.number(pool{name, labels[productLabel], offering}, labels)})
			}
		}
		// What a pod without GPUs is scored by is the first: the same one each time.
		slices.SortFunc(has, func(a, b pooled) int { return strings.Compare(string(a.resource), string(b.resource)) })
		p.nodes[node.Node().Name] = has
	}
	return p
}

func (p *pools) number(of pool, labels map[string]string) uint16 {
	number, known := p.numbers[of]
	if !known {
		number = uint16(min(len(p.numbers), lastPool))
		p.numbers[of] = number
		if int(number) == len(p.labels) {
			p.labels = append(p.labels, labels)
		}
	}
	return number
}

// offering joins the names of the classes that offer a resource on nodes of these labels.
func offering(resource string, labels map[string]string, classes []v1alpha1.GPUClass) string {
	var names []string
	for i := range classes {
		for _, name := range classes[i].Spec.ResourceNames {
			if name == resource && catalog.OfClass(labels, classes[i].Spec.NodeSelector) {
				names = append(names, classes[i].Name)
			}
		}
	}
	return strings.Join(names, ",")
}

// admitting has a bit for each pool of the resource whose nodes admits accepts; 0, which means any, if there is none.
func (p *pools) admitting(resource string, admits func(labels map[string]string) bool) uint64 {
	var bits uint64
	for of, number := range p.numbers {
		if string(of.resource) == resource && admits(p.labels[number]) {
			bits |= 1 << number
		}
	}
	return bits
}

// on returns what a node has of the resource, or of the first if none is named; false if nothing.
func (p *pools) on(node string, resource corev1.ResourceName) (pooled, bool) {
	for _, each := range p.nodes[node] {
		if resource == "" || each.resource == resource {
			return each, true
		}
	}
	return pooled{}, false
}

// free lists what all nodes have free, one entry for each pool that a node has devices of.
func (p *pools) free(nodes []fwk.NodeInfo) []placement.Node {
	free := make([]placement.Node, 0, len(nodes))
	for _, node := range nodes {
		for _, each := range p.nodes[node.Node().Name] {
			free = append(free, freeOn(node, each))
		}
	}
	return free
}

// freeOn is what a node has free of one pool, as the score sees it. A scheduler does not know which devices the kubelet will
// choose; of whole devices, and of the equal units of a shared one, each is as good as another.
func freeOn(node fwk.NodeInfo, devices pooled) placement.Node {
	allocatable, requested := node.GetAllocatable(), node.GetRequested()
	units := allocatable.GetScalarResources()[devices.resource] - requested.GetScalarResources()[devices.resource]
	return placement.Node{
		MilliCPU:  clamp(allocatable.GetMilliCPU() - requested.GetMilliCPU()),
		MemoryMiB: clamp((allocatable.GetMemory() - requested.GetMemory()) >> 20),
		Class:     devices.number,
		Whole:     int16(min(max(units, 0), math.MaxInt16)),
	}
}

func clamp(amount int64) int32 { return int32(min(max(amount, 0), math.MaxInt32)) }
