package checkpointpreemption

import (
	"cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// together says which pods cannot go on without each other, so that stopping one stops all.
type together interface {
	// group returns what is the same for all pods that stop together, or "" for a pod that stops alone.
	group(pod *corev1.Pod) string
}

const (
	// podGroupLabel names the PodGroup of scheduler-plugins that a pod belongs to.
	podGroupLabel = "scheduling.x-k8s.io/pod-group"
	// queueLabel names a queue of Kueue's, on a Job or on a pod of none.
	queueLabel = "kueue.x-k8s.io/queue-name"
)

// jobs knows Jobs and the PodGroups that pods name.
type jobs struct{ lister batchlisters.JobLister }

func (j jobs) group(pod *corev1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return "podgroup:" + pod.Namespace + "/" + *group.PodGroupName
	}
	if name := pod.Labels[podGroupLabel]; name != "" {
		return "pod-group:" + pod.Namespace + "/" + name
	}
	if job := j.of(pod); job != nil && wholeJob(job) {
		return "job:" + string(job.UID)
	}
	return ""
}

// namesQueue reports whether the pod, or the Job it belongs to, names a queue of Kueue's.
func (j jobs) namesQueue(pod *corev1.Pod) bool {
	if pod.Labels[queueLabel] != "" {
		return true
	}
	job := j.of(pod)
	return job != nil && job.Labels[queueLabel] != ""
}

// of returns the Job that controls the pod, or nil.
func (j jobs) of(pod *corev1.Pod) *batchv1.Job {
	owner, has := workload.JobOwner(pod)
	if !has {
		return nil
	}
	job, err := j.lister.Jobs(pod.Namespace).Get(owner.Name)
	if err != nil || job.UID != owner.UID {
		return nil
	}
	return job
}

// wholeJob reports whether a Job's pods stop when one of them is stopped: it says that they are a gang, or the next failure is one
// too many and a disruption counts as a failure.
func wholeJob(job *batchv1.Job) bool {
	if job.Annotations[v1alpha1.GangAnnotation] == "true" {
		return true
	}
	limit := job.Spec.BackoffLimit
	if job.Spec.BackoffLimitPerIndex != nil || limit == nil || job.Status.Failed < *limit {
		return false
	}
	return !ignoresDisruptions(job)
}

// ignoresDisruptions reports whether the first rule of the Job's failure policy that speaks of disruptions lets them not count.
func ignoresDisruptions(job *batchv1.Job) bool {
	if job.Spec.PodFailurePolicy == nil {
		return false
	}
	for _, rule := range job.Spec.PodFailurePolicy.Rules {
		for _, pattern := range rule.OnPodConditions {
			if pattern.Type == corev1.DisruptionTarget && cmp.Or(pattern.Status, corev1.ConditionTrue) == corev1.ConditionTrue {
				return rule.Action == batchv1.PodFailurePolicyActionIgnore
			}
		}
	}
	return false
}
