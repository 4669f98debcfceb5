// Package gpubestfit decides where a GPU pod goes: on the node of its class that has the fewest free GPUs and still fits
// it, so that whole nodes stay free for the pods that need whole nodes.
//
// Filter keeps a pod on the nodes of its GPUClass; whether enough GPUs are free there is NodeResourcesFit's question.
// The score is a pure function in score.go, in steps of one GPU, so it needs no normalization and a node's score depends on that
// node alone. That, and the signature, keep kube-scheduler's batching of identical pods exact: after a pod is placed only its
// node is scored again.
//
// PostFilter only speaks: a pod that fits nowhere is told how many GPUs are free and how large the largest free block is.
// It always returns Unschedulable without a nomination, so preemption plugins after it run as usual.
package gpubestfit
