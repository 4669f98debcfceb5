package meter

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/nodesim"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// agentRBAC gives the test's service account the rights in manifests/agent, and no others.
func agentRBAC(t *testing.T, cp *cluster.ControlPlane) (kubeconfig string) {
	t.Helper()
	client := cp.Client()
	text, err := os.ReadFile("../../manifests/agent/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for i, into := range []any{&role, &binding} {
		if err := yaml.Unmarshal([]byte(documents[i]), into); err != nil {
			t.Fatal(err)
		}
	}
	account := types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: "nvml-exporter"}
	if err := cp.CreateNamespace(t.Context(), account.Namespace, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts(account.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account.Name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err = cp.ServiceAccountKubeconfig(t.Context(), "nvml-exporter", account, cluster.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// runAgent runs an agent with everything a process of it has; stop ends it as SIGTERM would.
func runAgent(t *testing.T, options Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually asks until the answer is yes; the parts under test are other processes, which tell nobody.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return yes(), nil })
	if err != nil {
		t.Fatalf("%s: did not happen within a minute", what)
	}
}

// createGPUPod creates a pod that ends by itself, or runs until it is deleted if seconds is 0.
func createGPUPod(t *testing.T, client kubernetes.Interface, name string, gpus, seconds int64) {
	t.Helper()
	annotations := map[string]string{}
	if seconds > 0 {
		annotations[nodesim.RunSecondsAnnotation] = fmt.Sprint(seconds)
	}
	_, err := client.CoreV1().Pods("team-a").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{v1alpha1.AccountLabel: "team-a", v1alpha1.ClassLabel: "h100"},
			Annotations: annotations,
			Finalizers:  []string{v1alpha1.MeteringFinalizer},
		},
		Spec: corev1.PodSpec{
			NodeName: "meter-0", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "none.invalid/train", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// The agent on real parts: API server and RBAC, the kubelet's PodResources server, TLS. It is stopped and started, the
// API server too, and the intake fails now and then; what it charges is what each pod's status says, to the second.
func TestAgentMetersWhatPodsHeld(t *testing.T) {
	cp := clustertest.OwnControlPlane(t, cluster.ControlPlaneOptions{})
	client := cp.Client()
	kubeconfig := agentRBAC(t, cp)
	if err := cp.CreateNamespace(t.Context(), "team-a", nil); err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	simulation, cancel := context.WithCancel(t.Context())
	simulator, err := nodesim.Start(simulation, cp.RESTConfig(), nodesim.Options{SocketDir: sockets, Nodes: []nodesim.NodeSpec{{Name: "meter-0", GPUs: 8}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); simulator.Wait() })

	s := newSending(t) // for its intake and files
	charged := map[string]map[string]intakeapi.Interval{}
	var charges sync.Mutex
	requests := 0
	s.intake.report = func(request intakeapi.IntervalsRequest) (int, []intakeapi.Result) {
		charges.Lock()
		defer charges.Unlock()
		if requests++; requests%3 == 0 {
			return http.StatusServiceUnavailable, nil
		}
		status, results := charge(request)
		for i, interval := range request.Intervals {
			if charged[interval.PodUID] == nil {
				charged[interval.PodUID] = map[string]intakeapi.Interval{}
			}
			if _, repeated := charged[interval.PodUID][interval.Key]; repeated {
				results[i].Outcome = intakeapi.Repeat
			}
			charged[interval.PodUID][interval.Key] = interval
		}
		return status, results
	}
	chargedUntil := func(uid types.UID) (until time.Time) {
		charges.Lock()
		defer charges.Unlock()
		for _, interval := range charged[string(uid)] {
			if interval.End.After(until) {
				until = interval.End
			}
		}
		return until
	}
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		NodeName: "meter-0", Kubeconfig: kubeconfig, PodResourcesSocket: nodesim.SocketPath(sockets, "meter-0"),
		ResourceNames: "nvidia.com/gpu", Spool: filepath.Join(t.TempDir(), "spool.db"), SpoolLimit: 1000,
		IntakeURL: s.intake.URL, IntakeCAFile: s.caFile, TokenFile: s.tokenFile,
		Interval: 2 * time.Second, ConfirmAfter: time.Second, LookEvery: 200 * time.Millisecond,
		NVML: "simulated:" + nodesim.SimulatedGPUsPath(sockets, "meter-0"), MetricsAddress: fmt.Sprintf("127.0.0.1:%d", port),
	}
	stop := runAgent(t, options)
	// A pod that comes and goes before the agent's first look is the controller's to charge, so it has to be up first.
	eventually(t, "the agent looks", func() bool {
		response, err := http.Get("http://" + options.MetricsAddress + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	createGPUPod(t, client, "long", 4, 12)
	createGPUPod(t, client, "short", 1, 0)
	pod := func(name string) *corev1.Pod {
		found, err := client.CoreV1().Pods("team-a").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil // the API server is away
		}
		return found
	}
	long := pod("long")
	eventually(t, "the long pod is metered while it runs", func() bool { return !chargedUntil(long.UID).IsZero() })
	short := pod("short")
	eventually(t, "the short pod is metered", func() bool { return !chargedUntil(short.UID).IsZero() })
	if err := client.CoreV1().Pods("team-a").Delete(t.Context(), short.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	stop()
	createGPUPod(t, client, "while-down", 2, 0)
	eventually(t, "the pod created while the agent is down runs", func() bool { return pod("while-down").Status.Phase == corev1.PodRunning })
	if err := cp.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cp.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	runAgent(t, options)
	running := pod("while-down")
	eventually(t, "it is metered", func() bool { return !chargedUntil(running.UID).IsZero() })
	if err := client.CoreV1().Pods("team-a").Delete(t.Context(), running.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	gpus := map[string]int{"long": 4, "short": 1, "while-down": 2}
	seconds := map[string]float64{"long": 12}
	for name := range gpus {
		eventually(t, name+" has ended and is charged to its end", func() bool {
			found := pod(name)
			return found != nil && FactsOf(found).Held.Ended && chargedUntil(found.UID).Equal(FactsOf(found).Held.End)
		})
		ended := pod(name)
		held := FactsOf(ended).Held
		charges.Lock()
		intervals := slices.SortedFunc(maps.Values(charged[string(ended.UID)]), func(a, b intakeapi.Interval) int { return a.Start.Compare(b.Start) })
		charges.Unlock()
		from := held.Start
		for _, interval := range intervals {
			if !interval.Start.Equal(from) || !interval.PodStartedAt.Equal(held.Start) || len(interval.GPUUUIDs) != gpus[name] {
				t.Errorf("%s: interval %+v follows %v", name, interval, from)
			}
			from = interval.End
		}
		if name != "long" {
			seconds[name] = held.End.Sub(held.Start).Seconds()
		}
		if from.Sub(held.Start).Seconds() != seconds[name] || !from.Equal(held.End) {
			t.Errorf("%s held %v to %v, is charged to %v", name, held.Start, held.End, from)
		}
	}
	eventually(t, "the spool is empty", func() bool { return scrape(t, options.MetricsAddress)["gpubank_spool_intervals"] == 0 })
	shown := scrape(t, options.MetricsAddress)
	for name, count := range gpus {
		if got := shown["gpubank_allocated_gpu_seconds_total/"+name]; got != seconds[name]*float64(count) {
			t.Errorf("metrics show %v GPU-seconds of %s, want %v", got, name, seconds[name]*float64(count))
		}
	}
	if shown["gpubank_unattributed_gpu_seconds_total"] != 0 || shown["gpubank_gpu_memory_bytes"] != 8*80<<30 {
		t.Errorf("metrics: %v", shown)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		response, err := http.Get("http://" + options.MetricsAddress + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s answers %d", path, response.StatusCode)
		}
	}
}

// scrape sums the agent's metrics by name, those of a pod also by name/pod.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil // it is starting
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return sums(families)
}

func sums(families map[string]*dto.MetricFamily) map[string]float64 {
	sums := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			sums[name] += value
			for _, label := range metric.GetLabel() {
				if label.GetName() == "pod" {
					sums[name+"/"+label.GetValue()] += value
				}
			}
		}
	}
	return sums
}
