// Package checkpoints_test lets a pod report its own checkpoints to a real API server, with the rights that the component
// manifests/checkpoints gives, and tries what else those rights could be used for.
package checkpoints_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	namespace = "reporting"
	reporter  = "gpubank-checkpoints"
)

func TestReporter(t *testing.T) {
	ctx := t.Context()
	cp := clustertest.ControlPlane(t)
	apply(t, cp)
	must(t, cp.CreateNamespace(ctx, namespace, nil))
	admin := cp.Client()
	_, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: reporter}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reporter},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reporter},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: reporter}},
	}, metav1.CreateOptions{})
	must(t, err)
	for _, name := range []string{"own", "other"} {
		must(t, cp.CreatePodOnNode(ctx, types.NamespacedName{Namespace: namespace, Name: name}, reporter, "nowhere"))
	}
	own := as(t, cp, cluster.TokenOptions{Pod: "own"})
	unbound := as(t, cp, cluster.TokenOptions{})

	const report = `{"metadata":{"annotations":{"gpubank.io/checkpointed-at":"2026-03-01T12:00:00Z","gpubank.io/checkpoint-uri":"s3://b/1"}}}`
	// The policy takes effect a moment after it is stored.
	must(t, wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := patch(ctx, own, "other", report, "")
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err), nil
	}))
	pod, err := patch(ctx, own, "own", report, "")
	must(t, err)
	if pod.Annotations["gpubank.io/checkpointed-at"] != "2026-03-01T12:00:00Z" {
		t.Errorf("reported %v", pod.Annotations)
	}
	if _, err := patch(ctx, own, "own", `{"metadata":{"annotations":{"gpubank.io/checkpoint-uri":null}}}`, ""); err != nil {
		t.Errorf("withdraw a URI: %v", err)
	}
	for _, c := range []struct {
		name   string
		client kubernetes.Interface
		pod    string
		patch  string
		sub    string
		says   string
	}{
		{"another pod's report", own, "other", report, "", "its own checkpoints only"},
		{"with a token of no pod", unbound, "own", report, "", "its own checkpoints only"},
		{"a shorter interval", own, "own", `{"metadata":{"annotations":{"gpubank.io/checkpoint-interval":"none"}}}`, "", "may be changed"},
		{"a label", own, "own", `{"metadata":{"labels":{"gpubank.io/account":"rich"}}}`, "", "may be changed"},
		{"a finalizer", own, "own", `{"metadata":{"finalizers":["example.com/mine"]}}`, "", "may be changed"},
		{"an image", own, "own", `{"spec":{"containers":[{"name":"stand-in","image":"none.invalid/other"}]}}`, "", "may be changed"},
		{"no time", own, "own", `{"metadata":{"annotations":{"gpubank.io/checkpointed-at":"noon"}}}`, "", "RFC 3339"},
		{"its status", own, "own", `{"status":{"phase":"Succeeded"}}`, "status", "cannot patch resource"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := patch(ctx, c.client, c.pod, c.patch, c.sub)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	// Others, such as operators, are not concerned.
	if _, err := patch(ctx, admin, "other", `{"metadata":{"labels":{"app":"x"}}}`, ""); err != nil {
		t.Errorf("an administrator's change: %v", err)
	}
}

// apply applies the component.
func apply(t *testing.T, cp *cluster.ControlPlane) {
	t.Helper()
	root, err := binaries.ModuleRoot()
	must(t, err)
	content, err := os.ReadFile(filepath.Join(root, "manifests", "checkpoints", "policy.yaml"))
	must(t, err)
	applier, err := parts.NewApplier(cp.RESTConfig())
	must(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for range 3 {
		object := &unstructured.Unstructured{}
		must(t, decoder.Decode(object))
		must(t, applier.Apply(t.Context(), object, false))
	}
}

func as(t *testing.T, cp *cluster.ControlPlane, options cluster.TokenOptions) kubernetes.Interface {
	t.Helper()
	token, err := cp.ServiceAccountToken(t.Context(), types.NamespacedName{Namespace: namespace, Name: reporter}, options)
	must(t, err)
	config := rest.AnonymousClientConfig(cp.RESTConfig())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

func patch(ctx context.Context, client kubernetes.Interface, pod, body, subresource string) (*corev1.Pod, error) {
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	return client.CoreV1().Pods(namespace).Patch(ctx, pod, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
