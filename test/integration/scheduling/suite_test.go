// Package scheduling_test runs the real scheduler and controller, under their own service accounts and with the
// manifests that are shipped, against a real API server and a real PostgreSQL. The webhook is not running: every pod here
// bypassed it, so what the scheduler lets through is all that stands between a pod and a free GPU.
package scheduling_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// patience is how long anything here may take; most of it is a busy machine's.
const patience = 90 * time.Second

// suite is a cluster of two nodes with eight GPUs each, whose scheduler and controller run.
type suite struct {
	*parts.Gpubank
	admin    client.Client
	postgres *cluster.Postgres
	ledger   *postgres.Store
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	return newSuiteOn(t, clustertest.ControlPlane(t), parts.Options{Arguments: map[string][]string{rival: {"--without-leader-election"}}}, func(configuration map[string]any) {
		// A pod that waits for a paused database says so sooner than in production.
		patient("1s")(configuration)
		// Paused, it goes on believing that it leads.
		lease := configuration["leaderElection"].(map[string]any)
		lease["leaseDuration"], lease["renewDeadline"] = "10m", "9m"
	})
}

func newSuiteOn(t *testing.T, cp *cluster.ControlPlane, options parts.Options, configure func(configuration map[string]any)) *suite {
	t.Helper()
	ctx := t.Context()
	s := &suite{postgres: clustertest.OwnPostgres(t)}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	var err error
	s.admin, err = client.New(cp.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	options.ControlPlane, options.Postgres, options.Nodes = cp, s.postgres, 2
	s.Gpubank, err = parts.New(ctx, options)
	must(t, err)
	t.Cleanup(func() {
		for _, process := range s.Processes() {
			if t.Failed() {
				t.Logf("the end of %s:\n%s", process.Name(), process.LogTail(40))
			}
		}
		must(t, s.Close())
	})
	s.Scheduler, err = s.NewScheduler(ctx, parts.Scheduler, configure)
	must(t, err)
	must(t, s.Migrate(ctx))
	for _, process := range []*cluster.Process{s.Controller, s.Scheduler, s.Nodes} {
		must(t, process.Start(ctx))
	}
	s.ledger, err = postgres.Open(ctx, s.DatabaseURL, postgres.Options{})
	must(t, err)
	t.Cleanup(s.ledger.Close)
	must(t, s.admin.Create(ctx, &v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}, CreditsPerGPUSecond: "1"},
	}))
	return s
}

// patient sets the scheduler's ledger timeout.
func patient(timeout string) func(map[string]any) {
	return func(configuration map[string]any) {
		profile := configuration["profiles"].([]any)[0].(map[string]any)
		profile["pluginConfig"] = []any{map[string]any{"name": "CreditReservation", "args": map[string]any{"ledgerTimeout": timeout}}}
	}
}

// enrol makes a namespace, the account of the same name that pays for it, and a grant.
func (s *suite) enrol(t *testing.T, name string, credits v1alpha1.Credits) {
	t.Helper()
	must(t, s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.AccountLabel: name}}}))
	s.defaultServiceAccount(t, name)
	must(t, s.admin.Create(t.Context(), &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{name}},
	}))
	s.grant(t, name, credits)
}

func (s *suite) defaultServiceAccount(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		account := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
		return said(s.admin.Get(ctx, client.ObjectKeyFromObject(&account), &account))
	})
}

// grant gives credits and waits until the ledger has them.
func (s *suite) grant(t *testing.T, account string, credits v1alpha1.Credits) {
	t.Helper()
	grant := &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
		Spec:       v1alpha1.CreditGrantSpec{Account: account, Credits: credits, Reason: "test"},
	}
	must(t, s.admin.Create(t.Context(), grant))
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(grant), grant); err != nil {
			return err.Error()
		}
		for _, condition := range grant.Status.Conditions {
			if condition.Type == v1alpha1.ConditionPosted && condition.Status == metav1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("grant is not posted: %+v", grant.Status.Conditions)
	})
}

// gpuPod asks for GPUs for at most so many seconds, of our scheduler.
func gpuPod(namespace, name string, gpus, seconds int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       gpuSpec(gpus, seconds),
	}
}

func gpuSpec(gpus, seconds int64) corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: v1alpha1.SchedulerName, RestartPolicy: corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         ptr.To(seconds),
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{
			Name: "main", Image: "none.invalid/main",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}},
		}},
	}
}

func (s *suite) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		must(t, s.admin.Create(t.Context(), pod))
	}
}

// waitsFor waits until the pod's condition says why it waits.
func (s *suite) waitsFor(t *testing.T, pod *corev1.Pod, says func(message string) bool) string {
	t.Helper()
	var message string
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err.Error()
		}
		if pod.Spec.NodeName != "" {
			return fmt.Sprintf("pod %s is bound to %s", pod.Name, pod.Spec.NodeName)
		}
		message = ""
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				message = condition.Message
			}
		}
		if !says(message) {
			return fmt.Sprintf("pod %s says %q", pod.Name, message)
		}
		return ""
	})
	return message
}

// bound waits until the pod is bound, and checks that the ledger knows where.
func (s *suite) bound(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err.Error()
		}
		if pod.Spec.NodeName == "" {
			return fmt.Sprintf("pod %s is not bound: %+v", pod.Name, pod.Status.Conditions)
		}
		return ""
	})
	allocation, found, err := s.ledger.Allocation(t.Context(), string(pod.UID))
	must(t, err)
	if !found || allocation.Node != pod.Spec.NodeName || !allocation.Open() {
		t.Errorf("pod %s is bound to %s, and the ledger has %v %+v", pod.Name, pod.Spec.NodeName, found, allocation)
	}
	return pod.Spec.NodeName
}

// remove deletes pods and waits until they are gone, so that their GPUs are free.
func (s *suite) remove(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		must(t, client.IgnoreNotFound(s.admin.Delete(t.Context(), pod)))
	}
	for _, pod := range pods {
		eventually(t, func(ctx context.Context) string {
			err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod.DeepCopy())
			if client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Sprintf("pod %s is still there: %v", pod.Name, err)
			}
			return ""
		})
	}
}

// audit checks the ledger's invariants on its rows.
func (s *suite) audit(t *testing.T) {
	t.Helper()
	violations, err := s.ledger.Audit(t.Context())
	must(t, err)
	for _, violation := range violations {
		t.Errorf("audit: %+v", violation)
	}
}

func (s *suite) account(t *testing.T, name string) ledger.Account {
	t.Helper()
	row, found, err := s.ledger.Account(t.Context(), name)
	must(t, err)
	if !found {
		t.Fatalf("account %s is not in the ledger", name)
	}
	return row
}

// eventually asks until ask returns "", or fails with what it returned last.
func eventually(t *testing.T, ask func(context.Context) string) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
