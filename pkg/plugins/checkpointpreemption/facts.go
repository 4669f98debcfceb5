package checkpointpreemption

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
	"github.com/gpubank/gpubank/pkg/workload"
)

// podFacts is what is known of a pod on a node; it does not change while the node's generation does not.
type podFacts struct {
	info     fwk.PodInfo
	pod      *corev1.Pod
	requests fwk.Resource
	gpus     int64 // of any kind
	priority int32
	work     victims.Work
	started  int64  // seconds since 1970, 0 if it has not
	workload string // UID of what it is an attempt of
	// stoppingUntil is when its grace ends, in seconds since 1970; 0 while nobody has deleted it.
	stoppingUntil int64
}

// nodeFacts are the pods of a node.
type nodeFacts struct {
	generation int64
	pods       []podFacts
}

// memory keeps facts by node: reading annotations and requests of 40,000 pods takes longer than the rest of a decision.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*nodeFacts
}

// of returns a node's facts, from memory if the node has not changed.
func (m *memory) of(node fwk.NodeInfo, policy victims.Policy) *nodeFacts {
	name, generation := node.Node().Name, node.GetGeneration()
	m.mu.Lock()
	known := m.nodes[name]
	m.mu.Unlock()
	if known != nil && known.generation == generation {
		return known
	}
	pods := node.GetPods()
	known = &nodeFacts{generation: generation, pods: make([]podFacts, 0, len(pods))}
	for _, info := range pods {
		known.pods = append(known.pods, read(info, policy))
	}
	m.mu.Lock()
	m.nodes[name] = known
	m.mu.Unlock()
	return known
}

// keep forgets the nodes that are gone.
func (m *memory) keep(nodes []fwk.NodeInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.nodes) <= len(nodes)+len(nodes)/2+8 {
		return
	}
	kept := make(map[string]*nodeFacts, len(nodes))
	for _, node := range nodes {
		if known := m.nodes[node.Node().Name]; known != nil {
			kept[node.Node().Name] = known
		}
	}
	m.nodes = kept
}

func read(info fwk.PodInfo, policy victims.Policy) podFacts {
	pod := info.GetPod()
	f := podFacts{
		info: info, pod: pod, requests: info.CalculateResource().Resource, priority: corev1helpers.PodPriority(pod), workload: workload.HoldUID(pod),
	}
	for name, count := range f.requests.GetScalarResources() {
		if workload.LooksLikeGPU(string(name)) {
			f.gpus += count
		}
	}
	if pod.DeletionTimestamp != nil {
		f.stoppingUntil = pod.DeletionTimestamp.Unix()
	}
	start := workload.Held(pod).Start
	if !start.IsZero() {
		f.started = start.Unix()
	}
	said, _ := workload.ReadCheckpoints(pod.Annotations) // the controller says what cannot be used
	f.work = policy.WorkOf(f.gpus, start, said)
	return f
}
