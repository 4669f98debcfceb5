package auditor_test

import (
	"context"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/controller/auditor"
	"github.com/gpubank/gpubank/pkg/controller/upkeep"
	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// watched is an auditor at work on a real ledger, under a clock that the test advances.
type watched struct {
	t        *testing.T
	url      string
	store    *postgres.Store
	clock    *tellingClock
	registry *prometheus.Registry
	events   *events.FakeRecorder
}

// tellingClock says each time that somebody begins to wait for it, and how long.
type tellingClock struct {
	*clocktesting.FakeClock
	waits chan time.Duration
}

// After is what the auditor's tasks wait on. The channel has room for all that a test lets happen.
func (c *tellingClock) After(d time.Duration) <-chan time.Time {
	fires := c.FakeClock.After(d)
	c.waits <- d
	return fires
}

const (
	sealEvery    = 10 * time.Second
	auditEvery   = time.Hour
	compareEvery = time.Minute
	settleTime   = 5 * time.Minute
)

func watch(t *testing.T, objects ...client.Object) *watched {
	t.Helper()
	w := &watched{
		t: t, url: clustertest.Database(t), clock: &tellingClock{FakeClock: clocktesting.NewFakeClock(lt.Start.Add(24 * time.Hour)), waits: make(chan time.Duration, 100_000)},
		registry: prometheus.NewRegistry(), events: events.NewFakeRecorder(1_000),
	}
	if err := postgres.Migrate(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.store, err = postgres.Open(t.Context(), w.url, postgres.Options{Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	if _, err := w.store.AcquireLeadership(t.Context(), lt.Leader, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.RegisterNodeAgent(t.Context(), lt.Node, "test"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	watching := auditor.New(auditor.Options{
		Ledger: w.store, Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Recorder: w.events,
		SealInterval: sealEvery, AuditInterval: auditEvery, CompareInterval: compareEvery, SettleTime: settleTime,
		Clock: w.clock, Random: rand.New(rand.NewPCG(1, 2)), Logger: testr.New(t), Registry: w.registry,
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := watching.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	w.untilWaits("compare") // it has begun
	return w
}

func (w *watched) do(commands ...ledger.Command) {
	w.t.Helper()
	verdicts, err := w.store.SubmitAll(w.t.Context(), commands)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, v := range verdicts {
		if v.Refusal != nil {
			w.t.Fatalf("%s: %s", commands[i].CommandKey(), v.Refusal)
		}
	}
}

// taskThatWaits is the task that waits for as long: audits are an hour give or take a tenth, the first one comes sooner.
func taskThatWaits(d time.Duration) string {
	switch d {
	case 0, sealEvery:
		return "seal"
	case compareEvery:
		return "compare"
	}
	return "audit"
}

// untilWaits returns when a task begins to wait for its next turn.
func (w *watched) untilWaits(task string) {
	w.t.Helper()
	for {
		select {
		case d := <-w.clock.waits:
			if taskThatWaits(d) == task {
				return
			}
		case <-time.After(time.Minute):
			w.t.Fatalf("waited in vain for the task %s", task)
		}
	}
}

// pass lets time pass in steps until a task has begun and succeeded after the first. A task that was not waiting yet when the
// clock moved needs another step.
func (w *watched) pass(task string, step time.Duration) {
	w.t.Helper()
	for began := w.clock.Now(); !w.last(task).After(began); {
		for len(w.clock.waits) > 0 { // from before the clock moves
			<-w.clock.waits
		}
		w.clock.Step(step)
		w.untilWaits(task)
	}
}

func (w *watched) last(task string) time.Time {
	return time.UnixMilli(int64(w.metric("gpubank_ledger_last_success_timestamp_seconds", task) * 1_000))
}

// metric reads a gauge or counter; label is its one label's value, if it has one.
func (w *watched) metric(name, label string) float64 {
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && (label == "" || metric.GetLabel()[0].GetValue() == label) {
				return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// tamper changes rows as somebody whom no trigger stops.
func (w *watched) tamper(statement string) {
	w.t.Helper()
	parsed, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := pgx.Connect(w.t.Context(), clustertest.Postgres(w.t).AdminURL(strings.TrimPrefix(parsed.Path, "/")))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), "SET session_replication_role = replica; "+statement); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) frozen() (names []string) {
	accounts, err := w.store.FrozenAccounts(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, a := range accounts {
		names = append(names, a.Name+": "+a.Frozen)
	}
	return names
}

func (w *watched) nextEvent() string {
	select {
	case event := <-w.events.Events:
		return event
	default:
		return ""
	}
}

// The story of one mismatch: the account alone is frozen, with the entry named; what a person decides stands; another mismatch
// freezes again.
func TestMismatchFreezesItsAccountOnly(t *testing.T) {
	t.Parallel()
	w := watch(t, &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "red"}})
	w.do(lt.Account("org", "", 0), lt.Account("red", "org", 0), lt.Account("blue", "org", 0), lt.Rate(),
		lt.Grant("red", "red", 100), lt.Grant("blue", "blue", 100))
	sealed, left := 0.0, 2.0
	for round := 0; left > 0 && round < 100; round++ { // a transaction of another test, in the same server, holds the work list back
		w.pass("seal", sealEvery)
		sealed, left = w.metric("gpubank_ledger_sealed_entries_total", ""), w.metric("gpubank_ledger_unsealed_entries", "")
	}
	if sealed != 2 || left != 0 {
		t.Fatalf("%v sealed, %v left", sealed, left)
	}
	w.pass("audit", auditEvery+auditEvery/10)
	if found := w.frozen(); len(found) != 0 || w.nextEvent() != "" || w.metric("gpubank_ledger_audit_violations", "I8") != 0 {
		t.Fatalf("a false alarm: %v", found)
	}

	w.tamper("UPDATE entry SET reason = 'a bribe' WHERE event_key = 'grant:red'")
	w.pass("audit", auditEvery+auditEvery/10)
	found := w.frozen()
	if len(found) != 1 || !strings.HasPrefix(found[0], "red: audit found I8 account red: entry 1 is not what was sealed") {
		t.Fatalf("frozen: %v", found)
	}
	if event := w.nextEvent(); !strings.HasPrefix(event, "Warning AuditMismatch audit found I8 account red: entry 1") {
		t.Errorf("event %q", event)
	}
	if violations, frozen := w.metric("gpubank_ledger_audit_violations", "I8"), w.metric("gpubank_ledger_frozen_accounts", ""); violations != 1 || frozen != 1 {
		t.Errorf("metrics: %v violations, %v frozen", violations, frozen)
	}
	w.do(lt.Hold("goes-on", "blue", 1, 10), lt.Grant("goes-on", "org", 1))
	if v, err := w.store.Submit(t.Context(), lt.Hold("refused", "red", 1, 10)); err != nil || v.Refusal == nil || v.Refusal.Code != ledger.AccountFrozen {
		t.Errorf("a hold of the frozen account: %+v, %v", v.Refusal, err)
	}

	w.do(ledger.UnfreezeAccount{Key: "unfreeze", Account: "red", Reason: "the reason was corrected by hand", Actor: "auditor"})
	w.pass("audit", auditEvery+auditEvery/10)
	if found := w.frozen(); len(found) != 0 || w.metric("gpubank_ledger_audit_violations", "I8") != 1 {
		t.Errorf("frozen again for what a person has accepted: %v", found)
	}
	w.tamper("UPDATE account SET balance = balance + 5 WHERE name = 'red'")
	w.pass("audit", auditEvery+auditEvery/10)
	if found := w.frozen(); len(found) != 1 || !strings.Contains(found[0], "balance is 100000005, should be 100000000") {
		t.Errorf("frozen: %v", found)
	}
}

// Sides that disagree for long enough are kept once, with both sides, until an adjustment closes the record.
func TestDisagreementIsKeptUntilClosed(t *testing.T) {
	t.Parallel()
	started := metav1.NewTime(lt.Start)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "p", UID: "pod-uid"},
		Spec: corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}}}},
	}
	w := watch(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{v1alpha1.AccountLabel: "team"}}},
		&v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{"lab"}}},
		&v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: lt.Class}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lt.Node}, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}},
		pod,
	)
	w.do(lt.Account("team", "", 0), lt.Rate(), lt.Grant("g", "team", 1_000), lt.Hold("job", "team", 2, 100),
		lt.Allocate("pod-uid", "job", "team", 1), lt.Bound("pod-uid"), lt.Allocate("ghost", "job", "team", 1), lt.Bound("ghost"))
	kinds := func() string {
		all, err := w.store.Discrepancies(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, d := range all {
			text = append(text, string(d.Kind)+" "+d.PodUID+" "+d.Account)
		}
		return strings.Join(text, ", ")
	}
	w.pass("compare", compareEvery)
	for first := w.last("compare"); w.last("compare").Sub(first) < settleTime-compareEvery; w.pass("compare", compareEvery) {
		if got := kinds(); got != "" {
			t.Fatalf("kept %s after the first time: %s", w.last("compare").Sub(first), got)
		}
	}
	w.pass("compare", compareEvery)
	for range 3 { // each once
		w.pass("compare", compareEvery)
		if got, want := kinds(), "NodeDiffers pod-uid team, NodeOvercommitted pod-uid team, OpenAfterPod ghost team"; got != want {
			t.Fatalf("kept %s, want %s", got, want)
		}
	}
	if open := w.metric("gpubank_ledger_open_discrepancies", string(ledger.NodeDiffers)); open != 1 {
		t.Errorf("%v open", open)
	}
	w.do(ledger.Adjust{Key: "close", Account: "team", Discrepancy: "compared:NodeDiffers:pod-uid:elsewhere", Reason: "the test says so", Actor: "test"})
	w.pass("compare", compareEvery)
	if open := w.metric("gpubank_ledger_open_discrepancies", string(ledger.NodeDiffers)); open != 0 {
		t.Errorf("%v open after it was closed", open)
	}
}

// The alerts that are shipped ask for metrics that there are.
func TestAlertsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../../manifests/alerts/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t)
	w.pass("audit", auditEvery+auditEvery/10)
	w.pass("compare", compareEvery)
	// The controller's upkeep shows what it has from its start on; it need not get far.
	ended, end := context.WithCancel(t.Context())
	end()
	kept := upkeep.New(upkeep.Options{Ledger: w.store, CompactAfter: time.Hour, Clock: w.clock, Logger: testr.New(t), Registry: w.registry})
	if err := kept.Start(ended); err != nil {
		t.Fatal(err)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, family := range families {
		known[family.GetName()] = true
	}
	named := regexp.MustCompile(`gpubank_[a-z_]+`).FindAllString(string(rules), -1)
	if len(named) < 5 {
		t.Errorf("the rules name %v", named)
	}
	for _, name := range named {
		if !known[name] {
			t.Errorf("the rules ask for %s, which is no metric of auditor or upkeep", name)
		}
	}
}
