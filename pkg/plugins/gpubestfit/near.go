package gpubestfit

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/pkg/placement"
)

// Gangs tells where the members of a pod's gang are.
type Gangs interface {
	// PlacedOn names the nodes that other members of the pod's gang have, one entry for each member; empty for a pod of no gang. It is
	// called once per scheduling cycle and reads memory only.
	PlacedOn(pod *corev1.Pod) []string
}

// nearLabels are the node labels of each level of nearness: NVIDIA's for NVLink domains, Kubernetes' for racks (by convention) and zones.
var nearLabels = [...]string{
	placement.LevelNVLink: "nvidia.com/gpu.clique",
	placement.LevelRack:   "topology.kubernetes.io/rack",
	placement.LevelZone:   corev1.LabelTopologyZone,
}

// neighbours counts a gang's placed members by domain.
type neighbours struct {
	placed  int
	domains [len(nearLabels)]map[string]int
}

// neighboursOf counts the members on nodes, which label finds the labels of; nil where a node is gone.
func neighboursOf(nodes []string, labels func(node string) map[string]string) neighbours {
	n := neighbours{placed: len(nodes)}
	for level, label := range nearLabels {
		n.domains[level] = map[string]int{}
		for _, node := range nodes {
			if domain, set := labels(node)[label]; set {
				n.domains[level][domain]++
			}
		}
	}
	return n
}

// cost of a node with these labels. A node without a label is in no domain of that level.
func (n *neighbours) cost(labels map[string]string) float64 {
	if n.placed == 0 {
		return 0
	}
	var near placement.Near
	for level, label := range nearLabels {
		if domain, set := labels[label]; set {
			near[level] = n.domains[level][domain]
		}
	}
	return placement.FarCost(near, n.placed)
}

// imagesOf are the images of a pod under the names by which nodes list theirs.
func imagesOf(pod *corev1.Pod) []string {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			names = append(names, imageName(containers[i].Image))
		}
	}
	return names
}

// imageName adds the tag that is meant where none is written.
func imageName(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}

// presentBytes is the size of those images that the node has.
func presentBytes(node fwk.NodeInfo, images []string) int64 {
	var sum int64
	states := node.GetImageStates()
	for _, name := range images {
		if state, has := states[name]; has {
			sum += state.Size
		}
	}
	return sum
}
