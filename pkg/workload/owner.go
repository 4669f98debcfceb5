package workload

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobOwner returns the batch/v1 Job that controls the pod, if one does. An owner reference is the pod creator's own
// claim; the ledger bounds what a false one could gain by the hold's MaxGPUs.
func JobOwner(pod *corev1.Pod) (metav1.OwnerReference, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" || owner.APIVersion != batchv1.SchemeGroupVersion.String() {
		return metav1.OwnerReference{}, false
	}
	return *owner, true
}

// HoldUID returns the UID of the reservation that covers the pod unless the pod has one of its own: its Job's, else the
// pod's. A caller looks the pod's own UID up first.
func HoldUID(pod *corev1.Pod) string {
	if job, ok := JobOwner(pod); ok {
		return string(job.UID)
	}
	return string(pod.UID)
}
