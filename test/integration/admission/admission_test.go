package admission_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/webhook"
	"github.com/gpubank/gpubank/test/cluster"
)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func TestAdmission(t *testing.T) {
	s := newSuite(t)
	t.Run("while the webhook is away", func(t *testing.T) { testWhileAway(t, s) })
	t.Run("metered pods", func(t *testing.T) { testMeteredPods(t, s) })

	s.startWebhook(t, "webhook-1", s.port)
	s.offer(t)
	t.Run("hold", func(t *testing.T) { testHold(t, s) })
	t.Run("dry run", func(t *testing.T) { testDryRun(t, s) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, s) })
	t.Run("hold at placement", func(t *testing.T) { testHoldAtPlacement(t, s) })
	t.Run("limits", func(t *testing.T) { testLimitsExplained(t, s) })
	t.Run("quote", func(t *testing.T) { testQuote(t, s) })
	t.Run("at the same instant", func(t *testing.T) { testAtOnce(t, s) })
	t.Run("pods", func(t *testing.T) { testPods(t, s) })
	t.Run("job update", func(t *testing.T) { testJobUpdate(t, s) })
	t.Run("account deletion", func(t *testing.T) { testAccountDeletion(t, s) })
	t.Run("classes", func(t *testing.T) { testClassNames(t, s) })
	t.Run("mutating policy", func(t *testing.T) { testMutatingPolicy(t, s) })
	t.Run("metrics", func(t *testing.T) { testMetrics(t, s) })
	t.Run("certificate", func(t *testing.T) { testCertificate(t, s) })
	t.Run("ledger away", func(t *testing.T) { testLedgerAway(t, s) })
}

// The first two rows of the worked example, and the Job's pod as the job controller makes it: covered, and ready to be
// placed and metered.
func testHold(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "team-a", 10_000*ledger.Credit)
	job := newJob("team-a", "train", "4", 600)
	must(t, s.admin.Create(ctx, job))

	row, _, err := s.ledger.Account(ctx, "team-a")
	must(t, err)
	if row.Balance != 10_000*ledger.Credit || row.Reserved != 2_400*ledger.Credit || row.Available() != 7_600*ledger.Credit {
		t.Errorf("after the Job's creation: %+v", row)
	}
	reservation, found, err := s.ledger.Reservation(ctx, string(job.UID))
	must(t, err)
	if !found || reservation.Workload != (ledger.WorkloadRef{Kind: "Job", Namespace: "team-a", Name: "train"}) || reservation.MaxGPUs != 4 {
		t.Errorf("the reservation is %+v", reservation)
	}
	if job.Labels[v1alpha1.AccountLabel] != "team-a" || job.Spec.Template.Spec.SchedulerName != v1alpha1.SchedulerName {
		t.Errorf("the stored Job is %+v", job)
	}
	var pods []corev1.Pod
	eventually(t, func(ctx context.Context) string {
		if pods, err = podsOf(ctx, s.admin, job); err != nil || len(pods) == 0 {
			return fmt.Sprintf("no pod: %v", err)
		}
		return ""
	})
	pod := pods[0]
	if pod.Labels[v1alpha1.AccountLabel] != "team-a" || pod.Spec.SchedulerName != v1alpha1.SchedulerName ||
		!strings.Contains(strings.Join(pod.Finalizers, " "), v1alpha1.MeteringFinalizer) {
		t.Errorf("the Job's pod is %+v", pod.ObjectMeta)
	}
	if got := s.reserved(t, "team-a"); got != 2_400*ledger.Credit {
		t.Errorf("the pod was held for a second time: %s reserved", ledger.DisplayCredits(got))
	}

	// The account's default bounds a Job that has no bound, and is enforced.
	must(t, s.admin.Patch(ctx, &v1alpha1.CreditAccount{ObjectMeta: named("", "team-a")},
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"policy":{"defaultMaxRuntime":"5m"}}}`))))
	eventually(t, func(ctx context.Context) string {
		unbounded := newJob("team-a", "unbounded", "1", 1, func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil })
		if err := s.admin.Create(ctx, unbounded); err != nil {
			return err.Error()
		}
		if got := ptr.Deref(unbounded.Spec.Template.Spec.ActiveDeadlineSeconds, 0); got != 300 {
			t.Errorf("the default of 5m is enforced as %d s", got)
		}
		return ""
	})
	if got := s.reserved(t, "team-a"); got != 2_700*ledger.Credit {
		t.Errorf("%s reserved, want 2,700", ledger.DisplayCredits(got))
	}
}

// A dry run answers truthfully and writes nothing (H39).
func testDryRun(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "dry", 1_000*ledger.Credit)
	affordable := newJob("dry", "affordable", "4", 250)
	must(t, s.admin.Create(ctx, affordable, client.DryRunAll))
	if err := s.admin.Create(ctx, newJob("dry", "unaffordable", "4", 251), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("an unaffordable Job on a dry run: %v", err)
	}
	must(t, s.admin.Create(ctx, newPod("dry", "pod", spec(limits("nvidia.com/gpu", "1"))), client.DryRunAll))
	row, _, err := s.ledger.Account(ctx, "dry")
	must(t, err)
	if row.Reserved != 0 || row.Available() != 1_000*ledger.Credit {
		t.Errorf("a dry run wrote: %+v", row)
	}
	if _, found, err := s.ledger.Reservation(ctx, string(affordable.UID)); err != nil || found {
		t.Errorf("a dry run left a reservation (%v)", err)
	}
}

func testRefusals(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "poor", 343*ledger.Credit)
	for name, c := range map[string]struct {
		object client.Object
		says   []string
	}{
		"not enough credits": {newJob("poor", "x", "4", 600), []string{"2,400 credits", "343 available", "at most 85s per pod"}},
		"unknown GPU":        {newPod("poor", "x", spec(limits("amd.com/gpu", "1"))), []string{"no GPUClass lists the resource amd.com/gpu"}},
		"nodeName":           {newPod("poor", "x", spec(limits("nvidia.com/gpu", "1")), func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), []string{"spec.nodeName"}},
		"another scheduler": {newPod("poor", "x", spec(limits("nvidia.com/gpu", "1")), func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }),
			[]string{"not by \"mine\""}},
		"another account's label": {newJob("poor", "x", "1", 10, func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.AccountLabel: "team-a"} }),
			[]string{"not the account of namespace poor"}},
		"no bound": {newJob("poor", "x", "1", 10, func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil }),
			[]string{v1alpha1.MaxRuntimeAnnotation}},
		"unparsable": {newJob("poor", "x", "1", 10, func(j *batchv1.Job) {
			j.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: "soon"}
		}), []string{"neither a duration such as 90m"}},
		"parallelism zero": {newJob("poor", "x", "1", 10, func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(0)) }), []string{"suspend: true"}},
		"resource claim": {newPod("poor", "x", spec(limits("cpu", "1")), func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		}), []string{"not metered"}},
		"enormous": {newJob("poor", "x", "2147483647", 2147483647), []string{"the ledger refuses"}},
	} {
		err := s.admin.Create(ctx, c.object)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
	// What the refusal said would fit does fit.
	must(t, s.admin.Create(ctx, newJob("poor", "fits", "4", 85)))
	if got := s.reserved(t, "poor"); got != 340*ledger.Credit {
		t.Errorf("%s reserved, want 340", ledger.DisplayCredits(got))
	}

	// The namespace's label alone gains nothing: the account must list the namespace.
	must(t, s.CreateNamespace(ctx, "freeloader", map[string]string{v1alpha1.AccountLabel: "team-a"}))
	if err := s.admin.Create(ctx, newJob("freeloader", "x", "1", 10)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.namespaces does not list it") {
		t.Errorf("a namespace that the account does not list: %v", err)
	}
	must(t, s.CreateNamespace(ctx, "orphan", map[string]string{v1alpha1.AccountLabel: "nobody"}))
	if err := s.admin.Create(ctx, newJob("orphan", "x", "1", 10)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no such CreditAccount") {
		t.Errorf("a namespace whose account does not exist: %v", err)
	}
}

// Jobs created at the same instant that together exceed the balance: as many are admitted as can be paid.
func testAtOnce(t *testing.T, s *suite) {
	for _, c := range []struct {
		name          string
		jobs, payable int
	}{{"two", 2, 1}, {"hundred", 100, 37}} {
		s.enrol(t, c.name, ledger.Microcredits(c.payable)*100*ledger.Credit+99*ledger.Credit)
		var admitted atomic.Int64
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range c.jobs {
			all.Go(func() {
				<-begin
				job := newJob(c.name, fmt.Sprintf("job-%d", i), "1", 100, func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
				switch err := s.admin.Create(t.Context(), job); {
				case err == nil:
					admitted.Add(1)
				case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "99 available"):
					t.Errorf("%s: refused for another reason: %v", c.name, err)
				}
			})
		}
		close(begin)
		all.Wait()
		if got := admitted.Load(); got != int64(c.payable) {
			t.Errorf("%s: %d admitted, want %d", c.name, got, c.payable)
		}
		if got := s.reserved(t, c.name); got != ledger.Microcredits(c.payable)*100*ledger.Credit {
			t.Errorf("%s: %s reserved", c.name, ledger.DisplayCredits(got))
		}
	}
}

func testPods(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "pods", 1_000*ledger.Credit)
	bare := newPod("pods", "bare", spec(limits("nvidia.com/gpu", "2")))
	must(t, s.admin.Create(ctx, bare))
	if got := s.reserved(t, "pods"); got != 200*ledger.Credit {
		t.Errorf("after a bare pod: %s reserved", ledger.DisplayCredits(got))
	}
	// A pod that says it belongs to a Job that has a hold needs its own, unless the job controller says so.
	job := newJob("pods", "job", "1", 100, func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
	must(t, s.admin.Create(ctx, job))
	forged := newPod("pods", "forged", spec(limits("nvidia.com/gpu", "1")), func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	})
	must(t, s.user(t, "mallory", "system:masters").Create(ctx, forged))
	if got := s.reserved(t, "pods"); got != 400*ledger.Credit {
		t.Errorf("after a forged owner: %s reserved, want 400", ledger.DisplayCredits(got))
	}
	if _, found, err := s.ledger.Reservation(ctx, string(forged.UID)); err != nil || !found {
		t.Errorf("the forged pod has no hold of its own (%v)", err)
	}
	// A Job that nobody held, from before its namespace was enrolled: its pods are held one by one.
	must(t, s.CreateNamespace(ctx, "late", nil))
	early := newJob("late", "early", "1", 100, func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
	must(t, s.admin.Create(ctx, early))
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{ObjectMeta: named("", "late"), Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{"late"}}}))
	s.submit(t, ledger.SetAccount{Key: "account:late", Account: "late"})
	s.submit(t, ledger.PostGrant{Key: "grant:late", Account: "late", Amount: 150 * ledger.Credit, Reason: "test", Actor: "test"})
	must(t, s.label(ctx, s.admin, &corev1.Namespace{ObjectMeta: named("", "late")}, v1alpha1.AccountLabel, "late"))
	eventually(t, func(ctx context.Context) string { // until the API server knows that the namespace is enrolled
		if err := s.admin.Create(ctx, newJob("late", "probe", "2", 100), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("a Job beyond the balance: %v", err)
		}
		return ""
	})
	must(t, s.admin.Patch(ctx, early, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))))
	eventually(t, func(ctx context.Context) string {
		pods, err := podsOf(ctx, s.admin, early)
		if err != nil || len(pods) == 0 {
			return fmt.Sprintf("no pod: %v", err)
		}
		if _, found, err := s.ledger.Reservation(ctx, string(pods[0].UID)); err != nil || !found {
			t.Errorf("the pod of a Job without a hold has none either (%v)", err)
		}
		if pods[0].Spec.SchedulerName != v1alpha1.SchedulerName {
			t.Errorf("it goes to %s", pods[0].Spec.SchedulerName)
		}
		return ""
	})
}

func testJobUpdate(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "update", 1_000*ledger.Credit)
	job := newJob("update", "job", "1", 100, func(j *batchv1.Job) {
		j.Spec.Suspend, j.Spec.Parallelism, j.Spec.Completions = ptr.To(true), ptr.To(int32(2)), ptr.To(int32(4))
	})
	must(t, s.admin.Create(ctx, job))
	patch := func(body string) error {
		return s.admin.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)))
	}
	for _, body := range []string{`{"spec":{"parallelism":1}}`, `{"spec":{"parallelism":0}}`, `{"spec":{"parallelism":2}}`, `{"metadata":{"labels":{"note":"x"}}}`, `{"spec":{"suspend":false}}`} {
		if err := patch(body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, says := range map[string]string{
		`{"spec":{"parallelism":3}}`:                              "at most 2 GPUs at once",
		`{"metadata":{"labels":{"gpubank.io/account":"team-a"}}}`: "cannot be changed",
		`{"metadata":{"labels":{"gpubank.io/account":null}}}`:     "cannot be changed",
	} {
		if err := patch(body); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if got := s.reserved(t, "update"); got != 400*ledger.Credit {
		t.Errorf("%s reserved, want 400", ledger.DisplayCredits(got))
	}
}

func testAccountDeletion(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "unused", 0)
	s.enrol(t, "granted", 10*ledger.Credit)
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{ObjectMeta: named("", "parent")}))
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{ObjectMeta: named("", "child"), Spec: v1alpha1.CreditAccountSpec{Parent: "parent"}}))
	for name, says := range map[string]string{"granted": "balance 10", "team-a": "reserved for workloads", "parent": "parent of child"} {
		err := s.admin.Delete(ctx, &v1alpha1.CreditAccount{ObjectMeta: named("", name)})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	for _, name := range []string{"unused", "child", "parent"} {
		must(t, s.admin.Delete(ctx, &v1alpha1.CreditAccount{ObjectMeta: named("", name)}))
	}
}

// A class may list only names that the webhook is sent; otherwise its GPUs would be free.
func testClassNames(t *testing.T, s *suite) {
	for name, valid := range map[string]bool{
		"nvidia.com/gpu": true, "nvidia.com/mig-1g.5gb": true, "example.com/superGPU": true, "example.com/accelerator": false, "rdma/hca": false,
	} {
		err := s.admin.Create(t.Context(), &v1alpha1.GPUClass{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"},
			Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{name}, CreditsPerGPUSecond: "1"},
		}, client.DryRunAll)
		if (err == nil) != valid {
			t.Errorf("GPUClass of %s: %v", name, err)
		}
	}
}

func testMetrics(t *testing.T, s *suite) {
	body, err := get(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/metrics", s.metrics))
	must(t, err)
	for _, line := range []string{
		`gpubank_webhook_decisions_total{code="Held",decision="allowed",webhook="validate-workload"}`,
		`gpubank_webhook_decisions_total{code="Covered",decision="allowed",webhook="validate-workload"}`,
		`gpubank_webhook_decisions_total{code="InsufficientCredits",decision="denied",webhook="validate-workload"}`,
		`gpubank_webhook_decisions_total{code="AccountUsed",decision="denied",webhook="validate-account"}`,
		`gpubank_webhook_duration_seconds_count{webhook="mutate-workload"}`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}

// Replicas share one certificate, and put its authority back when somebody takes it away.
func testCertificate(t *testing.T, s *suite) {
	ctx := t.Context()
	second, err := cluster.FreePort()
	must(t, err)
	s.startWebhook(t, "webhook-2", second)
	if a, b := servedBy(t, s.port), servedBy(t, second); a != b {
		t.Errorf("the replicas serve different certificates: %s and %s", a, b)
	}
	must(t, s.admin.Patch(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", webhook.ConfigurationName)},
		client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`))))
	eventually(t, func(ctx context.Context) string {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := s.admin.Get(ctx, client.ObjectKey{Name: webhook.ConfigurationName}, configuration); err != nil {
			return err.Error()
		}
		if len(configuration.Webhooks[0].ClientConfig.CABundle) == 0 {
			return "the authority is not back"
		}
		return ""
	})
}

func servedBy(t *testing.T, port int) string {
	t.Helper()
	connection, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// Without the ledger the answer is an error of its own, never a lack of credits; and it recovers by itself.
func testLedgerAway(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "patient", 1_000*ledger.Credit)
	must(t, s.postgres.Stop())
	for name, options := range map[string][]client.CreateOption{"real": nil, "dry run": {client.DryRunAll}} {
		err := s.admin.Create(ctx, newJob("patient", "x", "1", 100), options...)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != 503 || !strings.Contains(err.Error(), "Ledger:") || strings.Contains(err.Error(), "insufficient") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, s.admin.Create(ctx, newJob("patient", "cpu", "0", 100)))
	must(t, s.postgres.Start(ctx))
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Create(ctx, newJob("patient", "x", "1", 100)); err != nil {
			return err.Error()
		}
		return ""
	})
}
