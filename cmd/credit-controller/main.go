// Command credit-controller keeps the ledger and the cluster of one mind: accounts, grants and prices go into the
// ledger, pods and Jobs that end are settled, and node agents' measurements are taken in.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gpubank/gpubank/pkg/controller"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

func main() {
	var settings controller.Settings
	settings.Bind(flag.CommandLine)
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())

	if err := run(ctrl.SetupSignalHandler(), settings); err != nil {
		klog.ErrorS(err, "Credit controller ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, settings controller.Settings) error {
	if err := settings.Validate(); err != nil {
		return err
	}
	databaseURL, err := os.ReadFile(settings.DatabaseURLFile)
	if err != nil {
		return fmt.Errorf("read the ledger's address: %w", err)
	}
	url := strings.TrimSpace(string(databaseURL))
	store, err := postgres.Open(ctx, url, postgres.Options{Logger: klog.Background().WithName("ledger")})
	if err != nil {
		return err
	}
	defer store.Close()
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.QPS = -1 // the API server has its own fairness; a limit here would only delay settlement
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this process: %w", err)
	}
	dependencies := controller.Dependencies{
		Config: config, Ledger: store, Registry: metrics.Registry, Clock: clock.RealClock{},
		Identity: hostname + "_" + string(uuid.NewUUID()),
	}
	if settings.Migrate {
		dependencies.Migrate = func(ctx context.Context) error { return postgres.Migrate(ctx, url) }
	}
	mgr, err := controller.New(ctx, settings, dependencies)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
