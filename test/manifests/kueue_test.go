package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/pkg/kueue"
	clusterkueue "github.com/gpubank/gpubank/test/cluster/kueue"

	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

// What manifests/kueue installs is accepted beside Kueue's own kinds, names the controller that answers, and lets it read three kinds and write two
// statuses, and no more.
func TestKueueManifests(t *testing.T) {
	cp := clustertest.ControlPlane(t)
	if err := clusterkueue.InstallCRDs(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	applier, err := parts.NewApplier(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := parts.RenderFolder("manifests/kueue")
	if err != nil {
		t.Fatal(err)
	}
	var checks []string
	var rules []rbacv1.PolicyRule
	for _, object := range objects {
		if err := applier.Apply(t.Context(), object, true); err != nil {
			t.Error(err)
		}
		switch object.GetKind() {
		case "AdmissionCheck":
			checks = append(checks, typed[kueuev1beta2.AdmissionCheck](t, object).Spec.ControllerName)
		case "ClusterRole":
			rules = append(rules, typed[rbacv1.ClusterRole](t, object).Rules...)
		}
	}
	if diff := cmp.Diff([]string{kueue.ControllerName}, checks); diff != "" {
		t.Errorf("controllers of admission checks (-want +got):\n%s", diff)
	}
	group := []string{kueuev1beta2.GroupVersion.Group}
	want := []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"workloads", "admissionchecks", "resourceflavors"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: group, Resources: []string{"workloads/status", "admissionchecks/status"}, Verbs: []string{"patch"}},
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

func typed[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var value T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &value, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return value
}
