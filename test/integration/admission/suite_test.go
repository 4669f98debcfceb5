// Package admission_test runs the real credit-webhook, under its own service account and with the manifests that are
// shipped, against a real API server and a real PostgreSQL.
package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/pkg/webhook"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const repository = "../../.."

// suite is a control plane with the manifests applied, a PostgreSQL of its own, and the ledger in it. The webhook is not
// running yet; its address leads nowhere.
type suite struct {
	*cluster.ControlPlane
	admin    client.Client
	postgres *cluster.Postgres
	ledger   *postgres.Store
	port     int // of the webhook that the API server calls
	metrics  int // of the webhook that was started last
	binary   string
	urlFile  string
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	ctx := t.Context()
	s := &suite{ControlPlane: clustertest.ControlPlane(t), postgres: clustertest.OwnPostgres(t)}
	scheme, err := webhook.NewScheme()
	must(t, err)
	s.admin, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	s.port, err = cluster.FreePort()
	must(t, err)

	url, err := s.postgres.CreateDatabase(ctx, "ledger")
	must(t, err)
	s.urlFile = filepath.Join(t.TempDir(), "url")
	must(t, cluster.WriteURLFile(s.urlFile, s.postgres.URLAs(cluster.WebhookRole, "ledger")))
	must(t, postgres.Migrate(ctx, url))
	s.ledger, err = postgres.Open(ctx, url, postgres.Options{})
	must(t, err)
	t.Cleanup(s.ledger.Close)

	s.apply(t, "manifests/namespace.yaml", "manifests/crd", "manifests/webhook")
	s.binary = filepath.Join(t.TempDir(), "credit-webhook")
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/credit-webhook")
	build.Dir = repository
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build credit-webhook: %v\n%s", err, output)
	}
	return s
}

// apply applies manifests as they are shipped, except that the webhook's Service leads to this machine.
func (s *suite) apply(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		for _, object := range render(t, path) {
			s.lead(object)
			err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
				// A CRD's own kinds are served a moment after it.
				return s.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership) == nil, nil
			})
			if err != nil {
				t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(),
					s.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership))
			}
		}
	}
}

func (s *suite) lead(object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "Service":
		object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		for _, hook := range object.Object["webhooks"].([]any) {
			service := hook.(map[string]any)["clientConfig"].(map[string]any)["service"].(map[string]any)
			service["port"] = int64(s.port)
		}
	}
}

// render builds a kustomization, or reads a single manifest.
func render(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repository, path))
	must(t, err)
	disk := filesys.MakeFsOnDisk()
	if filepath.Ext(path) == ".yaml" {
		single := filesys.MakeFsInMemory()
		content, err := os.ReadFile(path)
		must(t, err)
		must(t, single.WriteFile("/object.yaml", content))
		must(t, single.WriteFile("/kustomization.yaml", []byte("resources: [object.yaml]\n")))
		disk, path = single, "/"
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, path)
	must(t, err)
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		// Through JSON, so that numbers have the types the API machinery expects.
		content, err := resource.MarshalJSON()
		must(t, err)
		object := &unstructured.Unstructured{}
		must(t, object.UnmarshalJSON(content))
		objects = append(objects, object)
	}
	return objects
}

// startWebhook runs one replica under the rights that the manifests give it, until the test ends.
func (s *suite) startWebhook(t *testing.T, name string, port int) *cluster.Process {
	t.Helper()
	ctx := t.Context()
	kubeconfig, err := s.ServiceAccountKubeconfig(ctx, name, types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: "credit-webhook"}, cluster.TokenOptions{})
	must(t, err)
	probes, err := cluster.FreePort()
	must(t, err)
	s.metrics, err = cluster.FreePort()
	must(t, err)
	process := cluster.NewProcess(cluster.Command{
		Name: name, Path: s.binary, LogFile: filepath.Join(t.TempDir(), name+".log"),
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--database-url-file=" + s.urlFile, fmt.Sprintf("--webhook-port=%d", port),
			fmt.Sprintf("--health-probe-address=127.0.0.1:%d", probes), fmt.Sprintf("--metrics-address=127.0.0.1:%d", s.metrics),
		},
		Ready: func(ctx context.Context) error {
			_, err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz?verbose", probes))
			return err
		},
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of %s:\n%s", name, process.LogTail(60))
		}
		must(t, process.Stop())
	})
	must(t, process.Start(ctx))
	return process
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// enrol makes a namespace and the account that pays for it, with so many credits in the ledger. An account of 0 credits has no
// grant.
func (s *suite) enrol(t *testing.T, name string, credits ledger.Microcredits) {
	t.Helper()
	ctx := t.Context()
	must(t, s.CreateNamespace(ctx, name, map[string]string{v1alpha1.AccountLabel: name}))
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CreditAccountSpec{Namespaces: []string{name}},
	}))
	s.submit(t, ledger.SetAccount{Key: "account:" + name, Account: name})
	if credits > 0 {
		s.submit(t, ledger.PostGrant{Key: "grant:" + name, Account: name, Amount: credits, Reason: "test", Actor: "test"})
	}
}

// offer makes the class h100 at one credit per GPU-second.
func (s *suite) offer(t *testing.T) {
	t.Helper()
	must(t, s.admin.Create(t.Context(), &v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec:       v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}, CreditsPerGPUSecond: "1"},
	}))
	s.submit(t, ledger.SetRate{Key: "rate:h100", Class: "h100", Rate: ledger.Rate(ledger.Credit)})
}

func (s *suite) submit(t *testing.T, command ledger.Command) {
	t.Helper()
	verdict, err := s.ledger.Submit(t.Context(), command)
	must(t, err)
	if verdict.Refusal != nil {
		t.Fatalf("%+v: %v", command, verdict.Refusal)
	}
}

// reserved is what the account has reserved now.
func (s *suite) reserved(t *testing.T, account string) ledger.Microcredits {
	t.Helper()
	row, found, err := s.ledger.Account(t.Context(), account)
	must(t, err)
	if !found {
		t.Fatalf("account %s is not in the ledger", account)
	}
	return row.Reserved
}

// eventually asks until ask returns "", or fails with what it returned last.
func eventually(t *testing.T, ask func(context.Context) string) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
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

// label sets one label of an object, or removes it when value is nil.
func (s *suite) label(ctx context.Context, as client.Client, object client.Object, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	return as.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// user is a client of somebody else.
func (s *suite) user(t *testing.T, name string, groups ...string) client.Client {
	t.Helper()
	as, err := client.New(s.UserRESTConfig(name, groups...), client.Options{Scheme: s.admin.Scheme()})
	must(t, err)
	return as
}

func podsOf(ctx context.Context, reader client.Reader, job client.Object) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := reader.List(ctx, &pods, client.InNamespace(job.GetNamespace()), client.MatchingLabels{"batch.kubernetes.io/job-name": job.GetName()})
	return pods.Items, err
}
