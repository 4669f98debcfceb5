// Command controlplane builds the control plane's programs that are missing: all of them, or those named as arguments.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpubank/gpubank/test/cluster/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	names := os.Args[1:]
	if len(names) == 0 {
		names = binaries.All()
	}
	dir, err := binaries.EnsureControlPlane(ctx, func(line string) { fmt.Println(line) }, names...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("control plane:", dir)
}
