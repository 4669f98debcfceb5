// Package throughput measures how many GPU pods per second are bound with our scheduler and a durable ledger, against the
// unmodified kube-scheduler of the same version, on upstream's own harness (scheduler_perf): the same API server, 1,000
// nodes of 8 GPUs, 5,000 one-GPU pods, in interleaved runs.
//
//	go test ./bench/throughput -run '^$' -bench . -benchtime 1x -timeout 2h
//
// writes bench/results/throughput.json. With -short a small cluster is measured once and nothing is written, so that
// the benchmark itself cannot rot.
//
// Our side is measured at its dearest: the pods belong to no Job, so each one's commit also places its hold, on one account.
package throughput

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption"
	"github.com/gpubank/gpubank/pkg/plugins/creditreservation"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue"
	"github.com/gpubank/gpubank/pkg/plugins/gang"
	"github.com/gpubank/gpubank/pkg/plugins/gpubestfit"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

const (
	account = "throughput"
	results = "../results/throughput.json"

	// pods are those of the workloads full and small, in plain.yaml and gpubank.yaml.
	pods, podsShort = 5000, 100
)

var runs = flag.Int("runs", 5, "runs of each side")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !testing.Short() {
		// The harness adds +short itself when it is asked for.
		perf.PerfSchedulingLabelFilter = "performance,-short"
	}
	if err := configv1.Register(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs, err := binaries.EnsureControlPlane(context.Background(), func(line string) { fmt.Fprintln(os.Stderr, line) }, "etcd")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Where the harness looks for etcd.
	if err := os.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func BenchmarkThroughput(b *testing.B) {
	pg, err := cluster.StartPostgres(b.Context(), cluster.PostgresOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer pg.Close()
	count := *runs
	if testing.Short() {
		count = 1
	}
	var pairs []report.Pair
	for i := range count {
		var pair report.Pair
		b.Run("gpubank", func(b *testing.B) {
			pair.Value = measure(b, "gpubank", registry(pg, "throughput_"+strconv.Itoa(i)))
		})
		b.Run("plain", func(b *testing.B) { pair.Against = measure(b, "plain", nil) })
		if b.Failed() || pair.Value == 0 || pair.Against == 0 {
			return // a filter left one side out, or a run failed and said so
		}
		b.Logf("run %d: %.0f pods/s with gpubank, %.0f without", i+1, pair.Value, pair.Against)
		pairs = append(pairs, pair)
	}
	figure := report.Compare("pods_bound_vs_kube_scheduler", "pods/s",
		"kube-scheduler of the same version, default plugins, 1,000 nodes of 8 GPUs, 5,000 one-GPU pods", pairs)
	b.ReportMetric(figure.Ratio, "ratio")
	if testing.Short() {
		return
	}
	version, err := pg.Version(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := report.Write(results, map[string]string{"postgresql": version}, []report.Figure{figure}); err != nil {
		b.Fatal(err)
	}
}

// measure runs one side once, and returns the pods bound per second.
func measure(b *testing.B, side string, plugins frameworkruntime.Registry) float64 {
	folder := b.TempDir()
	if err := flag.Set("data-items-dir", folder); err != nil {
		b.Fatal(err)
	}
	perf.RunBenchmarkPerfScheduling(b, side+".yaml", side, plugins)
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) != 1 {
		b.Fatalf("the harness wrote %d result files, want 1: %v", len(files), err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		b.Fatal(err)
	}
	var items perf.DataItems
	if err := json.Unmarshal(content, &items); err != nil {
		b.Fatal(err)
	}
	for _, item := range items.DataItems {
		if item.Labels["Metric"] != "SchedulingDuration" {
			continue
		}
		// From the first creation to the last binding: no slow second can hide between samples.
		if testing.Short() {
			return podsShort / item.Data["Duration"]
		}
		return pods / item.Data["Duration"]
	}
	b.Fatal("the harness measured no SchedulingDuration")
	return 0
}

// registry makes our plugins, on a fresh ledger in which one account has enough for everything.
func registry(pg *cluster.Postgres, database string) frameworkruntime.Registry {
	source, gates, gangs := &catalog.Source{}, &creditreservation.Gates{}, &gang.Source{}
	var store *postgres.Store // one for both plugins, which are made one after the other
	open := func(ctx context.Context) (_ *postgres.Store, err error) {
		if store == nil {
			store, err = openLedger(ctx, pg, database)
		}
		return store, err
	}
	queue := fairqueue.NewFactory(fairqueue.Deps{
		Catalog: source, Open: func(ctx context.Context) (fairqueue.Ledger, error) { return open(ctx) },
		Gates: []fairqueue.Gate{gates, gangs}, Groups: gangs, Personal: []string{creditreservation.Name, gang.Name},
	})
	exit := func(reason string) { panic(reason) }
	desk := creditreservation.NewDesk(creditreservation.Deps{
		Catalog: source, Gates: gates, Exit: exit,
		Open: func(ctx context.Context) (creditreservation.Ledger, error) { return open(ctx) },
	})
	inner := desk.Factory()
	stops := checkpointpreemption.NewFactory(checkpointpreemption.Deps{
		Catalog: source, Exit: exit, Epoch: desk.Epoch,
		Open: func(ctx context.Context) (checkpointpreemption.Records, error) { return open(ctx) },
	})
	near := func(ctx context.Context, handle fwk.Handle) (gpubestfit.Gangs, error) { return gangs.Get(ctx, handle) }
	return frameworkruntime.Registry{
		gang.Name: gang.NewFactory(gangs),
		fairqueue.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if err := install(ctx, handle.KubeConfig()); err != nil {
				return nil, err
			}
			return queue(ctx, args, handle)
		},
		creditreservation.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			// The harness starts the API server and the scheduler in one go, so our objects are made in between.
			if err := install(ctx, handle.KubeConfig()); err != nil {
				return nil, err
			}
			return inner(ctx, args, handle)
		},
		checkpointpreemption.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if err := install(ctx, handle.KubeConfig()); err != nil {
				return nil, err
			}
			return stops(ctx, args, handle)
		},
		gpubestfit.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if err := install(ctx, handle.KubeConfig()); err != nil {
				return nil, err
			}
			return gpubestfit.NewFactory(source, near)(ctx, args, handle)
		},
	}
}

func openLedger(ctx context.Context, pg *cluster.Postgres, database string) (*postgres.Store, error) {
	url, err := pg.CreateDatabase(ctx, database)
	if err != nil {
		return nil, err
	}
	if err := postgres.Migrate(ctx, url); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, url, postgres.Options{BatchSpacing: creditreservation.CommitSpacing})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, store.Close)
	verdicts, err := store.SubmitAll(ctx, []ledger.Command{
		ledger.SetAccount{Key: "account", Account: account},
		ledger.PostGrant{Key: "grant", Account: account, Amount: 1_000_000_000 * ledger.Credit, Reason: "benchmark", Actor: "benchmark"},
		ledger.SetRate{Key: "rate", Class: "h100", Rate: ledger.Rate(ledger.Credit)},
	})
	if err != nil {
		return nil, err
	}
	for _, verdict := range verdicts {
		if verdict.Refusal != nil {
			return nil, verdict.Refusal
		}
	}
	return store, nil
}

// install makes the custom resources, and the account and class that the pods use.
func install(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	applier, err := parts.NewApplier(config)
	if err != nil {
		return err
	}
	manifests, err := parts.Render()
	if err != nil {
		return err
	}
	for _, object := range manifests {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := applier.Apply(ctx, object, false); err != nil {
			return err
		}
		if err := applier.WaitEstablished(ctx, object); err != nil {
			return err
		}
	}
	for _, object := range []map[string]any{
		{
			"apiVersion": "gpubank.io/v1alpha1", "kind": "CreditAccount", "metadata": map[string]any{"name": account},
			"spec": map[string]any{"namespaces": []any{"throughput-0"}},
		},
		{
			"apiVersion": "gpubank.io/v1alpha1", "kind": "GPUClass", "metadata": map[string]any{"name": "h100"},
			"spec": map[string]any{"resourceNames": []any{"nvidia.com/gpu"}, "nodeSelector": map[string]any{"gpubank.io/class": "h100"}, "creditsPerGPUSecond": "1"},
		},
	} {
		if err := applier.Apply(ctx, &unstructured.Unstructured{Object: object}, false); err != nil {
			return err
		}
	}
	return nil
}
