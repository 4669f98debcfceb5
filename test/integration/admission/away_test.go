package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// testWhileAway shows whom a webhook that cannot be reached holds up: GPU workloads of enrolled namespaces and nobody
// else (H36, H37).
func testWhileAway(t *testing.T, s *suite) {
	ctx := t.Context()
	must(t, s.CreateNamespace(ctx, "away", map[string]string{v1alpha1.AccountLabel: "away"}))
	must(t, s.CreateNamespace(ctx, "elsewhere", nil))
	for _, system := range []string{"kube-system", v1alpha1.SystemNamespace} {
		// Even if somebody enrols them by mistake.
		must(t, s.label(ctx, s.admin, &corev1.Namespace{ObjectMeta: named("", system)}, v1alpha1.AccountLabel, "away"))
	}
	// Before its namespace was enrolled.
	old := newJob("elsewhere", "old", "1", 100, func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
	must(t, s.admin.Create(ctx, old))
	// The API server learns of the configurations a moment after they are stored.
	eventually(t, func(ctx context.Context) string {
		if s.admin.Create(ctx, newJob("away", "probe", "1", 100), client.DryRunAll) == nil {
			return "a GPU Job passes without the webhook"
		}
		return ""
	})

	sidecar := spec(limits("nvidia.com/mig-1g.5gb", "1")).Containers[0]
	sidecar.Name, sidecar.RestartPolicy = "sidecar", ptr.To(corev1.ContainerRestartPolicyAlways)
	heldUp := map[string]client.Object{
		"Job":                      newJob("away", "x", "1", 100),
		"pod":                      newPod("away", "x", spec(limits("nvidia.com/gpu", "1"))),
		"GPU of an unknown vendor": newPod("away", "x", spec(limits("example.com/superGPU", "1"))),
		"slice in a sidecar":       newPod("away", "x", spec(limits("cpu", "1")), func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar} }),
		"slice in a Job's sidecar": newJob("away", "x", "0", 100, func(j *batchv1.Job) { j.Spec.Template.Spec.InitContainers = []corev1.Container{sidecar} }),
		"extended resource of DRA": newPod("away", "x", spec(limits("deviceclass.resource.kubernetes.io/h100", "1"))),
		"resource claim": newPod("away", "x", spec(limits("cpu", "1")), func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		}),
	}
	for name, object := range heldUp {
		if err := s.admin.Create(ctx, object); err == nil || !strings.Contains(err.Error(), "gpubank.io") {
			t.Errorf("%s: created without the webhook, or refused by somebody else: %v", name, err)
		}
	}
	passes := map[string]client.Object{
		"Job without GPUs":                       newJob("away", "cpu", "0", 100),
		"pod without GPUs":                       newPod("away", "cpu", spec(limits("cpu", "1"))),
		"pod with another device":                newPod("away", "nic", spec(limits("example.com/nic", "1"))),
		"GPU Job of a namespace nobody enrolled": newJob("elsewhere", "gpu", "1", 100),
		"GPU pod of a system namespace":          newPod("kube-system", "gpu", spec(limits("nvidia.com/gpu", "1"))),
		"GPU pod of gpubank's own namespace":     newPod(v1alpha1.SystemNamespace, "gpu", spec(limits("nvidia.com/gpu", "1"))),
		"a node's system pod, on its node": newPod("kube-system", "device-plugin", spec(limits("cpu", "1")), func(p *corev1.Pod) {
			p.Spec.NodeName = "n1"
		}),
	}
	for name, object := range passes {
		if err := s.admin.Create(ctx, object); err != nil {
			t.Errorf("%s: held up: %v", name, err)
		}
	}

	// Updates of a GPU Job wait for the webhook only if they change what it costs, or who pays.
	must(t, s.label(ctx, s.admin, &corev1.Namespace{ObjectMeta: named("", "elsewhere")}, v1alpha1.AccountLabel, "away"))
	eventually(t, func(ctx context.Context) string {
		if s.admin.Create(ctx, newJob("elsewhere", "probe", "1", 100), client.DryRunAll) == nil {
			return "the namespace is not seen as enrolled yet"
		}
		return ""
	})
	must(t, s.label(ctx, s.admin, old, "note", "x"))
	if err := s.admin.Patch(ctx, old, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parallelism":5}}`))); !apierrors.IsInternalError(err) {
		t.Errorf("a Job is made larger without the webhook: %v", err)
	}
	must(t, s.admin.Delete(ctx, old))

	// Its own installation can be repaired.
	must(t, s.label(ctx, s.admin, &corev1.Service{ObjectMeta: named(v1alpha1.SystemNamespace, "credit-webhook")}, "note", "x"))
	for _, system := range []string{"kube-system", v1alpha1.SystemNamespace} {
		must(t, s.label(ctx, s.admin, &corev1.Namespace{ObjectMeta: named("", system)}, v1alpha1.AccountLabel, nil))
	}
}

// testMeteredPods shows that what makes a pod accountable cannot be taken off it, webhook or not.
func testMeteredPods(t *testing.T, s *suite) {
	ctx := t.Context()
	must(t, s.CreateNamespace(ctx, "metered", nil))
	pod := newPod("metered", "p", spec(limits("cpu", "1")), func(p *corev1.Pod) {
		p.Labels = map[string]string{v1alpha1.AccountLabel: "team-a"}
		p.Finalizers = []string{v1alpha1.MeteringFinalizer}
		p.Spec.NodeName = "node" // a pod on no node has no grace period
	})
	must(t, s.admin.Create(ctx, pod))
	owner := s.user(t, "alice", "system:masters")
	eventually(t, func(ctx context.Context) string {
		if s.label(ctx, owner, pod.DeepCopy(), v1alpha1.AccountLabel, "team-b") == nil {
			return "the account label was changed"
		}
		return ""
	})
	// The probe above may have come before the policy: put the label back as the controller may.
	controller := s.user(t, "system:serviceaccount:gpubank-system:credit-controller", "system:masters")
	must(t, s.label(ctx, controller, pod, v1alpha1.AccountLabel, "team-a"))

	if err := s.label(ctx, owner, pod.DeepCopy(), v1alpha1.AccountLabel, nil); !apierrors.IsForbidden(err) {
		t.Errorf("the account label was removed: %v", err)
	}
	if err := s.label(ctx, owner, pod.DeepCopy(), v1alpha1.ClassLabel, "cheap"); !apierrors.IsForbidden(err) {
		t.Errorf("the class label was changed: %v", err)
	}
	unfinalize := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := owner.Patch(ctx, pod.DeepCopy(), unfinalize); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "settled") {
		t.Errorf("the finalizer was removed: %v", err)
	}
	must(t, s.label(ctx, owner, pod, "note", "x"))

	// A deletion's own grace period would let it run past any deadline.
	eventually(t, func(ctx context.Context) string {
		err := owner.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(1_000_000), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "gracePeriodSeconds") {
			return fmt.Sprintf("deleted with a grace period of days: %v", err)
		}
		return ""
	})
	if err := owner.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("metered"), client.GracePeriodSeconds(31), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("deleted as one of many with more than the pod's own grace period: %v", err)
	}
	must(t, owner.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(30), client.DryRunAll))
	must(t, owner.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.DryRunAll))
	must(t, owner.Delete(ctx, pod))
	must(t, controller.Patch(ctx, pod, unfinalize))

	must(t, s.CreateNamespace(ctx, "evicted", map[string]string{v1alpha1.AccountLabel: "team-a"}))
	pod = newPod("evicted", "p", spec(limits("cpu", "1")))
	must(t, s.admin.Create(ctx, pod))
	evict := func(ctx context.Context, seconds int64) error {
		return owner.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{
			ObjectMeta: named("evicted", "p"), DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &seconds, DryRun: []string{metav1.DryRunAll}},
		})
	}
	eventually(t, func(ctx context.Context) string {
		if err := evict(ctx, 3601); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("evicted with a grace period of more than an hour: %v", err)
		}
		return ""
	})
	must(t, evict(ctx, 3600))
}
