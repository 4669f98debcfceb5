// Command credit-controller keeps the ledger and the cluster of one mind: accounts, grants and prices go into the
// ledger, pods and Jobs that end are settled, and node agents' measurements are taken in; where Kueue is installed, its
// admission checks are answered. `credit-controller migrate` makes the ledger's tables and ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gpubank/gpubank/pkg/controller"
	"github.com/gpubank/gpubank/pkg/kueue"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "migrate" {
		end("Migration ends", migrate(ctrl.SetupSignalHandler(), os.Args[2:]))
		return
	}
	var settings controller.Settings
	settings.Bind(flag.CommandLine)
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())

	end("Credit controller ends", run(ctrl.SetupSignalHandler(), settings))
}

// end reports a failure, if there is one, and exits with it.
func end(message string, err error) {
	if err != nil {
		klog.ErrorS(err, message)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	klog.Flush()
}

func run(ctx context.Context, settings controller.Settings) error {
	if err := settings.Validate(); err != nil {
		return err
	}
	store, err := postgres.OpenFile(ctx, settings.DatabaseURLFile, postgres.Options{Logger: klog.Background().WithName("ledger")})
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
	mgr, err := controller.New(ctx, settings, controller.Dependencies{
		Config: config, Ledger: store, TablesFit: store.Ping, Registry: metrics.Registry, Clock: clock.RealClock{},
		Identity: hostname + "_" + string(uuid.NewUUID()),
	})
	if err != nil {
		return err
	}
	err = kueue.SetupWithManager(mgr, kueue.Options{
		Ledger: store, Clock: clock.RealClock{}, Registry: metrics.Registry,
	})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
