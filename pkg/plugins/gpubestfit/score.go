package gpubestfit

import fwk "k8s.io/kube-scheduler/framework"

// score ranks a node that fits a pod:
//
//	MaxNodeScore − GPUs that would stay free on the node, at least 0
//
// One GPU is one point. Beyond 100 left over, nodes are alike, which no node with whole GPUs reaches.
func score(free, asked int64) int64 {
	left := max(0, free-asked)
	return max(fwk.MinNodeScore, fwk.MaxNodeScore-left)
}
