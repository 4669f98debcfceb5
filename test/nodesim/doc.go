// Package nodesim plays GPU nodes against a real API server, for tests and the demo: everything a kubelet shows of
// itself, without containers or GPUs.
//
// Each node is a Node object with a renewed Lease, a Unix socket that serves the PodResources protocol through the
// kubelet's own server code, and a file for the agent's --nvml=simulated. Pods bound to it get devices of their own
// and walk from Pending through Running to Succeeded or Failed with the status a kubelet writes: whole seconds, start
// of the pod, start and finish of its containers. Devices are remembered in a file, as the kubelet's checkpoint does,
// and times are taken from the API, so a simulator that starts again goes on where the last one stopped.
//
// What a pod does is written on it:
//
//	nodesim.gpubank.io/pull-seconds  image pull: time between the pod's start and its containers' (0)
//	nodesim.gpubank.io/run-seconds   how long its containers run (forever)
//	nodesim.gpubank.io/exit-code     what they exit with then (0)
//	nodesim.gpubank.io/term-seconds  how long they go on after SIGTERM, at most the grace period (0)
//
// Not simulated: restarts of a container within its pod, whatever restartPolicy says, and evictions.
package nodesim
