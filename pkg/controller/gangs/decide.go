package gangs

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/workload"
)

// restartedAnnotation on a pod that is deleted here names the member that died: its end is no death.
const restartedAnnotation = "gpubank.io/restarted-with"

// member is what a decision knows of one pod of a gang.
type member struct {
	pod *corev1.Pod
	// died is when it failed, or was deleted by others than this package; zero for one that lives, or has succeeded.
	died time.Time
	// runs: it can be deleted.
	runs bool
}

func memberOf(pod *corev1.Pod) member {
	m := member{pod: pod, runs: pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed}
	if m.runs || pod.Status.Phase == corev1.PodSucceeded || pod.Annotations[restartedAnnotation] != "" {
		return m
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		m.died = finished(pod)
	case pod.Spec.NodeName != "": // one that never had a node leaves nobody alone
		m.died = askedToStop(pod)
	}
	return m
}

// finished is when a pod that failed did, as its status says: its last container's finish, or where there was none (its kubelet refused or
// evicted it) when it ceased to be ready.
func finished(pod *corev1.Pod) time.Time {
	if end := workload.Held(pod).End; !end.IsZero() {
		return end
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady || condition.Type == corev1.DisruptionTarget {
			return condition.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// askedToStop is when a pod's deletion was asked for: its deletion timestamp is when its grace period ends.
func askedToStop(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// restart is a member to delete, and the one whose death is the reason.
type restart struct {
	pod, because *corev1.Pod
}

// decideRestart returns the members that ran with one that died: those that were made before. Times are whole seconds; a replacement
// made in the very second of the death is taken for one that ran with it, and made once more.
func decideRestart(members []member) (all []restart) {
	for _, m := range members {
		if !m.runs {
			continue
		}
		var because *member
		for i, other := range members {
			if !other.died.IsZero() && !m.pod.CreationTimestamp.After(other.died) && (because == nil || other.died.Before(because.died)) {
				because = &members[i]
			}
		}
		if because != nil {
			all = append(all, restart{pod: m.pod, because: because.pod})
		}
	}
	return all
}
