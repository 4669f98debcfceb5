package admission_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gpubank/gpubank/pkg/workload"
)

// What is a GPU by its name is said in four places: in Go, in the webhook's match conditions, in the mutating policies, and in
// GPUClass.
func TestGPUNamesAgree(t *testing.T) {
	conditions := 0
	for _, object := range render(t, "manifests/webhook") {
		if object.GetKind() != "ValidatingWebhookConfiguration" && object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration))
		for _, hook := range configuration.Webhooks {
			for _, condition := range hook.MatchConditions {
				if condition.Name != "asks-for-gpus" {
					continue
				}
				conditions++
				if !strings.Contains(condition.Expression, "name.matches('"+workload.GPUNamePattern+"')") {
					t.Errorf("%s has another pattern: %s", hook.Name, condition.Expression)
				}
			}
		}
	}
	if conditions != 5 {
		t.Errorf("%d match conditions about GPUs, want 5", conditions)
	}
	for _, object := range render(t, "manifests/mutating-policy/policy.yaml") {
		content, err := object.MarshalJSON()
		must(t, err)
		if object.GetKind() == "MutatingAdmissionPolicy" && !strings.Contains(string(content), "name.matches('"+workload.GPUNamePattern+"')") {
			t.Errorf("%s has another pattern", object.GetName())
		}
	}
	found := false
	for _, object := range render(t, "manifests/crd") {
		content, err := object.MarshalJSON()
		must(t, err)
		found = found || object.GetName() == "gpuclasses.gpubank.io" && strings.Contains(string(content), "name.matches('"+workload.GPUNamePattern+"')")
	}
	if !found {
		t.Error("GPUClass accepts names by another pattern")
	}
}

// Every webhook keeps to the rules that make its absence harmless (H36, H37, H39).
func TestWebhooksKeepToThemselves(t *testing.T) {
	for _, object := range render(t, "manifests/webhook") {
		if object.GetKind() != "ValidatingWebhookConfiguration" && object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration))
		for _, hook := range configuration.Webhooks {
			if *hook.FailurePolicy != admissionregistrationv1.Fail || *hook.TimeoutSeconds != 10 || *hook.MatchPolicy != admissionregistrationv1.Equivalent {
				t.Errorf("%s: %+v", hook.Name, hook)
			}
			if *hook.SideEffects != admissionregistrationv1.SideEffectClassNone && *hook.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun {
				t.Errorf("%s has side effects on a dry run", hook.Name)
			}
			if hook.Name == "account.gpubank.io" {
				continue // about our own, cluster-scoped kind
			}
			if len(hook.MatchConditions) == 0 {
				t.Errorf("%s is sent everything", hook.Name)
			}
			selector := fmt.Sprint(hook.NamespaceSelector)
			for _, part := range []string{"gpubank.io/account,Operator:Exists", "kubernetes.io/metadata.name,Operator:NotIn,Values:[kube-system kube-public kube-node-lease gpubank-system]"} {
				if !strings.Contains(selector, part) {
					t.Errorf("%s: the namespace selector lacks %s: %s", hook.Name, part, selector)
				}
			}
		}
	}
}

// The component for cert-manager fits onto the manifests.
func TestCertManagerComponent(t *testing.T) {
	overlay := t.TempDir()
	root, err := filepath.Abs(repository)
	must(t, err)
	relative, err := filepath.Rel(overlay, filepath.Join(root, "manifests"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"),
		[]byte(fmt.Sprintf("resources: [%s/webhook]\ncomponents: [%s/cert-manager]\n", relative, relative)), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	must(t, err)
	injected := 0
	for _, resource := range built.Resources() {
		content, err := resource.MarshalJSON()
		must(t, err)
		object := &unstructured.Unstructured{}
		must(t, object.UnmarshalJSON(content))
		if object.GetAnnotations()["cert-manager.io/inject-ca-from"] == "gpubank-system/credit-webhook" {
			injected++
		}
		if object.GetKind() == "Deployment" && !strings.Contains(string(content), "--cert-dir=/etc/gpubank/serving") {
			t.Error("the webhook still keeps its own certificate")
		}
	}
	if injected != 2 {
		t.Errorf("the authority is injected into %d configurations, want 2", injected)
	}
}
