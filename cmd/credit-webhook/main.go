// Command credit-webhook sets credits aside when GPU workloads are created, and refuses what could not be paid. Any
// number of replicas serve at the same time; none holds state.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/pkg/servingcert"
	"github.com/gpubank/gpubank/pkg/webhook"
)

type options struct {
	databaseURLFile                    string
	port                               int
	certDir                            string
	namespace, secretName, serviceName string
	healthProbeAddress, metricsAddress string
	profilingAddress                   string
}

func main() {
	var o options
	flag.StringVar(&o.databaseURLFile, "database-url-file", "", "File with the PostgreSQL URL of the ledger (a mounted Secret); read again for each new connection.")
	flag.IntVar(&o.port, "webhook-port", 9443, "Port to serve admission requests on.")
	flag.StringVar(&o.certDir, "cert-dir", "", "Folder with tls.crt and tls.key, kept by a certificate manager, who also writes the configurations' caBundle. Empty: make, share and rotate them here.")
	flag.StringVar(&o.namespace, "namespace", v1alpha1.SystemNamespace, "Namespace of the Secret and the Service.")
	flag.StringVar(&o.secretName, "cert-secret", "credit-webhook-serving", "Secret in which replicas share the serving certificate. Unused with --cert-dir.")
	flag.StringVar(&o.serviceName, "service", "credit-webhook", "Service by which the API server calls this webhook: the certificate's name. Unused with --cert-dir.")
	flag.StringVar(&o.healthProbeAddress, "health-probe-address", ":8081", "Address of /healthz and /readyz.")
	flag.StringVar(&o.metricsAddress, "metrics-address", ":8080", "Address of /metrics; 0 for none.")
	flag.StringVar(&o.profilingAddress, "profiling-address", "", "Address of /debug/pprof, such as localhost:6060; empty for none.")
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())

	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		klog.ErrorS(err, "Credit webhook ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, o options) error {
	if o.databaseURLFile == "" {
		return errors.New("--database-url-file is missing: name the file that holds the ledger's PostgreSQL URL")
	}
	scheme, err := webhook.NewScheme()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	store, err := postgres.OpenFile(ctx, o.databaseURLFile, postgres.Options{Logger: klog.Background().WithName("ledger")})
	if err != nil {
		return err
	}
	defer store.Close()

	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	injector := webhook.NewAuthorityInjector(direct)
	keeper := servingcert.New(servingcert.Options{
		Client: direct, Namespace: o.namespace, SecretName: o.secretName, Publish: injector.Publish,
		Hosts: []string{o.serviceName + "." + o.namespace + ".svc"},
		Clock: clock.RealClock{}, Logger: klog.Background().WithName("servingcert"),
	})
	rotates := o.certDir == ""

	serving := ctrlwebhook.Options{Port: o.port, CertDir: o.certDir}
	caches := webhook.CacheOptions()
	if rotates {
		serving.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = keeper.Certificate }}
		caches.ByObject = webhook.ConfigurationCache()
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme, Cache: caches,
		WebhookServer:          ctrlwebhook.NewServer(serving),
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.healthProbeAddress,
		PprofBindAddress:       o.profilingAddress,
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	cachesReady, err := webhook.Register(ctx, mgr, webhook.Options{
		Ledger: store, Metrics: webhook.NewMetrics(metrics.Registry), Clock: clock.RealClock{},
		Logger: klog.Background().WithName("webhook"),
	})
	if err != nil {
		return err
	}
	// A database that is away is part of neither probe: without it the webhook still answers, with the reason. One whose tables are
	// older than this program is: the replicas before it can serve, and should go on.
	checks := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", cachesReady),
		mgr.AddReadyzCheck("tables", func(request *http.Request) error { return store.AwaitsMigration(request.Context()) }),
		mgr.AddReadyzCheck("serving", mgr.GetWebhookServer().StartedChecker()),
	)
	if rotates {
		checks = errors.Join(checks, mgr.Add(keeper), injector.Watch(mgr), mgr.AddReadyzCheck("authority", injector.Ready))
	}
	if checks != nil {
		return checks
	}
	return mgr.Start(ctx)
}
