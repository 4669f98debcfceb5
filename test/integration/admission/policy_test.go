package admission_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// testMutatingPolicy shows that the component mutating-policy adds what the webhook would have added, no more and no less, so
// that the webhook's mutating call is left out; and that what it leaves to the webhook still gets there.
func testMutatingPolicy(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "policy", 100_000*ledger.Credit)
	s.apply(t, "manifests/mutating-policy/policy.yaml")
	eventually(t, func(ctx context.Context) string {
		before := s.mutatingCalls(t)
		must(t, s.admin.Create(ctx, newJob("policy", "probe", "1", 10), client.DryRunAll))
		must(t, s.admin.Create(ctx, newPod("policy", "probe", spec(limits("nvidia.com/gpu", "1"))), client.DryRunAll))
		if s.mutatingCalls(t) != before {
			return "the webhook is still asked to complete workloads"
		}
		return ""
	})
	before := s.mutatingCalls(t)
	for name, labels := range map[string]map[string]string{"bare": nil, "labelled": {"app": "train"}} {
		job := newJob("policy", name, "1", 10, func(j *batchv1.Job) {
			j.Labels, j.Spec.Template.Labels, j.Spec.Suspend = labels, labels, ptr.To(true)
		})
		must(t, s.admin.Create(ctx, job))
		template := job.Spec.Template
		if job.Labels[v1alpha1.AccountLabel] != "policy" || template.Labels[v1alpha1.AccountLabel] != "policy" ||
			template.Spec.SchedulerName != v1alpha1.SchedulerName || job.Labels["app"] != labels["app"] {
			t.Errorf("Job %s is %+v", name, job)
		}
		pod := newPod("policy", name, spec(limits("nvidia.com/gpu", "1")), func(p *corev1.Pod) {
			p.Labels = labels
			if labels != nil {
				p.Finalizers = []string{"example.com/kept"}
			}
		})
		must(t, s.admin.Create(ctx, pod))
		if pod.Labels[v1alpha1.AccountLabel] != "policy" || pod.Spec.SchedulerName != v1alpha1.SchedulerName || pod.Labels["app"] != labels["app"] ||
			pod.Finalizers[len(pod.Finalizers)-1] != v1alpha1.MeteringFinalizer || labels != nil && pod.Finalizers[0] != "example.com/kept" {
			t.Errorf("pod %s is %+v", name, pod)
		}
	}
	claimed := newJob("policy", "claimed", "1", 10, func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.AccountLabel: "team-a"} })
	if err := s.admin.Create(ctx, claimed); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "team-a") {
		t.Errorf("another account's label: %v", err)
	}
	if after := s.mutatingCalls(t); after != before {
		t.Errorf("the webhook was asked to complete %s workloads, and then %s", before, after)
	}

	// No GPUs, though it names them; and a bound that only the webhook can find out.
	none := newPod("policy", "none", spec(limits("nvidia.com/gpu", "0")))
	must(t, s.admin.Create(ctx, none))
	if len(none.Finalizers) != 0 || none.Spec.SchedulerName != corev1.DefaultSchedulerName {
		t.Errorf("a pod of no GPUs is %+v", none)
	}
	annotated := newJob("policy", "annotated", "1", 10, func(j *batchv1.Job) {
		j.Spec.Template.Spec.ActiveDeadlineSeconds, j.Spec.Suspend = nil, ptr.To(true)
		j.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: "2m"}
	})
	must(t, s.admin.Create(ctx, annotated))
	if annotated.Spec.Template.Spec.SchedulerName != v1alpha1.SchedulerName || ptr.Deref(annotated.Spec.Template.Spec.ActiveDeadlineSeconds, 0) != 120 {
		t.Errorf("the annotated Job is %+v", annotated)
	}
}

var mutatingCount = regexp.MustCompile(`gpubank_webhook_duration_seconds_count{webhook="mutate-workload"} (\d+)`)

// mutatingCalls is how often the webhook was asked to complete a workload.
func (s *suite) mutatingCalls(t *testing.T) string {
	t.Helper()
	body, err := get(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/metrics", s.metrics))
	must(t, err)
	found := mutatingCount.FindStringSubmatch(body)
	if found == nil {
		t.Fatal("/metrics lacks the count of mutating calls")
	}
	return found[1]
}
