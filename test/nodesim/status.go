package nodesim

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The statuses below are what a kubelet writes at each step; conditions are merged by type by the API server.

func admittedStatus(pod *v1.Pod, now time.Time) v1.PodStatus {
	start := metav1.NewTime(now)
	status := v1.PodStatus{
		Phase:      v1.PodPending,
		StartTime:  &start,
		HostIP:     "127.0.0.1",
		Conditions: conditions(now, "ContainersNotReady", v1.ConditionFalse),
	}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(pod, container, waiting))
	}
	return status
}

func rejectedStatus(now time.Time, resource string, wanted, free int) v1.PodStatus {
	start := metav1.NewTime(now)
	return v1.PodStatus{
		Phase:     v1.PodFailed,
		StartTime: &start,
		Reason:    "UnexpectedAdmissionError",
		Message:   fmt.Sprintf("Pod was rejected: Allocate failed due to requested number of devices unavailable for %s. Requested: %d, Available: %d, which is unexpected", resource, wanted, free),
	}
}

func runningStatus(pod *v1.Pod) v1.PodStatus {
	running := pod.Status.StartTime.Add(seconds(pod, PullSecondsAnnotation, 0))
	status := v1.PodStatus{
		Phase:      v1.PodRunning,
		PodIP:      "127.0.0.1",
		PodIPs:     []v1.PodIP{{IP: "127.0.0.1"}},
		Conditions: conditions(running, "", v1.ConditionTrue),
	}
	yes := true
	state := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(running)}}
	for _, container := range pod.Spec.InitContainers {
		initial := containerStatus(pod, container, state)
		if restartable(container) {
			initial.Started = &yes
		} else {
			initial.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: metav1.NewTime(running), FinishedAt: metav1.NewTime(running),
			}}
		}
		initial.Ready = true
		status.InitContainerStatuses = append(status.InitContainerStatuses, initial)
	}
	for _, container := range pod.Spec.Containers {
		started := containerStatus(pod, container, state)
		started.Ready, started.Started = true, &yes
		status.ContainerStatuses = append(status.ContainerStatuses, started)
	}
	return status
}

func finishedStatus(pod *v1.Pod, end ending) v1.PodStatus {
	phase, why := v1.PodSucceeded, "Completed"
	if end.exitCode != 0 {
		phase, why = v1.PodFailed, "Error"
	}
	status := v1.PodStatus{
		Phase:      phase,
		Reason:     end.reason,
		Conditions: conditions(end.at, "PodCompleted", v1.ConditionFalse),
	}
	started := pod.Status.StartTime.Add(seconds(pod, PullSecondsAnnotation, 0))
	if started.After(end.at) {
		started = end.at
	}
	terminated := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: end.exitCode, Reason: why, StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(end.at),
	}}
	for _, container := range pod.Spec.InitContainers {
		initial := containerStatus(pod, container, terminated)
		if !restartable(container) {
			initial.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(started),
			}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, initial)
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(pod, container, terminated))
	}
	return status
}

func containerStatus(pod *v1.Pod, container v1.Container, state v1.ContainerState) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name:        container.Name,
		Image:       container.Image,
		ImageID:     "nodesim://" + container.Image,
		ContainerID: fmt.Sprintf("nodesim://%s/%s", pod.UID, container.Name),
		State:       state,
	}
}

func conditions(at time.Time, reason string, ready v1.ConditionStatus) []v1.PodCondition {
	var all []v1.PodCondition
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		all = append(all, v1.PodCondition{Type: kind, Status: ready, Reason: reason, LastTransitionTime: metav1.NewTime(at)})
	}
	for _, kind := range []v1.PodConditionType{v1.PodInitialized, v1.PodReadyToStartContainers} {
		all = append(all, v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
	}
	return all
}
