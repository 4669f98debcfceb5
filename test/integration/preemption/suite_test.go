// Package preemption_test lets the real scheduler stop pods for others: the shipped scheduler and controller under their own
// service accounts, on a real API server and PostgreSQL, with nodes played by nodesim.
package preemption_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
const patience = 120 * time.Second

// suite is a cluster of two nodes with eight GPUs each.
type suite struct {
	bank   *parts.Gpubank
	cp     *cluster.ControlPlane
	admin  client.Client
	ledger *postgres.Store
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	ctx := t.Context()
	s := &suite{cp: clustertest.ControlPlane(t)}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	var err error
	s.admin, err = client.New(s.cp.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	s.bank, err = parts.New(ctx, parts.Options{
		ControlPlane: s.cp, Postgres: clustertest.OwnPostgres(t), Nodes: 2, Tags: []string{"failpoints"},
		Environment: []string{"GPUBANK_FAILPOINTS=" + s.failpoints()},
		Arguments:   map[string][]string{parts.Controller: {"--resync=2s"}},
	})
	must(t, err)
	t.Cleanup(func() {
		for _, process := range s.bank.Processes() {
			if t.Failed() {
				t.Logf("the end of %s:\n%s", process.Name(), process.LogTail(60))
			}
		}
		must(t, s.bank.Close())
	})
	s.bank.Scheduler, err = s.bank.NewScheduler(ctx, parts.Scheduler, func(configuration map[string]any) {
		profile := configuration["profiles"].([]any)[0].(map[string]any)
		for _, each := range profile["pluginConfig"].([]any) {
			if entry := each.(map[string]any); entry["name"] == "CheckpointPreemption" {
				args := entry["args"].(map[string]any)
				args["kueueNamespaces"] = map[string]any{"matchLabels": map[string]any{"kueue": "manages"}}
				args["stopPatience"] = "10s"
			}
		}
	})
	must(t, err)
	must(t, s.bank.Migrate(ctx))
	for _, process := range []*cluster.Process{s.bank.Controller, s.bank.Scheduler, s.bank.Nodes} {
		must(t, process.Start(ctx))
	}
	s.ledger, err = postgres.Open(ctx, s.bank.DatabaseURL, postgres.Options{})
	must(t, err)
	t.Cleanup(s.ledger.Close)
	must(t, s.admin.Create(ctx, &v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}, CreditsPerGPUSecond: "1"},
	}))
	for name, value := range map[string]int32{"low": 10, "middle": 100, "high": 1000} {
		must(t, s.admin.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}))
	}
	must(t, s.admin.Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "patient"}, Value: 100, PreemptionPolicy: ptr.To(corev1.PreemptNever),
	}))
	return s
}

func (s *suite) failpoints() string { return filepath.Join(s.cp.Dir, "failpoints") }

// arm sets the failpoints of every part; "" disarms all.
func (s *suite) arm(t *testing.T, points string) {
	t.Helper()
	temporary := s.failpoints() + ".new"
	must(t, os.WriteFile(temporary, []byte(points+"\n"), 0o600))
	must(t, os.Rename(temporary, s.failpoints()))
}

// enrol makes a namespace and the account of the same name that pays for it.
func (s *suite) enrol(t *testing.T, name string, policy v1alpha1.AccountPolicy, labels ...string) {
	t.Helper()
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.AccountLabel: name}}}
	for _, label := range labels {
		namespace.Labels[label] = "manages"
	}
	must(t, s.admin.Create(ctx, namespace))
	must(t, s.cp.WaitNamespace(ctx, name))
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{name}, Policy: policy},
	}))
	must(t, s.admin.Create(ctx, &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditGrantSpec{Account: name, Credits: "1000000", Reason: "test"},
	}))
	eventually(t, func(ctx context.Context) string {
		row, found, err := s.ledger.Account(ctx, name)
		if err != nil || !found || row.Balance == 0 {
			return fmt.Sprintf("account %s has no credits yet: %v", name, err)
		}
		return ""
	})
}

// gpuPod asks for GPUs at a priority. It runs until it is stopped.
func gpuPod(namespace, name, priority string, gpus int64, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, PriorityClassName: priority,
			ActiveDeadlineSeconds: ptr.To[int64](7200), TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "main", Image: "none.invalid/main",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}},
			}},
		},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// restarts says how long the pod takes to be useful again, which is what its stop costs beside the seconds that it ran.
func restarts(seconds string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations["gpubank.io/restart-seconds"] = seconds }
}

// running creates pods one after the other and waits until each runs and the ledger meters it.
func (s *suite) running(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		must(t, s.admin.Create(t.Context(), pod))
		eventually(t, func(ctx context.Context) string {
			if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err.Error()
			}
			row, _, err := s.ledger.Allocation(ctx, string(pod.UID))
			if pod.Status.Phase != corev1.PodRunning || err != nil || row.State != ledger.AllocationMetering {
				return fmt.Sprintf("pod %s is %s, its allocation %s: %v %+v", pod.Name, pod.Status.Phase, row.State, err, pod.Status.Conditions)
			}
			return ""
		})
	}
}

// bound waits until a pod has a node.
func (s *suite) bound(t *testing.T, pod *corev1.Pod) ledger.Allocation {
	t.Helper()
	var row ledger.Allocation
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err.Error()
		}
		var err error
		if row, _, err = s.ledger.Allocation(ctx, string(pod.UID)); err != nil || pod.Spec.NodeName == "" || !row.Open() {
			return fmt.Sprintf("pod %s is not bound: %v %+v", pod.Name, err, pod.Status)
		}
		return ""
	})
	return row
}

// says waits until the pod's condition contains a text while it has no node.
func (s *suite) says(t *testing.T, pod *corev1.Pod, contains func(string) bool) {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err.Error()
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && contains(condition.Message) {
				return ""
			}
		}
		return fmt.Sprintf("pod %s on %q says %+v", pod.Name, pod.Spec.NodeName, pod.Status.Conditions)
	})
}

// untouched checks that nobody stopped the pods.
func (s *suite) untouched(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		now := &corev1.Pod{}
		must(t, s.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now))
		if now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s was stopped: %+v", pod.Name, now.Status)
		}
		records, err := s.ledger.PreemptionsOfVictim(t.Context(), string(pod.UID))
		must(t, err)
		if len(records) > 0 {
			t.Errorf("it is recorded that pod %s was to be stopped: %+v", pod.Name, records)
		}
	}
}

// outcome waits until the controller has said what became of a victim, and returns the decisions about it.
func (s *suite) outcome(t *testing.T, pod *corev1.Pod) []ledger.PreemptionRecord {
	t.Helper()
	var records []ledger.PreemptionRecord
	eventually(t, func(ctx context.Context) string {
		var err error
		records, err = s.ledger.PreemptionsOfVictim(ctx, string(pod.UID))
		if err != nil || len(records) == 0 {
			return fmt.Sprintf("no decision about pod %s: %v", pod.Name, err)
		}
		for _, record := range records {
			if record.Outcome == nil {
				return fmt.Sprintf("no outcome of %s for pod %s", record.Key, pod.Name)
			}
		}
		return ""
	})
	return records
}

// event waits for an event about a pod, and returns its note.
func (s *suite) event(t *testing.T, pod *corev1.Pod, reason string) string {
	t.Helper()
	var note string
	eventually(t, func(ctx context.Context) string {
		var events corev1.EventList
		if err := s.admin.List(ctx, &events, client.InNamespace(pod.Namespace)); err != nil {
			return err.Error()
		}
		for _, event := range events.Items {
			if event.Reason == reason && event.InvolvedObject.UID == pod.UID {
				note = event.Message
				return ""
			}
		}
		return fmt.Sprintf("pod %s has no event %s", pod.Name, reason)
	})
	return note
}

// clear removes all pods and waits until their GPUs are free.
func (s *suite) clear(t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	must(t, s.admin.List(t.Context(), &pods))
	for i := range pods.Items {
		must(t, client.IgnoreNotFound(s.admin.Delete(t.Context(), &pods.Items[i])))
	}
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.List(ctx, &pods); err != nil || len(pods.Items) > 0 {
			return fmt.Sprintf("%d pods are still there: %v", len(pods.Items), err)
		}
		return ""
	})
	violations, err := s.ledger.Audit(t.Context())
	must(t, err)
	for _, violation := range violations {
		t.Errorf("audit: %+v", violation)
	}
}

// eventually asks until ask returns "", or fails with what it returned last.
func eventually(t *testing.T, ask func(context.Context) string) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shows checks that an account's statement has a pod's charge, and the same amount given back.
func (s *suite) shows(t *testing.T, account, podUID string, amount ledger.Microcredits) {
	t.Helper()
	statement, err := s.ledger.Statement(t.Context(), account, time.Time{}, time.Now().Add(time.Minute))
	must(t, err)
	var charged, refunded ledger.Microcredits
	for _, line := range statement.Lines {
		switch {
		case line.Allocation != podUID:
		case line.Kind == ledger.EntryCharge:
			charged -= line.Amount
		case line.Kind == ledger.EntryRefund:
			refunded += line.Amount
		}
	}
	if charged != amount || refunded != amount {
		t.Errorf("the statement shows %d charged and %d given back, want %d of each", charged, refunded, amount)
	}
}
