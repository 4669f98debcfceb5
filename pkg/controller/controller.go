package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/controller/accounts"
	"github.com/gpubank/gpubank/pkg/controller/auditor"
	"github.com/gpubank/gpubank/pkg/controller/gangs"
	"github.com/gpubank/gpubank/pkg/controller/intake"
	"github.com/gpubank/gpubank/pkg/controller/lifecycle"
	"github.com/gpubank/gpubank/pkg/controller/upkeep"
	"github.com/gpubank/gpubank/pkg/servingcert"
)

// Names that manifests, agents and the controller share.
const (
	leaseName          = "credit-controller"
	intakeSecretName   = "intake-tls"
	intakeAuthorityMap = "intake-ca"
)

// Ledger is the store, as all parts of the controller together need it.
type Ledger interface {
	lifecycle.Ledger
	intake.Ledger
	accounts.BalanceReader
	accounts.DueLedger
	auditor.Ledger
	upkeep.Ledger
}

// Dependencies are what a process brings.
type Dependencies struct {
	Config *rest.Config
	Ledger Ledger
	// TablesFit fails while the ledger's database is away, or its tables are not yet those that this program needs.
	TablesFit func(context.Context) error
	Registry  prometheus.Registerer
	Clock     clock.WithTicker
	// Identity is unique to this process: its name in the ledger's leadership.
	Identity string
}

// New returns a manager with everything registered; Start runs it.
func New(ctx context.Context, settings Settings, deps Dependencies) (manager.Manager, error) {
	scheme := newScheme()
	mgr, err := manager.New(deps.Config, manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(),
		LeaderElection:                settings.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       settings.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: settings.MetricsAddress},
		HealthProbeBindAddress:        settings.HealthProbeAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	awaited := &tables{fit: deps.TablesFit, clock: deps.Clock, logger: mgr.GetLogger().WithName("tables")}
	awaited.attempt(ctx)
	if err := errors.Join(mgr.Add(awaited), mgr.AddReadyzCheck("tables", awaited.Ready)); err != nil {
		return nil, fmt.Errorf("see to the ledger's tables: %w", err)
	}
	if err := addAccounts(mgr, settings, deps); err != nil {
		return nil, err
	}
	err = lifecycle.SetupWithManager(ctx, mgr, lifecycle.Options{
		Ledger: deps.Ledger, Holder: deps.Identity, HoldExpiry: settings.HoldExpiry, Resync: settings.Resync,
		NodeGrace: settings.NodeGrace, Clock: deps.Clock, Registry: deps.Registry,
	})
	if err != nil {
		return nil, err
	}
	if err := gangs.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	if err := addAuditor(mgr, settings, deps); err != nil {
		return nil, err
	}
	if err := addUpkeep(mgr, settings, deps); err != nil {
		return nil, err
	}
	if err := addIntake(mgr, settings, deps); err != nil {
		return nil, err
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// cacheOptions keep what is watched small: of pods, Jobs and nodes nothing is kept that no decision reads.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}},
			&corev1.Pod{}:           {Transform: slimPod},
			&batchv1.Job{}:          {Transform: slimJob},
			&corev1.Node{}:          {Transform: slimNode},
		},
	}
}

// slimPod drops what takes most room. Finalizers are patched with a resource version and only their own difference, so
// what is missing here is never written back.
func slimPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
		pod.Spec.Volumes = nil
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				slimContainer(&containers[i])
			}
		}
	}
	return object, nil
}

func slimJob(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		job.ManagedFields = nil
		job.Spec.Template.Spec.Volumes = nil
		for _, containers := range [][]corev1.Container{job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers} {
			for i := range containers {
				slimContainer(&containers[i])
			}
		}
	}
	return object, nil
}

func slimContainer(container *corev1.Container) {
	container.Command, container.Args, container.Env, container.EnvFrom, container.VolumeMounts = nil, nil, nil, nil, nil
}

func slimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
	}
	return object, nil
}

func addAccounts(mgr manager.Manager, settings Settings, deps Dependencies) error {
	recorder := mgr.GetEventRecorder("credit-controller")
	projector := accounts.NewProjector(mgr.GetClient(), recorder, deps.Ledger, deps.Clock, mgr.GetLogger().WithName("balances"), deps.Registry)
	sweeper := accounts.NewSweeper(deps.Ledger, deps.Clock, mgr.GetLogger().WithName("due"))
	for _, kind := range accounts.PostingKinds {
		posting := &accounts.PostingReconciler{
			Kind: kind, Client: mgr.GetClient(), Ledger: deps.Ledger, Recorder: recorder, Sweeper: sweeper, Clock: deps.Clock,
		}
		if err := posting.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return errors.Join(
		mgr.Add(projector),
		mgr.Add(sweeper),
		(&accounts.AccountReconciler{
			Client: mgr.GetClient(), Ledger: deps.Ledger, Projector: projector, Sweeper: sweeper, Recorder: recorder, Resync: settings.Resync, Clock: deps.Clock,
		}).SetupWithManager(mgr),
		(&accounts.ClassReconciler{Client: mgr.GetClient(), Ledger: deps.Ledger, Resync: settings.Resync, Clock: deps.Clock}).SetupWithManager(mgr),
	)
}

func addAuditor(mgr manager.Manager, settings Settings, deps Dependencies) error {
	seed := uint64(deps.Clock.Now().UnixNano())
	return mgr.Add(auditor.New(auditor.Options{
		Ledger: deps.Ledger, Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("credit-controller"),
		SealInterval: settings.SealInterval, AuditInterval: settings.AuditInterval,
		CompareInterval: settings.CompareInterval, SettleTime: settings.CompareSettle,
		Clock: deps.Clock, Random: rand.New(rand.NewPCG(seed, 0)), Logger: mgr.GetLogger().WithName("auditor"), Registry: deps.Registry,
	}))
}

func addUpkeep(mgr manager.Manager, settings Settings, deps Dependencies) error {
	return mgr.Add(upkeep.New(upkeep.Options{
		Ledger: deps.Ledger, CompactAfter: settings.CompactAfter, Remember: settings.Remember, RememberGPUs: settings.RememberGPUs,
		Interval: settings.UpkeepInterval, Clock: deps.Clock, Logger: mgr.GetLogger().WithName("upkeep"), Registry: deps.Registry,
	}))
}

// addIntake adds the intake and whatever keeps its certificate.
func addIntake(mgr manager.Manager, settings Settings, deps Dependencies) error {
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	certificate, ready, keeper, err := intakeCertificate(mgr, settings, deps, direct)
	if err != nil {
		return err
	}
	server := intake.New(intake.Options{
		Address: settings.IntakeAddress, Certificate: certificate, Ledger: deps.Ledger,
		Reviewer:  intake.APIServerReviewer{Client: direct},
		AgentUser: "system:serviceaccount:" + settings.Namespace + ":" + settings.AgentAccount,
		Clock:     deps.Clock, Metrics: intake.NewMetrics(deps.Registry), Logger: mgr.GetLogger().WithName("intake"),
	})
	return errors.Join(mgr.Add(keeper), mgr.Add(server), mgr.AddReadyzCheck("intake", ready))
}

func intakeCertificate(mgr manager.Manager, settings Settings, deps Dependencies, direct client.Client) (
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), ready healthz.Checker, keeper manager.Runnable, err error,
) {
	if settings.IntakeCertDir != "" {
		watcher, err := certwatcher.New(settings.IntakeCertDir+"/tls.crt", settings.IntakeCertDir+"/tls.key")
		if err != nil {
			return nil, nil, nil, fmt.Errorf("read the intake's certificate: %w", err)
		}
		return watcher.GetCertificate, healthz.Ping, watcher, nil
	}
	own := servingcert.New(servingcert.Options{
		Client: direct, Namespace: settings.Namespace, SecretName: intakeSecretName, ConfigMapName: intakeAuthorityMap,
		Hosts: intakeHosts(settings), Clock: deps.Clock, Logger: mgr.GetLogger().WithName("servingcert"),
	})
	return own.Certificate, func(*http.Request) error { return own.Ready() }, own, nil
}

// intakeHosts are the Service's names, and this machine's for agents that run beside the controller.
func intakeHosts(settings Settings) []string {
	service := settings.IntakeService + "." + settings.Namespace + ".svc"
	return []string{service, service + ".cluster.local", "localhost", "127.0.0.1", "::1"}
}
