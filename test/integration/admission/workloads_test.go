package admission_test

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func spec(resources corev1.ResourceRequirements) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "none.invalid/main", Resources: resources}},
	}
}

func limits(name, quantity string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(quantity)}}
}

// newJob is a Job of one pod with so many GPUs, 0 for none, for at most so many seconds.
func newJob(namespace, name, gpus string, seconds int64, change ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec(limits("nvidia.com/gpu", gpus))}},
	}
	if gpus == "0" {
		job.Spec.Template.Spec = spec(limits("cpu", "1"))
	}
	job.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To(seconds)
	for _, c := range change {
		c(job)
	}
	return job
}

func newPod(namespace, name string, s corev1.PodSpec, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: s}
	pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(100))
	for _, c := range change {
		c(pod)
	}
	return pod
}
