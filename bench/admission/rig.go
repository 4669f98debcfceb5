package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

const (
	enrolled    = "with-account"
	notEnrolled = "without-account"
	account     = "benchmark"
	gpus        = 4
	maxSeconds  = 600
)

// rig is what the Jobs are created on.
type rig struct {
	postgres     *cluster.Postgres
	controlPlane *cluster.ControlPlane
	bank         *parts.Gpubank
	client       kubernetes.Interface
	store        *postgres.Store
	created      int // Jobs in the enrolled namespace, ever
	runs         int
}

func newRig(ctx context.Context, installed installation, progress func(string)) (*rig, error) {
	r := &rig{}
	if err := r.start(ctx, installed, progress); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, installed installation, progress func(string)) error {
	var err error
	if r.postgres, err = cluster.StartPostgres(ctx, cluster.PostgresOptions{Progress: progress}); err != nil {
		return err
	}
	r.controlPlane, err = cluster.StartControlPlane(ctx, cluster.ControlPlaneOptions{
		EtcdArgs: []string{"--unsafe-no-fsync=false"},
	})
	if err != nil {
		return err
	}
	config := r.controlPlane.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // a dry run answers with what it would set aside
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	r.bank, err = parts.New(ctx, parts.Options{ControlPlane: r.controlPlane, Postgres: r.postgres, Progress: progress})
	if err != nil {
		return err
	}
	if err := r.bank.Start(ctx); err != nil {
		return err
	}
	if r.store, err = postgres.Open(ctx, r.bank.DatabaseURL, postgres.Options{}); err != nil {
		return err
	}
	if err := r.enrol(ctx); err != nil {
		return err
	}
	if installed.policy {
		if err := r.applyPolicy(ctx); err != nil {
			return err
		}
	}
	// What would react to the Jobs has done its part.
	return errors.Join(r.bank.Scheduler.Stop(), r.bank.Controller.Stop(), r.controlPlane.ControllerManager.Stop())
}

// enrol makes both namespaces, an account for one of them, and waits until Jobs can be created with it.
func (r *rig) enrol(ctx context.Context) error {
	applier, err := parts.NewApplier(r.controlPlane.RESTConfig())
	if err != nil {
		return err
	}
	for _, object := range []map[string]any{
		{"kind": "GPUClass", "metadata": map[string]any{"name": "h100"}, "spec": map[string]any{
			"resourceNames": []any{"nvidia.com/gpu"}, "creditsPerGPUSecond": "1",
		}},
		{"kind": "CreditAccount", "metadata": map[string]any{"name": account}, "spec": map[string]any{"namespaces": []any{enrolled}}},
		{"kind": "CreditGrant", "metadata": map[string]any{"name": account}, "spec": map[string]any{
			"account": account, "credits": "1000000000", "reason": "benchmark",
		}},
	} {
		object["apiVersion"] = v1alpha1.GroupVersion.String()
		if err := applier.Apply(ctx, &unstructured.Unstructured{Object: object}, false); err != nil {
			return err
		}
	}
	if err := r.controlPlane.CreateNamespace(ctx, notEnrolled, nil); err != nil {
		return err
	}
	if err := r.controlPlane.CreateNamespace(ctx, enrolled, map[string]string{v1alpha1.AccountLabel: account}); err != nil {
		return err
	}
	// It passes once account, grant and rate are in the ledger.
	return wait(ctx, "namespace "+enrolled+" can create GPU Jobs", func(ctx context.Context) error { return r.probe(ctx) })
}

// probe creates a Job that holds nothing, because it is a dry run.
func (r *rig) probe(ctx context.Context) error {
	_, err := r.client.BatchV1().Jobs(enrolled).Create(ctx, job("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// applyPolicy applies the component mutating-policy and waits until the API server works by it.
func (r *rig) applyPolicy(ctx context.Context) error {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(root, "manifests", "mutating-policy", "policy.yaml"))
	if err != nil {
		return fmt.Errorf("read the component mutating-policy: %w", err)
	}
	applier, err := parts.NewApplier(r.controlPlane.RESTConfig())
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4<<10)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the component mutating-policy: %w", err)
		}
		if err := applier.Apply(ctx, object, false); err != nil {
			return err
		}
	}
	return wait(ctx, "the component mutating-policy works", func(ctx context.Context) error {
		if err := r.probe(ctx); err != nil {
			return err
		}
		metrics, err := r.client.BatchV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
		if err == nil && !bytes.Contains(metrics, []byte(`policy="gpubank-job"`)) {
			err = errors.New("the API server has not completed a Job by policy gpubank-job yet")
		}
		return err
	})
}

// wait asks until the answer is no error, for at most a minute.
func wait(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, err)
		case <-tick.C:
		}
	}
}

// measured is what one run showed.
type measured struct {
	latencies
	processors processorTime // for each creation
}

func (m measured) String() string { return m.latencies.String() + ", " + m.processors.String() }

// run creates Jobs in a namespace at a rate and deletes them again.
func (r *rig) run(ctx context.Context, namespace string, rate int, options Options) (measured, error) {
	count := int(options.Run * time.Duration(rate) / time.Second)
	bodies := make([][]byte, count)
	for i := range bodies {
		var err error
		if bodies[i], err = json.Marshal(job(fmt.Sprintf("train-%d-%d", r.runs, i))); err != nil {
			return measured{}, err
		}
	}
	r.runs++
	before := r.processorTime()
	result, err := constantRate(ctx, rate, count, int(options.WarmUp*time.Duration(rate)/time.Second), func(ctx context.Context, i int) error {
		return r.client.BatchV1().RESTClient().Post().Namespace(namespace).Resource("jobs").
			SetHeader("Content-Type", "application/json").Body(bodies[i]).Do(ctx).Error()
	})
	processors := r.processorTime().perCreation(before, count)
	if err == nil && namespace == enrolled {
		r.created += count
	}
	return measured{result, processors}, errors.Join(err, r.client.BatchV1().Jobs(namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{}))
}

// checkHolds makes sure that the Jobs of the enrolled namespace, all of them and no others, had their credits set aside: what was
// measured is the real thing.
func (r *rig) checkHolds(ctx context.Context) error {
	row, found, err := r.store.Account(ctx, account)
	if err != nil {
		return err
	}
	want := ledger.Microcredits(r.created) * gpus * maxSeconds * ledger.Credit
	if !found || row.Reserved != want {
		return fmt.Errorf("account %s has %s credits reserved after %d Jobs, not %s: the webhook did not do its work",
			account, ledger.DisplayCredits(row.Reserved), r.created, ledger.DisplayCredits(want))
	}
	return nil
}

func (r *rig) postgresVersion(ctx context.Context) (version string, err error) {
	connection, err := pgx.Connect(ctx, r.postgres.AdminURL("postgres"))
	if err != nil {
		return "", fmt.Errorf("ask PostgreSQL for its version: %w", err)
	}
	defer connection.Close(ctx)
	err = connection.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}

// Close ends everything.
func (r *rig) Close() error {
	var all error
	if r.store != nil {
		r.store.Close()
	}
	if r.bank != nil {
		all = errors.Join(all, r.bank.Close())
	}
	if r.controlPlane != nil {
		all = errors.Join(all, r.controlPlane.Close())
	}
	if r.postgres != nil {
		all = errors.Join(all, r.postgres.Close())
	}
	return all
}

// job is a training Job as people submit them: one pod of four GPUs, ten minutes, some environment, a volume.
func job(name string) *batchv1.Job {
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "train", "experiment": "baseline"}},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "train"}},
				Spec: corev1.PodSpec{
					RestartPolicy:         corev1.RestartPolicyNever,
					ActiveDeadlineSeconds: ptr.To[int64](maxSeconds),
					Containers: []corev1.Container{{
						Name: "train", Image: "registry.example.com/research/train:2026.11",
						Command: []string{"python", "-m", "train"},
						Args:    []string{"--config=/etc/train/config.yaml", "--epochs=10", "--checkpoint-dir=/data/checkpoints"},
						Env: []corev1.EnvVar{
							{Name: "NCCL_DEBUG", Value: "WARN"},
							{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
						},
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("256Gi")},
							Limits:   corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)},
						},
						VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
					Volumes: []corev1.Volume{{
						Name:         "data",
						VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
					}},
				},
			},
		},
	}
}
