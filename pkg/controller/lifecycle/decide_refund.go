package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// What is trusted about why an attempt ended. Whoever may edit a pod may write its annotations and its spec, and may
// delete or evict it; only the control plane and the pod's kubelet write its status (pods/status). So
//
//   - that a pod was preempted is taken from its condition DisruptionTarget, by reason: the API server also sets it for
//     an eviction that somebody asked for, which a tenant may do to itself. That one counts where the node says so too: it
//     is cordoned, which takes an operator.
//   - that it failed by itself is taken from its phase, unless somebody deleted it or it reached its own deadline first.
//   - when its last checkpoint was made is the workload's own word. Claiming a later one costs the claimant; claiming
//     none gains at most what the account's policy gives an attempt without checkpoints.
//   - that a GPU failed is the word of the node's agent, which it gave under a token of its own, about its own node. Only
//     faults count that no program brings about by what it computes (hardwareFaults).
//
// A pod that succeeded got what it paid for, whatever else happened to it.

// disruptions are the reasons of DisruptionTarget that only the control plane and the kubelet give, by themselves.
var disruptions = []string{
	corev1.PodReasonPreemptionByScheduler, corev1.PodReasonTerminationByKubelet, "DeletionByTaintManager", "DeletionByPodGC",
}

// evictedOnRequest is DisruptionTarget's reason for an eviction through the API.
const evictedOnRequest = "EvictionByEvictionAPI"

// hardwareFaults are the XID errors that NVIDIA's catalogue puts down to the GPU, its memory, its links or its firmware:
// uncorrectable memory errors (48, 94, 95, 140), row remapping that failed (64), high rates of single-bit errors (92), a halted
// microcontroller (62), NVLink (74), a GPU that fell off the bus (79), and the GSP (119, 120). Most others, such as 13, 31, 43 and
// 45, are what a program's own mistakes raise, so that refunding them would pay for provoking them.
var hardwareFaults = []int64{48, 62, 64, 74, 79, 92, 94, 95, 119, 120, 140}

// decideRefund is the refund that an attempt's end calls for, nil for none. ignored says why a reported checkpoint does
// not count, if it does not. With a wait it cannot be decided yet: there is one refund, and a fault that the agent
// is about to report would be another.
func decideRefund(key PodKey, held workload.HeldTime, facts podFacts) (refund *ledger.Refund, ignored string, wait time.Duration) {
	pod := facts.pod
	if facts.refunds == (ledger.RefundPolicy{}) || held.Start.IsZero() {
		return nil, "", 0
	}
	cause, reason := causeOf(pod, held, facts)
	if fault := faultOf(pod, held, facts); fault != nil {
		cause, reason = ledger.RefundDeviceFault, fmt.Sprintf("XID %d of %s", fault.XID, fault.GPUUUID)
	} else if facts.refunds.DeviceFault && cause == ledger.RefundFailed && !held.End.IsZero() {
		if wait = held.End.Add(facts.nodeGrace).Sub(facts.now); wait > 0 {
			return nil, "", wait
		}
	}
	if cause == "" {
		return nil, "", 0
	}
	refund = &ledger.Refund{Key: "refund:" + key.UID, PodUID: key.UID, Cause: cause, Reason: reason}
	if cause == ledger.RefundPreempted {
		refund.CheckpointedAt, ignored = checkpointOf(pod, held, facts.now)
	}
	return refund, ignored, 0
}

// faultOf is the first fault of the attempt's own GPUs within its time, nil for none.
func faultOf(pod *corev1.Pod, held workload.HeldTime, facts podFacts) *ledger.DeviceFault {
	if pod.Status.Phase == corev1.PodSucceeded || facts.allocation == nil {
		return nil
	}
	for _, fault := range facts.faults {
		within := held.End.IsZero() || fault.Since.Before(held.End.Add(time.Second)) // pod times are cut to whole seconds
		within = within && !fault.At.Before(held.Start)
		its := slices.ContainsFunc(facts.allocation.GPUUUIDs, func(id string) bool {
			gpu, _, _ := strings.Cut(id, "::") // a time-sliced share
			return gpu == fault.GPUUUID
		})
		if within && its && slices.Contains(hardwareFaults, fault.XID) {
			return &fault
		}
	}
	return nil
}

// causeOf says why an attempt that is over may have its charge given back, and in what words.
func causeOf(pod *corev1.Pod, held workload.HeldTime, facts podFacts) (ledger.RefundCause, string) {
	if pod.Status.Phase == corev1.PodSucceeded {
		return "", ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.DisruptionTarget || condition.Status != corev1.ConditionTrue {
			continue
		}
		bySystem := slices.Contains(disruptions, condition.Reason)
		if bySystem || condition.Reason == evictedOnRequest && facts.node.cordoned {
			return ledger.RefundPreempted, condition.Reason
		}
		return "", ""
	}
	if failedByItself(pod, held) {
		return ledger.RefundFailed, pod.Status.Reason
	}
	return "", ""
}

// reasonDeadline is a pod's status reason when its kubelet has enforced activeDeadlineSeconds.
const reasonDeadline = "DeadlineExceeded"

// failedByItself reports whether the pod failed before anybody asked it to stop: neither its own deadline nor a deletion, be it
// its user's, its Job's or one of ours because the hold was used up.
func failedByItself(pod *corev1.Pod, held workload.HeldTime) bool {
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason == reasonDeadline {
		return false
	}
	if pod.DeletionTimestamp == nil {
		return true
	}
	asked := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	return !held.EndUnknown && !held.End.IsZero() && held.End.Before(asked)
}

// checkpointOf reads when the pod says that it made its last checkpoint; zero, with the reason, when that cannot be.
func checkpointOf(pod *corev1.Pod, held workload.HeldTime, now time.Time) (at time.Time, ignored string) {
	said, problems := workload.ReadCheckpoints(pod.Annotations)
	for _, problem := range problems {
		if problem.Annotation == workload.CheckpointedAtAnnotation {
			return time.Time{}, problem.Error() + "; it does not count for the refund"
		}
	}
	at, err := said.LastAt(held.Start, now)
	if err != nil {
		return time.Time{}, err.Error() + "; it does not count for the refund"
	}
	return at, ""
}

// decideReport says what a running pod says of its checkpoints that cannot be used, "" if nothing. Whoever reports should hear of it
// while it can still be put right.
func decideReport(facts podFacts) string {
	pod := facts.pod
	if pod == nil || facts.allocation == nil || !facts.allocation.Open() || !pod.DeletionTimestamp.IsZero() {
		return ""
	}
	held := workload.Held(pod)
	if held.Start.IsZero() || held.Ended {
		return ""
	}
	said, problems := workload.ReadCheckpoints(pod.Annotations)
	if _, err := said.LastAt(held.Start, facts.now); err != nil {
		return err.Error()
	}
	if len(problems) > 0 {
		return problems[0].Error()
	}
	return ""
}
