// Package fairqueue gives GPU pods their turn: it enforces accounts' GPU limits, and lets through to the scheduler one GPU pod at a time, the
// one that package turn names. docs/designs/fairqueue.md has the rules, and why there is never more than one.
//
// # Path of a pod
//
//	PreEnqueue   notes that the pod may be tried; lets it through if it is the one whose turn it is, and gates it otherwise
//	PreFilter    its cycle has begun; a limit that holds it back by now refuses it
//	Reserve      it has a node: its GPUs count at once, and the next pod is chosen and let through
//	PostFilter   it fits nowhere: it is set aside until an event makes the scheduler's queue want it again; the next is let through
//	Unreserve    it was not bound after all: its GPUs no longer count, and it waits again
//
// The pod that was let through is "in hand". A pod that another plugin gates meanwhile would keep the hand full, so what another plugin is
// known to gate is not let through (Gate), and a pod in hand that does not come within a second is set aside.
//
// # What it counts
//
// GPUs of assigned, unfinished pods of enrolled namespaces, whoever scheduled them, and of pods reserved in this process. A
// restart counts again from the first list of pods before it lets anything through (A2). Past use comes from the ledger (history.go).
// None of it is asked for in a scheduling cycle.
//
// # Whom it leaves alone
//
// Pods without GPUs, of namespaces that are not enrolled, of accounts that do not exist and of unknown classes are never gated here.
//
// # Saying why
//
// kube-scheduler writes no condition for a gated pod, so this package does (explain.go): "Turn: …" or "Quota: …", with the numbers, in
// PodScheduled, once the pod has waited a little, and no more than so many per second.
package fairqueue
