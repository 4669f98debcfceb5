package nodesim

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
)

// Annotations that script a pod; see the package documentation.
const (
	PullSecondsAnnotation = "nodesim.gpubank.io/pull-seconds"
	RunSecondsAnnotation  = "nodesim.gpubank.io/run-seconds"
	ExitCodeAnnotation    = "nodesim.gpubank.io/exit-code"
	TermSecondsAnnotation = "nodesim.gpubank.io/term-seconds"
)

// NodeSpec describes one node.
type NodeSpec struct {
	Name string
	// GPUs it has, 0 or more; they are whole devices.
	GPUs int
	// ResourceName of its GPUs; empty means nvidia.com/gpu.
	ResourceName string
	// Replicas above 1 shares each GPU by time-slicing: the node offers GPUs × Replicas, with device ids "GPU-…::0".
	Replicas int
	Labels   map[string]string
}

// Options say which nodes to play and where their files go.
type Options struct {
	Nodes []NodeSpec
	// SocketDir holds, for each node, <node>.sock (PodResources), <node>-gpus.yaml (for --nvml=simulated) and
	// <node>-devices.json (which pod has which device). It must exist.
	SocketDir string
	// LeaseInterval is how often leases are renewed; 0 means the kubelet's 10 s.
	LeaseInterval time.Duration
}

// maxSocketPath is what fits into a Unix socket address on every system (104 on macOS, 108 on Linux), with the end mark.
const maxSocketPath = 100

func (o Options) withDefaults() (Options, error) {
	if len(o.Nodes) == 0 {
		return o, errors.New("nodesim: no node to play")
	}
	if o.LeaseInterval == 0 {
		o.LeaseInterval = 10 * time.Second
	}
	nodes := make([]NodeSpec, len(o.Nodes))
	seen := map[string]bool{}
	for i, node := range o.Nodes {
		if node.Name == "" || seen[node.Name] {
			return o, fmt.Errorf("nodesim: node %d has the name %q: each needs its own", i, node.Name)
		}
		seen[node.Name] = true
		if node.ResourceName == "" {
			node.ResourceName = "nvidia.com/gpu"
		}
		node.Replicas = max(node.Replicas, 1)
		if path := SocketPath(o.SocketDir, node.Name); len(path) > maxSocketPath {
			return o, fmt.Errorf("nodesim: socket path %s has %d bytes, more than the %d that a socket address holds: choose a shorter SocketDir", path, len(path), maxSocketPath)
		}
		nodes[i] = node
	}
	o.Nodes = nodes
	return o, nil
}

// SocketPath is where a node's PodResources socket is.
func SocketPath(socketDir, node string) string { return filepath.Join(socketDir, node+".sock") }

// SimulatedGPUsPath is the file to give the node's agent as --nvml=simulated:<path>.
func SimulatedGPUsPath(socketDir, node string) string {
	return filepath.Join(socketDir, node+"-gpus.yaml")
}

func checkpointPath(socketDir, node string) string {
	return filepath.Join(socketDir, node+"-devices.json")
}

// GPUUUID is the UUID of a node's index-th GPU: the same in every run.
func GPUUUID(node string, index int) string {
	return "GPU-" + uuid.NewSHA1(uuid.NameSpaceDNS, fmt.Appendf(nil, "%s/%d.nodesim.gpubank.io", node, index)).String()
}
