// Package kueue_test runs gpubank's shipped programs beside Kueue's own manager, on a real control plane and PostgreSQL: Jobs that wait in
// queues, whose credits are set aside when Kueue admits them.
package kueue_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/kueue"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background()) // or controller-runtime complains of having none
	clustertest.Main(m)
}

// patience is how long anything may take, on two cores that others share.
const patience = 180 * time.Second

// world is gpubank and Kueue, each with everything it has where it is installed.
type world struct {
	cp     *cluster.ControlPlane
	bank   *parts.Gpubank
	kueue  *kueue.Kueue
	client client.Client
	ledger *postgres.Store
}

// newWorld starts gpubank in a cluster without Kueue, and installs Kueue then.
func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{cp: clustertest.OwnControlPlane(t, cluster.ControlPlaneOptions{})}
	var err error
	w.bank, err = parts.New(ctx, parts.Options{
		ControlPlane: w.cp, Postgres: clustertest.OwnPostgres(t), Tags: []string{"failpoints"},
		Nodes: 1, NodeLabels: map[string]string{"gpu": "h100"}, MeterInterval: 2 * time.Second,
		Environment: []string{"GPUBANK_FAILPOINTS=" + w.failpoints()},
		Arguments: map[string][]string{
			parts.Controller: {"--hold-expiry=8s", "--allow-short-hold-expiry", "--resync=2s"},
		},
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, process := range w.bank.Processes() {
				t.Logf("the end of %s:\n%s", process.Name(), process.LogTail(40))
			}
		}
		must(t, w.bank.Close())
	})
	must(t, w.bank.Start(ctx))
	w.connect(t)
	for _, class := range []string{"a100", "h100"} {
		must(t, w.client.Create(ctx, &v1alpha1.GPUClass{
			ObjectMeta: metav1.ObjectMeta{Name: class},
			Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{gpuResource}, CreditsPerGPUSecond: "1", NodeSelector: map[string]string{"gpu": class}},
		}))
	}
	w.installKueue(t)
	return w
}

func (w *world) connect(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	must(t, kueuev1beta2.AddToScheme(scheme))
	var err error
	w.client, err = client.New(w.cp.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	w.ledger, err = postgres.Open(t.Context(), w.bank.DatabaseURL, postgres.Options{})
	must(t, err)
	t.Cleanup(w.ledger.Close)
}

// installKueue does what an operator does: Kueue's kinds, its manager, and then gpubank's rights and its check.
func (w *world) installKueue(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must(t, kueue.InstallCRDs(ctx, w.cp))
	var err error
	w.kueue, err = kueue.New(ctx, w.cp, func(line string) { t.Log(line) }, map[string]bool{"ElasticJobsViaWorkloadSlices": true})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of Kueue:\n%s", w.kueue.Manager.LogTail(60))
		}
		must(t, w.kueue.Manager.Kill())
	})
	must(t, w.kueue.Manager.Start(ctx))
	applier, err := parts.NewApplier(w.cp.RESTConfig())
	must(t, err)
	objects, err := parts.RenderFolder("manifests/kueue")
	must(t, err)
	for _, object := range objects {
		must(t, applier.Apply(ctx, object, false))
	}
	for _, flavor := range []string{"a100", "h100"} {
		must(t, w.client.Create(ctx, &kueuev1beta2.ResourceFlavor{
			ObjectMeta: metav1.ObjectMeta{Name: flavor}, Spec: kueuev1beta2.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": flavor}},
		}))
	}
	eventually(t, "gpubank has noticed Kueue and answers its check", func(ctx context.Context) bool {
		var check kueuev1beta2.AdmissionCheck
		err := w.client.Get(ctx, client.ObjectKey{Name: checkName}, &check)
		return err == nil && isTrue(check.Status.Conditions, kueuev1beta2.AdmissionCheckActive)
	})
}

func (w *world) failpoints() string { return filepath.Join(w.cp.Dir, "failpoints") }

// arm sets the failpoints of every part; none disarms all.
func (w *world) arm(t *testing.T, points string) {
	t.Helper()
	// Renamed into place, so that no part reads half of it.
	temporary := w.failpoints() + ".new"
	must(t, os.WriteFile(temporary, []byte(points+"\n"), 0o600))
	must(t, os.Rename(temporary, w.failpoints()))
}

// dies waits until the controller has been killed by its failpoint, disarms it and starts it again.
func (w *world) dies(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-w.bank.Controller.Exited():
	case <-ctx.Done():
		t.Fatal("the controller was not killed by its failpoint")
	}
	w.arm(t, "")
	must(t, w.bank.Controller.Start(t.Context()))
}

// audit fails the test if any of I1 to I10 is broken.
func (w *world) audit(t *testing.T) {
	t.Helper()
	violations, err := w.ledger.Audit(t.Context())
	must(t, err)
	for _, violation := range violations {
		t.Errorf("audit: %s", violation)
	}
}

// everything is all that the ledger says about reservations and money, in lines.
func (w *world) everything(t *testing.T) []string {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), w.bank.DatabaseURL)
	must(t, err)
	defer connection.Close(t.Context())
	rows, err := connection.Query(t.Context(), `
		SELECT format('reservation %s %s %s of %s, %s GPU-seconds', uid, state, charged, amount, gpu_seconds) FROM reservation
		UNION ALL SELECT format('entry %s %s %s', id, event_key, amount) FROM entry
		UNION ALL SELECT format('account %s %s %s', name, balance, reserved) FROM account ORDER BY 1`)
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return lines
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, what string, ask func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return ask(ctx), nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func credits(n int64) ledger.Microcredits { return ledger.Microcredits(n) * ledger.Credit }
