// Command scheduler is kube-scheduler with gpubank's plugins, run beside a cluster's own scheduler for the pods whose
// schedulerName is gpubank-scheduler. It is configured by an ordinary KubeSchedulerConfiguration (--config); see
// manifests/scheduler/scheduler-config.yaml.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption"
	"github.com/gpubank/gpubank/pkg/plugins/creditreservation"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue"
	"github.com/gpubank/gpubank/pkg/plugins/gang"
	"github.com/gpubank/gpubank/pkg/plugins/gpubestfit"
)

func main() {
	start := &startup{}
	source, gates := &catalog.Source{}, &creditreservation.Gates{}
	gangs := &gang.Source{}
	exit := func(reason string) {
		klog.ErrorS(nil, reason)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	desk := creditreservation.NewDesk(creditreservation.Deps{
		Catalog: source, Gates: gates, Exit: exit,
		Open: func(ctx context.Context) (creditreservation.Ledger, error) { return start.openLedger(ctx) },
	})
	command := app.NewSchedulerCommand(
		start.report,
		app.WithPlugin(creditreservation.Name, desk.Factory()),
		app.WithPlugin(checkpointpreemption.Name, checkpointpreemption.NewFactory(checkpointpreemption.Deps{
			Catalog: source, Exit: exit, Epoch: desk.Epoch,
			Open: func(ctx context.Context) (checkpointpreemption.Records, error) { return start.openLedger(ctx) },
		})),
		app.WithPlugin(fairqueue.Name, fairqueue.NewFactory(fairqueue.Deps{
			Catalog:  source,
			Open:     func(ctx context.Context) (fairqueue.Ledger, error) { return start.openLedger(ctx) },
			Gates:    []fairqueue.Gate{gates, gangs},
			Groups:   gangs,
			Personal: []string{creditreservation.Name, gang.Name},
		})),
		app.WithPlugin(gang.Name, gang.NewFactory(gangs)),
		app.WithPlugin(gpubestfit.Name, gpubestfit.NewFactory(source, func(ctx context.Context, handle fwk.Handle) (gpubestfit.Gangs, error) {
			return gangs.Get(ctx, handle)
		})),
	)
	start.attach(command)
	os.Exit(cli.Run(command))
}
