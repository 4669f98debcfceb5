// Package manifests_test shows that `kubectl apply -k manifests/` would be accepted by a real API server, and that what
// it installs keeps to what gpubank promises: least privilege, probes, requests, and a webhook that cannot hold up a
// cluster's own parts.
package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// Every object passes the API server's validation and admission. Namespace and CRDs are stored, because the others
// depend on them; nothing else is.
func TestAPIServerAcceptsEverything(t *testing.T) {
	cp := clustertest.ControlPlane(t)
	applier, err := parts.NewApplier(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	objects := render(t)
	if len(objects) < 40 {
		t.Errorf("only %d objects are rendered", len(objects))
	}
	for _, object := range objects {
		stored := object.GetKind() == "CustomResourceDefinition" || object.GetKind() == "Namespace"
		if err := applier.Apply(t.Context(), object, !stored); err != nil {
			t.Error(err)
		}
		if object.GetKind() == "CustomResourceDefinition" {
			if err := applier.WaitEstablished(t.Context(), object); err != nil {
				t.Error(err)
			}
		}
	}
}

// Everything is in gpubank's own namespace, but for two roles that are about objects of others.
func TestNamespaces(t *testing.T) {
	elsewhere := map[string]string{
		// What the scheduler needs to check tokens, and what tells the controller that a node lives.
		"gpubank-scheduler-authentication-reader": "kube-system",
		"gpubank-credit-controller":               "kube-node-lease",
	}
	for _, object := range render(t) {
		namespace := object.GetNamespace()
		if namespace == "" || namespace == v1alpha1.SystemNamespace || namespace == elsewhere[object.GetName()] {
			continue
		}
		t.Errorf("%s %s is in namespace %s", object.GetKind(), object.GetName(), namespace)
	}
}

// Pods ask for what they need, are probed, and have no rights on their node but the agent's two folders.
func TestPodsAreConfined(t *testing.T) {
	pods := podTemplates(t)
	for _, name := range []string{"credit-webhook", "gpubank-scheduler", "credit-controller", "nvml-exporter"} {
		if _, ok := pods[name]; !ok {
			t.Errorf("%s is not installed", name)
		}
	}
	for name, pod := range pods {
		for _, problem := range podProblems(pod, name == "nvml-exporter") {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// Each container that writes the ledger has the address of its own role, and of no other; the node agent has none. No file is
// mounted by itself: such a mount would keep a rotated password out.
func TestDatabaseCredentials(t *testing.T) {
	want := map[string][]string{
		"credit-controller/credit-controller": {"gpubank-database-controller"},
		"credit-controller/migrate":           {"gpubank-database-owner"},
		"credit-webhook/credit-webhook":       {"gpubank-database-webhook"},
		"gpubank-scheduler/scheduler":         {"gpubank-database-scheduler"},
	}
	got := map[string][]string{}
	for name, pod := range podTemplates(t) {
		secrets := map[string]string{}
		for _, volume := range pod.Volumes {
			if volume.Secret != nil {
				secrets[volume.Name] = volume.Secret.SecretName
			}
		}
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, mount := range container.VolumeMounts {
				if !strings.HasPrefix(secrets[mount.Name], "gpubank-database") {
					continue
				}
				got[name+"/"+container.Name] = append(got[name+"/"+container.Name], secrets[mount.Name])
				if mount.SubPath != "" || mount.SubPathExpr != "" {
					t.Errorf("%s: container %s mounts a single file of %s", name, container.Name, secrets[mount.Name])
				}
				file := "--database-url-file=" + mount.MountPath + "/url"
				if !slices.Contains(container.Args, file) {
					t.Errorf("%s: container %s is not started with %s", name, container.Name, file)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who has which credentials (-want +got):\n%s", diff)
	}
}

func podProblems(pod corev1.PodSpec, agent bool) []string {
	var problems []string
	wrong := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	if pod.ServiceAccountName == "" {
		wrong("it has no service account of its own")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		wrong("it shares its node's namespaces")
	}
	security := pod.SecurityContext
	if security == nil || security.SeccompProfile == nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		wrong("its seccomp profile is not RuntimeDefault")
	}
	// The kubelet's socket belongs to root.
	if !agent && (security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot) {
		wrong("it may run as root")
	}
	var hostPaths []string
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			hostPaths = append(hostPaths, volume.HostPath.Path)
		}
	}
	if agent {
		if want := []string{"/var/lib/kubelet/pod-resources", "/var/lib/gpubank"}; !slices.Equal(hostPaths, want) {
			wrong("it mounts %v of its node, want %v", hostPaths, want)
		}
	} else if len(hostPaths) > 0 {
		wrong("it mounts %v of its node", hostPaths)
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, problem := range containerProblems(container) {
			wrong("container %s: %s", container.Name, problem)
		}
	}
	for _, container := range pod.Containers {
		if container.LivenessProbe == nil || container.ReadinessProbe == nil {
			wrong("container %s: is not probed for life and readiness", container.Name)
		}
	}
	return problems
}

func containerProblems(container corev1.Container) []string {
	var problems []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if quantity := container.Resources.Requests[name]; quantity.IsZero() {
			problems = append(problems, "requests no "+string(name))
		}
	}
	if container.Resources.Limits.Memory().IsZero() {
		problems = append(problems, "has no memory limit")
	}
	if strings.HasSuffix(container.Image, ":latest") || !strings.Contains(container.Image, ":") {
		problems = append(problems, "has the image "+container.Image+" without a version")
	}
	security := container.SecurityContext
	if security == nil {
		return append(problems, "has no security context")
	}
	if security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation {
		problems = append(problems, "may gain privileges")
	}
	if security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		problems = append(problems, "may write its root file system")
	}
	if security.Capabilities == nil || !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(security.Capabilities.Add) > 0 {
		problems = append(problems, "keeps capabilities")
	}
	if security.Privileged != nil && *security.Privileged {
		problems = append(problems, "is privileged")
	}
	for _, variable := range container.Env {
		if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
			problems = append(problems, "has a secret in its environment, "+variable.Name)
		}
	}
	return problems
}

// No right is wider than its list: no wildcard, and Secrets only by name.
func TestRightsAreListed(t *testing.T) {
	check := func(kind, name string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
				t.Errorf("%s %s has a wildcard: %v", kind, name, rule)
			}
			if slices.Contains(rule.Resources, "secrets") && len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"}) {
				t.Errorf("%s %s reaches every Secret: %v", kind, name, rule)
			}
		}
	}
	for _, role := range decode[rbacv1.ClusterRole](t, "ClusterRole") {
		check("ClusterRole", role.Name, role.Rules)
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "secrets") {
				t.Errorf("ClusterRole %s reaches Secrets of every namespace", role.Name)
			}
		}
	}
	for _, role := range decode[rbacv1.Role](t, "Role") {
		check("Role", role.Name, role.Rules)
	}
}

// The webhook can be asked only about enrolled namespaces, never about a system's or its own (field reports H36, H37),
// and a dry run has no side effects (H39).
func TestWebhookReach(t *testing.T) {
	type webhook struct {
		name        string
		rules       []admissionregistrationv1.RuleWithOperations
		namespaces  *metav1.LabelSelector
		sideEffects *admissionregistrationv1.SideEffectClass
		timeout     *int32
	}
	var webhooks []webhook
	for _, configuration := range decode[admissionregistrationv1.MutatingWebhookConfiguration](t, "MutatingWebhookConfiguration") {
		for _, each := range configuration.Webhooks {
			webhooks = append(webhooks, webhook{each.Name, each.Rules, each.NamespaceSelector, each.SideEffects, each.TimeoutSeconds})
		}
	}
	for _, configuration := range decode[admissionregistrationv1.ValidatingWebhookConfiguration](t, "ValidatingWebhookConfiguration") {
		for _, each := range configuration.Webhooks {
			webhooks = append(webhooks, webhook{each.Name, each.Rules, each.NamespaceSelector, each.SideEffects, each.TimeoutSeconds})
		}
	}
	if len(webhooks) == 0 {
		t.Fatal("no webhook is installed")
	}
	for _, each := range webhooks {
		if each.sideEffects == nil || (*each.sideEffects != admissionregistrationv1.SideEffectClassNone &&
			*each.sideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun) {
			t.Errorf("%s has side effects on a dry run", each.name)
		}
		if each.timeout == nil || *each.timeout > 10 {
			t.Errorf("%s may hold up a request for more than 10 s", each.name)
		}
		if ownKindsOnly(each.rules) {
			continue
		}
		if !excludes(each.namespaces, "kube-system", "kube-public", "kube-node-lease", v1alpha1.SystemNamespace) {
			t.Errorf("%s does not exclude the system namespaces by name", each.name)
		}
		if !slices.ContainsFunc(each.namespaces.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == v1alpha1.AccountLabel && r.Operator == metav1.LabelSelectorOpExists
		}) {
			t.Errorf("%s is asked about namespaces that are not enrolled", each.name)
		}
	}
}

func ownKindsOnly(rules []admissionregistrationv1.RuleWithOperations) bool {
	return !slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return !slices.Equal(rule.APIGroups, []string{v1alpha1.GroupName})
	})
}

func excludes(selector *metav1.LabelSelector, names ...string) bool {
	return selector != nil && slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == corev1.LabelMetadataName && r.Operator == metav1.LabelSelectorOpNotIn && sets.New(r.Values...).HasAll(names...)
	})
}

// podTemplates are the pods of Deployments and DaemonSets, by name.
func podTemplates(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	pods := map[string]corev1.PodSpec{}
	for _, each := range decode[appsv1.Deployment](t, "Deployment") {
		pods[each.Name] = each.Spec.Template.Spec
		if each.Spec.Replicas == nil || *each.Spec.Replicas < 2 {
			t.Errorf("Deployment %s has fewer than 2 replicas", each.Name)
		}
	}
	for _, each := range decode[appsv1.DaemonSet](t, "DaemonSet") {
		pods[each.Name] = each.Spec.Template.Spec
	}
	return pods
}

func render(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := parts.Render()
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// decode returns the rendered objects of a kind in their Go type.
func decode[T any](t *testing.T, kind string) []T {
	t.Helper()
	var found []T
	for _, object := range render(t) {
		if object.GetKind() != kind {
			continue
		}
		var typed T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true); err != nil {
			t.Fatalf("%s %s: %v", kind, object.GetName(), err)
		}
		found = append(found, typed)
	}
	return found
}
