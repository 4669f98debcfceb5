// Command nvml-exporter is gpubank's node agent: it meters which pod holds which GPU of its node; see package meter.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/pkg/meter"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

func main() {
	var options meter.Options
	klog.InitFlags(nil)
	options.AddFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := meter.Run(ctx, options)
	if errors.Is(err, intakeapi.ErrStaleEpoch) {
		// Only a new process may register again: this one might be the older of two.
		klog.ErrorS(err, "Another agent has taken over this node; this one ends")
	} else if err != nil {
		klog.ErrorS(err, "The node agent ends")
	}
	klog.Flush()
	if err != nil {
		os.Exit(1)
	}
}
