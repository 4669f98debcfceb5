package webhook

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// enrolled are the facts of a namespace that team-a pays for, on a cluster with one class.
func enrolled() Facts {
	return Facts{
		Namespace: "ml", Enrolled: true, AccountName: "team-a", User: "alice",
		Account: &v1alpha1.CreditAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "team-a"},
			Spec:       v1alpha1.CreditAccountSpec{Namespaces: []string{"ml"}},
		},
		Classes: []v1alpha1.GPUClass{{
			ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}},
		}},
	}
}

func gpuSpec(gpus string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "none.invalid/main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)},
		}}},
	}
}

// gpuJob is the worked example: one pod of four GPUs for at most 600 s. It is not mutated yet.
func gpuJob(change ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "ml", UID: "job-uid"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: gpuSpec("4")}},
	}
	job.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To(int64(600))
	for _, c := range change {
		c(job)
	}
	return job
}

func gpuPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shell", Namespace: "ml", UID: "pod-uid"}, Spec: gpuSpec("2")}
	pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(60))
	for _, c := range change {
		c(pod)
	}
	return pod
}

// ofJob makes a pod look as the job controller makes it.
func ofJob(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-uid", Controller: ptr.To(true)}}
}

// patched returns the object with the patch applied to its JSON, as the API server does.
func patched[T any](t *testing.T, object *T, mutation Mutation) *T {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := json.Marshal(mutation.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = patch.Apply(raw); err != nil {
		t.Fatalf("apply %s: %v", operations, err)
	}
	result := new(T)
	if err := json.Unmarshal(raw, result); err != nil {
		t.Fatal(err)
	}
	return result
}

func heldFor(job *batchv1.Job, maxGPUs, gpuSeconds int64) *ledger.Reservation {
	return &ledger.Reservation{
		UID: string(job.UID), Account: "team-a", Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "ml", Name: job.Name},
		Class: "h100", MaxGPUs: maxGPUs, GPUSeconds: gpuSeconds, State: ledger.Held,
	}
}
