package placement

import (
	"math/rand/v2"

	"github.com/gpubank/gpubank/pkg/placement"
)

// Policy chooses a node for each pod. One is made for each replay and sees pods only as they arrive.
type Policy interface {
	// Place returns the index of a node that fits the pod and the slot of its devices, or -1 if none does.
	Place(nodes []placement.Node, pod *placement.Request) (node int, slot int16)
	// Placed is told what was taken, after it was.
	Placed(node int, pod *placement.Request)
}

// Arrived are the demands, as shares of the cluster's GPU capacity in per cent, at which the allocated share is read.
var Arrived = [2]int{100, 130}

// Outcome is the allocated share of GPU capacity, in per cent, at each of Arrived.
type Outcome [2]float64

// Submit draws the arrivals of one seed: each pod of the trace once, then pods of it at random until 130 % of capacity are
// requested, all shuffled.
func Submit(t *Trace, random *rand.Rand) []placement.Request {
	most := t.MilliGPU() * int64(Arrived[1])
	pods := append([]placement.Request(nil), t.Pods...)
	var requested int64
	for i := range pods {
		requested += pods[i].MilliGPU()
	}
	for requested*100 < most {
		pod := t.Pods[random.IntN(len(t.Pods))]
		requested += pod.MilliGPU()
		pods = append(pods, pod)
	}
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return pods
}

// Replay submits pods one at a time. None leaves; one that fits nowhere is dropped.
func Replay(t *Trace, pods []placement.Request, policy Policy) (Outcome, []placement.Node) {
	nodes := append([]placement.Node(nil), t.Nodes...)
	capacity := t.MilliGPU()
	var arrived, allocated int64
	var outcome Outcome
	next := 0
	for i := range pods {
		pod := &pods[i]
		arrived += pod.MilliGPU()
		if node, slot := policy.Place(nodes, pod); node >= 0 {
			if !nodes[node].Fits(pod) {
				panic("placement: a policy chose a node that does not fit")
			}
			nodes[node].Take(pod, slot)
			allocated += pod.MilliGPU()
			policy.Placed(node, pod)
		}
		for next < len(Arrived) && arrived*100 >= capacity*int64(Arrived[next]) {
			outcome[next] = 100 * float64(allocated) / float64(capacity)
			next++
		}
		if next == len(Arrived) {
			break
		}
	}
	return outcome, nodes
}
