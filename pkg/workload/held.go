package workload

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HeldTime is when a pod held its GPUs: [Start, End), from the kubelet's admission to the last container's finish, as
// the pod's own status tells it.
type HeldTime struct {
	// Start is zero until the pod has started, and stays zero for one that never held anything.
	Start time.Time
	// Ended: no container of the pod runs or will run again.
	Ended bool
	// End is the last container's finish, never before Start. With EndUnknown it is only the last moment that the status
	// vouches for, and zero when there is none.
	End time.Time
	// EndUnknown: the pod is over, but a container's finish was never reported (its node vanished, or it could not be located).
	EndUnknown bool
}

// NeverHeld reports a pod that is over and held nothing, such as one that the kubelet rejected.
func (h HeldTime) NeverHeld() bool { return h.Ended && h.Start.IsZero() }

// Held reads a pod's held time from its status.
func Held(pod *corev1.Pod) HeldTime {
	containers := containersOf(pod)
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || allOver(pod)
	if over && rejected(pod, containers) {
		return HeldTime{Ended: true}
	}
	held := HeldTime{Start: startOf(pod, containers), Ended: over}
	if !over || held.Start.IsZero() {
		return held
	}
	for _, status := range containers {
		finished, known := finishOf(status)
		held.End = later(held.End, finished)
		held.EndUnknown = held.EndUnknown || !known
	}
	// No container ever finished: images were pulled until someone gave up, or nothing of them is left.
	if held.End.IsZero() {
		held.EndUnknown = true
	}
	if held.EndUnknown {
		held.End = later(held.End, lastEvidence(pod))
	}
	// Start and finish can come from different clocks; a negative time would be a refund.
	if !held.End.IsZero() && held.End.Before(held.Start) {
		held.End = held.Start
	}
	return held
}

func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
}

// startOf is the kubelet's admission of the pod, from which its GPUs are held, else the earliest container's start.
func startOf(pod *corev1.Pod, containers []corev1.ContainerStatus) time.Time {
	if pod.Status.StartTime != nil && !pod.Status.StartTime.IsZero() {
		return pod.Status.StartTime.UTC()
	}
	var earliest time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (earliest.IsZero() || t.Before(earliest)) {
			earliest = t.UTC()
		}
	}
	for _, status := range containers {
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if state.Running != nil {
				consider(state.Running.StartedAt.Time)
			}
			if state.Terminated != nil {
				consider(state.Terminated.StartedAt.Time)
			}
		}
	}
	return earliest
}

// finishOf returns a container's latest finish. known is false when it ran, or may have run, past what it reports.
func finishOf(status corev1.ContainerStatus) (finished time.Time, known bool) {
	known = true
	switch {
	case status.State.Terminated != nil:
		if status.State.Terminated.FinishedAt.IsZero() {
			known = false // the kubelet could not locate it (ContainerStatusUnknown)
		} else {
			finished = status.State.Terminated.FinishedAt.UTC()
		}
	case status.State.Running != nil:
		known = false // marked over by someone other than its kubelet
	}
	// A restarted container's earlier run counts where the later one left no finish.
	if last := status.LastTerminationState.Terminated; last != nil && !last.FinishedAt.IsZero() {
		finished = later(finished, last.FinishedAt.UTC())
	}
	return finished, known
}

// rejectionPrefix is how the kubelet's status message begins for a pod it refused to admit (kubelet.go, rejectPod).
const rejectionPrefix = "Pod was rejected"

// reasonsOfStarted are pod status reasons that the kubelet and the control plane give to pods that were admitted.
var reasonsOfStarted = []string{"Evicted", "DeadlineExceeded", "NodeShutdown", "Shutdown", "Terminated", "NodeLost", "Preempting"}

// rejected reports whether a pod that is over never held its GPUs: no container of it ever started, and nothing says
// that the kubelet had admitted it.
func rejected(pod *corev1.Pod, containers []corev1.ContainerStatus) bool {
	if slices.ContainsFunc(containers, everStarted) {
		return false
	}
	if strings.HasPrefix(pod.Status.Message, rejectionPrefix) {
		return true
	}
	if pod.Status.StartTime == nil || pod.Status.StartTime.IsZero() {
		return true
	}
	// Only a kubelet that admitted the pod writes container statuses: it was pulling images, say.
	if len(containers) > 0 || slices.Contains(reasonsOfStarted, pod.Status.Reason) {
		return false
	}
	return !conditionIs(pod, corev1.DisruptionTarget, corev1.ConditionTrue) &&
		!conditionIs(pod, corev1.PodReadyToStartContainers, corev1.ConditionTrue)
}

func everStarted(status corev1.ContainerStatus) bool {
	terminated := status.State.Terminated
	return status.State.Running != nil || status.LastTerminationState.Terminated != nil || status.RestartCount > 0 ||
		(terminated != nil && (!terminated.StartedAt.IsZero() || !terminated.FinishedAt.IsZero()))
}

// allOver reports whether every container has finished and none can be restarted, although the phase does not say so yet.
func allOver(pod *corev1.Pod) bool {
	if len(pod.Spec.Containers) == 0 || len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) {
		return false
	}
	deleted := pod.DeletionTimestamp != nil
	restartable := pod.Spec.RestartPolicy != corev1.RestartPolicyNever && pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure
	if !deleted && (restartable || hasOwnRestartPolicy(pod)) {
		return false
	}
	for _, status := range pod.Status.ContainerStatuses {
		terminated := status.State.Terminated
		if terminated == nil || terminated.FinishedAt.IsZero() {
			return false
		}
		if !deleted && pod.Spec.RestartPolicy != corev1.RestartPolicyNever && terminated.ExitCode != 0 {
			return false
		}
	}
	// Sidecars are stopped after the containers, and hold their GPUs until then.
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if status.State.Running != nil {
			return false
		}
	}
	return true
}

func hasOwnRestartPolicy(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0
	})
}

// lastEvidence is the latest moment at which someone wrote that the pod was going or gone: an eviction or garbage collection
// (DisruptionTarget), or its kubelet or node controller taking back its readiness.
func lastEvidence(pod *corev1.Pod) time.Time {
	var latest time.Time
	for _, condition := range pod.Status.Conditions {
		going := condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
		gone := condition.Status != corev1.ConditionTrue &&
			(condition.Type == corev1.PodReady || condition.Type == corev1.ContainersReady || condition.Type == corev1.PodReadyToStartContainers)
		if going || gone {
			latest = later(latest, condition.LastTransitionTime.UTC())
		}
	}
	return latest
}

func conditionIs(pod *corev1.Pod, conditionType corev1.PodConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == conditionType && c.Status == status
	})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
