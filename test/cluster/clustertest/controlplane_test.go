package clustertest_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// The job controller makes a Job's pods, as its own user.
func TestJobGetsPods(t *testing.T) {
	cp := clustertest.ControlPlane(t)
	if err := cp.CreateNamespace(t.Context(), "jobs", nil); err != nil {
		t.Fatal(err)
	}
	client := cp.Client()
	pods, err := client.CoreV1().Pods("jobs").Watch(t.Context(), metav1.ListOptions{FieldSelector: fields.Everything().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "none.invalid/main"}},
		}}},
	}
	if _, err := client.BatchV1().Jobs("jobs").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	event := <-pods.ResultChan()
	pod, ok := event.Object.(*corev1.Pod)
	if !ok || metav1.GetControllerOf(pod) == nil || metav1.GetControllerOf(pod).Name != "one" {
		t.Fatalf("expected a pod of Job one, got %v", event)
	}
}

// A service account has the rights it was given and no others, and a token bound to a pod says on which node it is.
func TestServiceAccountIdentity(t *testing.T) {
	cp := clustertest.ControlPlane(t)
	ctx := t.Context()
	if err := cp.CreateNamespace(ctx, "identity", nil); err != nil {
		t.Fatal(err)
	}
	account := types.NamespacedName{Namespace: "identity", Name: "default"}
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, "identity-default", account, cluster.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a service account without rights lists nodes: %v", err)
	}

	client := cp.Client()
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cp.CreatePodOnNode(ctx, types.NamespacedName{Namespace: "identity", Name: "agent"}, "default", "n1"); err != nil {
		t.Fatal(err)
	}
	token, err := cp.ServiceAccountToken(ctx, account, cluster.TokenOptions{Audience: "gpubank-intake", Pod: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"gpubank-intake"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node := review.Status.User.Extra["authentication.kubernetes.io/node-name"]; len(node) != 1 || node[0] != "n1" {
		t.Errorf("the token's node is %v, want n1: %+v", node, review.Status)
	}
}

// Objects outlive a killed API server and etcd, on the same address.
func TestControlPlaneComesBack(t *testing.T) {
	cp := clustertest.OwnControlPlane(t, cluster.ControlPlaneOptions{})
	ctx := t.Context()
	if err := cp.CreateNamespace(ctx, "kept", nil); err != nil {
		t.Fatal(err)
	}
	for name, interrupt := range map[string]func() error{
		"stop": cp.APIServer.Stop,
		"kill": func() error {
			for _, process := range []*cluster.Process{cp.APIServer, cp.Etcd} {
				if err := process.Kill(); err != nil {
					return err
				}
			}
			return cp.Etcd.Start(ctx)
		},
	} {
		if err := interrupt(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := cp.APIServer.Start(ctx); err != nil {
			t.Fatalf("start after %s: %v", name, err)
		}
		if _, err := cp.Client().CoreV1().Namespaces().Get(context.Background(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}
