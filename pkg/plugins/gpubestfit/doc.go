// Package gpubestfit decides where a GPU pod goes: on the node where the cluster loses least of what it can still take, by the score
// of package placement.
//
//   - Filter keeps a pod on the nodes of its GPUClass whose GPUs have as much memory as it needs; whether enough GPUs are free there is
//     NodeResourcesFit's question. Node selectors and affinities choose among the models of a class as ever.
//   - PreScore learns from the pods that have appeared since the last cycle and looks at the cluster about once in a hundred of them.
//     Nothing in a cycle calls the API server or the ledger, and Score allocates nothing.
//   - Score depends on its node alone, and on the view, so that kube-scheduler's batching of identical pods stays exact: after a pod is
//     placed only its node is scored again. Members of a gang are not batched once one has a node, because the others want to be near it.
//   - NormalizeScore ranks.
//   - PostFilter only speaks: a pod that fits nowhere is told how many GPUs are free and how large the largest free block is. It always returns
//     Unschedulable without a nomination, so preemption plugins after it run as usual.
//
// A unit of a shared resource (a MIG slice, a time-slicing replica) is treated as a device of its own pool. Which physical device a pod
// gets is the kubelet's choice among equal ones; that they never add up to more than the device is the device plugin's, which
// offers each unit once.
package gpubestfit
