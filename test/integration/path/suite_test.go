// Package path_test follows one Job through all parts of gpubank: submit, hold, place, meter, settle. Every part is the
// shipped program in a process of its own, under its own service account, on a real control plane and PostgreSQL; the
// test plays only the node. The same story is then told again with each part killed at its worst moment, and the
// ledger must come out the same.
package path_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background()) // or controller-runtime complains of having none
	clustertest.Main(m)
}

const (
	// patience is how long anything may take: a killed controller's lease lasts 15 s, on two cores that others share.
	patience = 120 * time.Second
	// holdExpiry and nodeGrace are short, so that a test can wait for them.
	holdExpiry = 8 * time.Second
	nodeGrace  = 4 * time.Second
)

// world is one whole installation with its failpoints built in.
type world struct {
	cp     *cluster.ControlPlane
	pg     *cluster.Postgres
	bank   *parts.Gpubank
	client client.Client
	ledger *postgres.Store
}

// newWorld installs and starts gpubank on a control plane and a PostgreSQL of its own. nodes is how many nodes nodesim
// plays; with 0 the test plays them.
func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{
		cp: clustertest.OwnControlPlane(t, cluster.ControlPlaneOptions{}),
		pg: clustertest.OwnPostgres(t),
	}
	var err error
	w.bank, err = parts.New(ctx, parts.Options{
		ControlPlane: w.cp, Postgres: w.pg, Tags: []string{"failpoints"},
		Nodes: nodes, MeterInterval: 2 * time.Second,
		Environment: []string{"GPUBANK_FAILPOINTS=" + w.failpoints()},
		Arguments: map[string][]string{
			parts.Controller: {
				"--hold-expiry=" + holdExpiry.String(), "--allow-short-hold-expiry",
				"--node-grace=" + nodeGrace.String(), "--resync=2s",
			},
			parts.Nodes: {"--lease-interval=1s"},
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

	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	w.client, err = client.New(w.cp.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	w.ledger, err = postgres.Open(ctx, w.bank.DatabaseURL, postgres.Options{})
	must(t, err)
	t.Cleanup(w.ledger.Close)
	must(t, w.client.Create(ctx, &v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{gpuResource}, CreditsPerGPUSecond: "1"},
	}))
	return w
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

// enrol makes a namespace and an account of the same name with so many credits.
func (w *world) enrol(t *testing.T, name string, credits v1alpha1.Credits) {
	t.Helper()
	w.enrolUnder(t, name, credits, v1alpha1.AccountPolicy{})
}

// enrolUnder is enrol with a policy.
func (w *world) enrolUnder(t *testing.T, name string, credits v1alpha1.Credits, policy v1alpha1.AccountPolicy) {
	t.Helper()
	ctx := t.Context()
	must(t, w.cp.CreateNamespace(ctx, name, map[string]string{v1alpha1.AccountLabel: name}))
	must(t, w.client.Create(ctx, &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{name}, Policy: policy},
	}))
	must(t, w.client.Create(ctx, &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CreditGrantSpec{Account: name, Credits: credits, Reason: "budget"},
	}))
	want, err := ledger.ParseCredits(string(credits))
	must(t, err)
	eventually(t, "the grant is posted", func(ctx context.Context) bool {
		row, found, err := w.ledger.Account(ctx, name)
		return err == nil && found && row.Balance == want
	})
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

// dies waits until a part has been killed by its failpoint, disarms it and starts the part again.
func (w *world) dies(t *testing.T, part *cluster.Process) {
	t.Helper()
	w.waitDead(t, part)
	w.arm(t, "")
	must(t, part.Start(t.Context()))
}

func (w *world) waitDead(t *testing.T, part *cluster.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-part.Exited():
	case <-ctx.Done():
		t.Fatalf("%s was not killed by its failpoint", part.Name())
	}
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
