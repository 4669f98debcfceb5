// Package controller_test runs the real credit-controller, under its own service account and with the rights that are
// shipped, against a real API server, controller manager and PostgreSQL. The tests play webhook, scheduler and kubelet.
package controller_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

const (
	// holdExpiry and nodeGrace are short, so that tests can wait for them.
	holdExpiry = 3 * time.Second
	nodeGrace  = 3 * time.Second
	// patience is how long anything may take; two cores are shared by many tests.
	patience = 60 * time.Second
)

// suite is a control plane with what is shipped applied, a ledger, and one controller.
type suite struct {
	*cluster.ControlPlane
	admin      client.Client
	ledger     *postgres.Store
	controller *cluster.Process
	intakeURL  string
	// databaseURL is the ledger's, for the role that owns its tables.
	databaseURL string
	metricsURL  string
	// epoch is the scheduler's that this test plays.
	epoch int64
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	ctx := t.Context()
	s := &suite{ControlPlane: clustertest.OwnControlPlane(t, cluster.ControlPlaneOptions{})}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	var err error
	s.admin, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	s.install(t)
	must(t, s.WaitNamespace(ctx, v1alpha1.SystemNamespace))

	url := clustertest.Database(t)
	s.databaseURL = url
	must(t, postgres.Migrate(ctx, url))
	urlFile := filepath.Join(t.TempDir(), "url")
	must(t, cluster.WriteURLFile(urlFile, clustertest.URLAs(t, cluster.ControllerRole, url)))
	s.prepareController(t, urlFile)
	must(t, s.controller.Start(ctx))
	s.ledger, err = postgres.Open(ctx, url, postgres.Options{})
	must(t, err)
	t.Cleanup(s.ledger.Close)
	s.epoch, err = s.ledger.AcquireLeadership(ctx, v1alpha1.SchedulerName, "test")
	must(t, err)
	s.offer(t)
	s.node(t, "n1", time.Now().Add(time.Hour)) // never silent
	return s
}

// install applies CRDs, identities and rights as they are shipped.
func (s *suite) install(t *testing.T) {
	t.Helper()
	objects, err := parts.Render()
	must(t, err)
	applier, err := parts.NewApplier(s.RESTConfig())
	must(t, err)
	kinds := []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
	for _, object := range objects {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		must(t, applier.Apply(t.Context(), object, false))
		if object.GetKind() == "CustomResourceDefinition" {
			must(t, applier.WaitEstablished(t.Context(), object))
		}
	}
}

func (s *suite) prepareController(t *testing.T, urlFile string) {
	t.Helper()
	ctx := t.Context()
	binary := filepath.Join(t.TempDir(), "credit-controller")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "../../../cmd/credit-controller")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build credit-controller: %v\n%s", err, output)
	}
	account := types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: "credit-controller"}
	kubeconfig, err := s.ServiceAccountKubeconfig(ctx, "credit-controller", account, cluster.TokenOptions{})
	must(t, err)
	var address [3]string
	for i := range address {
		port, err := cluster.FreePort()
		must(t, err)
		address[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	s.intakeURL, s.metricsURL = "https://"+address[0], "http://"+address[2]+"/metrics"
	s.controller = cluster.NewProcess(cluster.Command{
		Name: "credit-controller", Path: binary, LogFile: filepath.Join(t.TempDir(), "credit-controller.log"),
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--database-url-file=" + urlFile,
			"--intake-address=" + address[0], "--health-probe-address=" + address[1], "--metrics-address=" + address[2],
			"--hold-expiry=" + holdExpiry.String(), "--allow-short-hold-expiry", "--node-grace=" + nodeGrace.String(), "--resync=1s", "-v=1",
			"--seal-interval=1s", "--audit-interval=2s", "--compare-interval=1s",
		},
		Ready: cluster.HTTPReady("http://" + address[1] + "/readyz"),
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the controller's log:\n%s", s.controller.LogTail(80))
		}
		must(t, s.controller.Kill())
	})
}

// offer makes the class h100 at one credit per GPU-second.
func (s *suite) offer(t *testing.T) {
	t.Helper()
	class := &v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}, CreditsPerGPUSecond: "1"},
	}
	must(t, s.admin.Create(t.Context(), class))
	s.eventually(t, func(ctx context.Context) string {
		return unless(s.get(ctx, class) == nil && meta.IsStatusConditionTrue(class.Status.Conditions, "Ready") && class.Status.RateVersion == 1,
			"class: %+v", class.Status)
	})
}

// team makes a namespace, the account that pays for it, and a grant, through the API.
func (s *suite) team(t *testing.T, name string, credits int64) {
	t.Helper()
	ctx := t.Context()
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{name}},
	}))
	must(t, s.CreateNamespace(ctx, name, map[string]string{v1alpha1.AccountLabel: name}))
	if credits > 0 {
		must(t, s.admin.Create(ctx, &v1alpha1.CreditGrant{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.CreditGrantSpec{Account: name, Credits: v1alpha1.Credits(fmt.Sprint(credits)), Reason: "test"},
		}))
	}
	s.shows(t, name, fmt.Sprint(credits), "0", "0")
}

// shows waits until the account's status shows these amounts.
func (s *suite) shows(t *testing.T, account, available, reserved, charged string) {
	t.Helper()
	object := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	s.eventually(t, func(ctx context.Context) string {
		if err := s.get(ctx, object); err != nil {
			return err.Error()
		}
		got := object.Status
		return unless(string(got.Available) == available && string(got.Reserved) == reserved && string(got.Charged) == charged,
			"account %s shows available %s, reserved %s, charged %s; want %s, %s, %s", account, got.Available, got.Reserved, got.Charged, available, reserved, charged)
	})
}

// gpuPod is a pod of four GPUs for at most 600 s, which no scheduler but this test places.
func gpuPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To(int64(600)),
			Containers: []corev1.Container{{
				Name: "main", Image: "train",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}},
			}},
		},
	}
}

// job creates a Job of one gpuPod, and waits for its pod.
func (s *suite) job(t *testing.T, namespace, name string) (*batchv1.Job, *corev1.Pod) {
	t.Helper()
	pod := gpuPod(namespace, name)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To(int32(0)), Template: corev1.PodTemplateSpec{Spec: pod.Spec}},
	}
	must(t, s.admin.Create(t.Context(), job))
	var pods corev1.PodList
	s.eventually(t, func(ctx context.Context) string {
		err := s.admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: name})
		return unless(err == nil && len(pods.Items) == 1, "%d pods of Job %s: %v", len(pods.Items), name, err)
	})
	return job, &pods.Items[0]
}

// hold places what the webhook would.
func (s *suite) hold(t *testing.T, uid types.UID, account, kind, name string) {
	t.Helper()
	s.submit(t, ledger.PlaceHold{
		Key: "hold:" + string(uid), UID: string(uid), Account: account, Class: "h100", MaxGPUs: 4, GPUSeconds: 2400,
		Workload: ledger.WorkloadRef{Kind: kind, Namespace: account, Name: name},
	})
}

// allocate commits what the scheduler would before it binds.
func (s *suite) allocate(t *testing.T, pod *corev1.Pod, workload types.UID, node string) {
	t.Helper()
	s.submit(t, ledger.Allocate{
		Key: "allocate:" + string(pod.UID), PodUID: string(pod.UID), Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		Reservation: string(workload), Account: pod.Namespace, Node: node, Class: "h100", GPUs: 4,
		Leader: v1alpha1.SchedulerName, LeaderEpoch: s.epoch,
	})
}

func (s *suite) submit(t *testing.T, command ledger.Command) {
	t.Helper()
	verdict, err := s.ledger.Submit(t.Context(), command)
	must(t, err)
	if verdict.Refusal != nil {
		t.Fatalf("%+v: %v", command, verdict.Refusal)
	}
}

// bind assigns the pod to a node, as a scheduler does.
func (s *suite) bind(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	must(t, s.Client().CoreV1().Pods(pod.Namespace).Bind(t.Context(), binding, metav1.CreateOptions{}))
}

// node makes a node whose kubelet renewed its lease at renewed, and then is silent.
func (s *suite) node(t *testing.T, name string, renewed time.Time) {
	t.Helper()
	ctx := t.Context()
	must(t, s.admin.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	must(t, s.admin.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(name), RenewTime: &metav1.MicroTime{Time: renewed}},
	}))
}

// reports writes the pod's status as its kubelet would: running since start, or, with an end, succeeded.
func (s *suite) reports(t *testing.T, pod *corev1.Pod, start, end time.Time) {
	t.Helper()
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}}
	phase := corev1.PodRunning
	if !end.IsZero() {
		phase = corev1.PodSucceeded
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(start), FinishedAt: metav1.NewTime(end)}}
	}
	s.update(t, pod, func() {
		pod.Status.Phase, pod.Status.StartTime = phase, ptr.To(metav1.NewTime(start))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "train", ImageID: "train", State: state}}
	})
}

// update changes the status of a pod that others change too.
func (s *suite) update(t *testing.T, pod *corev1.Pod, change func()) {
	t.Helper()
	s.eventually(t, func(ctx context.Context) string {
		if err := s.get(ctx, pod); err != nil {
			return err.Error()
		}
		change()
		if err := s.admin.Status().Update(ctx, pod); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (s *suite) get(ctx context.Context, object client.Object) error {
	return s.admin.Get(ctx, client.ObjectKeyFromObject(object), object)
}

// allocationIs waits for an allocation's state and returns the row.
func (s *suite) allocationIs(t *testing.T, pod *corev1.Pod, state ledger.AllocationState) ledger.Allocation {
	t.Helper()
	var row ledger.Allocation
	s.eventually(t, func(ctx context.Context) string {
		var err error
		row, _, err = s.ledger.Allocation(ctx, string(pod.UID))
		return unless(err == nil && row.State == state, "allocation is %+v, %v; want %s", row, err, state)
	})
	return row
}

// reservationIs waits for a reservation's state and returns the row.
func (s *suite) reservationIs(t *testing.T, uid types.UID, state ledger.ReservationState) ledger.Reservation {
	t.Helper()
	var row ledger.Reservation
	s.eventually(t, func(ctx context.Context) string {
		var err error
		row, _, err = s.ledger.Reservation(ctx, string(uid))
		return unless(err == nil && row.State == state, "reservation is %+v, %v; want %s", row, err, state)
	})
	return row
}

// sound audits the ledger.
func (s *suite) sound(t *testing.T) {
	t.Helper()
	violations, err := s.ledger.Audit(t.Context())
	must(t, err)
	for _, violation := range violations {
		t.Error(violation)
	}
}

// eventually asks until the answer is empty.
func (s *suite) eventually(t *testing.T, ask func(context.Context) string) {
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

func unless(ok bool, format string, arguments ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, arguments...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
