package workload

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

// at is a moment, in seconds after noon.
func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

func finished(start, end int, exitCode int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		StartedAt: at(start), FinishedAt: at(end), ExitCode: exitCode}}}
}

func running(start int) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(start)}}}
}

func waiting(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func restarted(now corev1.ContainerStatus, before corev1.ContainerStatus) corev1.ContainerStatus {
	now.LastTerminationState, now.RestartCount = before.State, 1
	return now
}

func statuses(s ...corev1.ContainerStatus) []corev1.ContainerStatus { return s }

func condition(t corev1.PodConditionType, s corev1.ConditionStatus, seconds int) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: s, LastTransitionTime: at(seconds)}
}

func TestHeld(t *testing.T) {
	start := ptr.To(at(0))
	unlocated := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "ContainerStatusUnknown", ExitCode: 137}}}
	for name, c := range map[string]struct {
		spec    corev1.PodSpec
		deleted bool
		status  corev1.PodStatus
		// seconds after noon; start is noon unless notStarted, end is zero time when -1
		startsAt   int
		notStarted bool
		ended      bool
		end        int
		unknown    bool
	}{
		"not bound":      {status: corev1.PodStatus{Phase: corev1.PodPending}, notStarted: true, end: -1},
		"pulling images": {status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: start, ContainerStatuses: statuses(waiting("ContainerCreating"))}, end: -1},
		"running":        {status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(running(3))}, end: -1},
		"no startTime, a container's start": {
			status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: statuses(running(9), running(5))}, startsAt: 5, end: -1},
		"succeeded": {status: corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: start, ContainerStatuses: statuses(finished(5, 420, 0))}, ended: true, end: 420},
		"the last of several containers, not the first": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, ContainerStatuses: statuses(finished(5, 420, 0), finished(5, 300, 1))}, ended: true, end: 420},
		"a sidecar finishes last": {
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: start,
				InitContainerStatuses: statuses(finished(1, 450, 0)), ContainerStatuses: statuses(finished(5, 420, 0))}, ended: true, end: 450},
		"an ephemeral container finishes last": {
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: start,
				EphemeralContainerStatuses: statuses(finished(1, 430, 0)), ContainerStatuses: statuses(finished(5, 420, 0))}, ended: true, end: 430},
		"failed in an init container": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start,
				InitContainerStatuses: statuses(finished(2, 12, 1)), ContainerStatuses: statuses(waiting("PodInitializing"))}, ended: true, end: 12},
		"finish before start": {
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: start, ContainerStatuses: statuses(finished(-9, -2, 0))}, ended: true, end: 0},
		"restarted and running": {
			spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: make([]corev1.Container, 1)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(restarted(running(50), finished(5, 40, 1)))}, end: -1},
		"restarted, then succeeded": {
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: start, ContainerStatuses: statuses(restarted(finished(50, 90, 0), finished(5, 40, 1)))}, ended: true, end: 90},
		"failed while waiting to restart": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", StartTime: start,
				ContainerStatuses: statuses(restarted(waiting("CrashLoopBackOff"), finished(5, 40, 1)))}, ended: true, end: 40},
		"a failed container that OnFailure restarts": {
			spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: make([]corev1.Container, 1)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 1))}, end: -1},
		"phase is late, policy Never": {
			spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: make([]corev1.Container, 1)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 1))}, ended: true, end: 40},
		"phase is late, policy OnFailure and success": {
			spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: make([]corev1.Container, 1)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 0))}, ended: true, end: 40},
		"policy Never, but the container has rules of its own": {
			spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}}}},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 1))}, end: -1},
		"phase is late, one container still runs": {
			spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: make([]corev1.Container, 2)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 1), running(5))}, end: -1},
		"phase is late, a sidecar still runs": {
			spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: make([]corev1.Container, 1)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start,
				InitContainerStatuses: statuses(running(1)), ContainerStatuses: statuses(finished(5, 40, 0))}, end: -1},
		"deleted service whose containers finished": {
			spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: make([]corev1.Container, 1)}, deleted: true,
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 143))}, ended: true, end: 40},
		"a service between restarts": {
			spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: make([]corev1.Container, 1)},
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 0))}, end: -1},

		"rejected by the kubelet": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, Reason: "UnexpectedAdmissionError",
				Message: "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"}, notStarted: true, ended: true, end: -1},
		"rejected, with container statuses": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, Reason: "OutOfnvidia.com/gpu", Message: "Pod was rejected: Node didn't have enough resource",
				ContainerStatuses: statuses(waiting("ContainerCreating"))}, notStarted: true, ended: true, end: -1},
		"rejected by disk pressure": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, Reason: "Evicted",
				Message: "Pod was rejected: The node had condition: [DiskPressure]. "}, notStarted: true, ended: true, end: -1},
		"failed before any kubelet saw it": {
			status:     corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionTrue, 30)}},
			notStarted: true, ended: true, end: -1},
		"image never came, until the deadline": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, Reason: "DeadlineExceeded", ContainerStatuses: statuses(waiting("ImagePullBackOff")),
				Conditions: []corev1.PodCondition{condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse, 600)}}, ended: true, end: 600, unknown: true},

		"evicted, no container status left": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, Reason: "Evicted", Message: "The node was low on resource: memory.",
				Conditions: []corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionTrue, 99)}}, ended: true, end: 99, unknown: true},
		"node shut down, nothing else known": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, Reason: "Terminated"}, ended: true, end: -1, unknown: true},
		"collected while its node was gone": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, ContainerStatuses: statuses(running(5)), Conditions: []corev1.PodCondition{
				condition(corev1.PodReady, corev1.ConditionFalse, 200), condition(corev1.DisruptionTarget, corev1.ConditionTrue, 500)}},
			ended: true, end: 500, unknown: true},
		"a container that could not be located": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: start, ContainerStatuses: statuses(finished(5, 40, 0), unlocated),
				Conditions: []corev1.PodCondition{condition(corev1.ContainersReady, corev1.ConditionFalse, 70)}}, ended: true, end: 70, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: c.spec, Status: c.status}
			if c.deleted {
				pod.DeletionTimestamp = ptr.To(at(60))
			}
			want := HeldTime{Ended: c.ended, EndUnknown: c.unknown}
			if !c.notStarted {
				want.Start = at(c.startsAt).Time
			}
			if c.end >= 0 {
				want.End = at(c.end).Time
			}
			got := Held(pod)
			if got != want {
				t.Fatalf("Held = %+v\nwant   %+v", got, want)
			}
			if got.NeverHeld() != (c.notStarted && c.ended) {
				t.Errorf("NeverHeld = %v", got.NeverHeld())
			}
		})
	}
}
