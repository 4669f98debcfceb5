package webhook

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

func TestMutation(t *testing.T) {
	facts := enrolled()
	facts.Account.Spec.Policy.DefaultMaxRuntime = &metav1.Duration{Duration: time.Hour}

	job := patched(t, gpuJob(), MutateJob(facts, gpuJob()))
	template := job.Spec.Template
	if job.Labels[v1alpha1.AccountLabel] != "team-a" || template.Labels[v1alpha1.AccountLabel] != "team-a" ||
		template.Spec.SchedulerName != v1alpha1.SchedulerName || *template.Spec.ActiveDeadlineSeconds != 600 {
		t.Errorf("the mutated Job is %+v", job)
	}
	pod := patched(t, gpuPod(), MutatePod(facts, gpuPod()))
	if pod.Labels[v1alpha1.AccountLabel] != "team-a" || pod.Spec.SchedulerName != v1alpha1.SchedulerName ||
		len(pod.Finalizers) != 1 || pod.Finalizers[0] != v1alpha1.MeteringFinalizer {
		t.Errorf("the mutated pod is %+v", pod)
	}
	// What is there stays.
	busy := func(p *corev1.Pod) {
		p.Labels, p.Finalizers = map[string]string{"app": "x"}, []string{"batch.kubernetes.io/job-tracking"}
		p.Spec.SchedulerName, p.Spec.ActiveDeadlineSeconds = corev1.DefaultSchedulerName, nil
		p.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: "2m"}
	}
	pod = patched(t, gpuPod(busy), MutatePod(facts, gpuPod(busy)))
	if pod.Labels["app"] != "x" || pod.Labels[v1alpha1.AccountLabel] != "team-a" || len(pod.Finalizers) != 2 ||
		pod.Spec.SchedulerName != v1alpha1.SchedulerName || *pod.Spec.ActiveDeadlineSeconds != 120 {
		t.Errorf("the mutated pod is %+v", pod)
	}
	if again := MutatePod(facts, pod); len(again.Patch) != 0 {
		t.Errorf("a mutated pod is mutated again: %v", again.Patch)
	}
	unbounded := gpuJob(func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil })
	mutation := MutateJob(facts, unbounded)
	if bound := patched(t, unbounded, mutation).Spec.Template.Spec.ActiveDeadlineSeconds; bound == nil || *bound != 3600 {
		t.Errorf("the account's default is not enforced: %v", bound)
	}
	if len(mutation.Warnings) != 1 || !strings.Contains(mutation.Warnings[0], "3600s") {
		t.Errorf("nobody is told of the default: %v", mutation.Warnings)
	}

	for name, untouched := range map[string]Mutation{
		"not enrolled":  MutateJob(Facts{Namespace: "ml"}, gpuJob()),
		"no GPUs":       MutatePod(facts, &corev1.Pod{Spec: gpuSpec("0")}),
		"to be refused": MutatePod(facts, gpuPod(func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, gpuSpec("-1").Containers...) })),
	} {
		if len(untouched.Patch) != 0 {
			t.Errorf("%s: mutated: %v", name, untouched.Patch)
		}
	}
	// Somebody's choice is not overwritten; it is for validation to refuse.
	chosen := func(p *corev1.Pod) {
		p.Spec.SchedulerName = "volcano"
		p.Labels = map[string]string{v1alpha1.AccountLabel: "team-b"}
	}
	pod = patched(t, gpuPod(chosen), MutatePod(facts, gpuPod(chosen)))
	if pod.Spec.SchedulerName != "volcano" || pod.Labels[v1alpha1.AccountLabel] != "team-b" {
		t.Errorf("a choice was overwritten: %+v", pod)
	}
}
