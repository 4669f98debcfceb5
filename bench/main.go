// Command bench measures gpubank against what one would use without it, and writes bench/results/<name>.json: all
// benchmarks, or those named as arguments.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/bench/admission"
	"github.com/gpubank/gpubank/bench/fairness"
	"github.com/gpubank/gpubank/bench/growth"
	"github.com/gpubank/gpubank/bench/ledger"
	"github.com/gpubank/gpubank/bench/placement"
	"github.com/gpubank/gpubank/bench/preemption"
	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// benchmark measures one thing, in the checkout at root.
type benchmark struct {
	name string
	run  func(ctx context.Context, root string, out io.Writer) error
	// named: it runs only where it is asked for by name, being no figure that is published.
	named bool
}

var benchmarks = []benchmark{
	{name: "throughput", run: throughput},
	{name: "ledger", run: func(ctx context.Context, root string, out io.Writer) error {
		return ledger.Run(ctx, filepath.Join(root, "bench", "results"), ledger.Options{
			Progress: func(line string) { fmt.Fprintln(out, "  "+line) },
		})
	}},
	{name: "growth", run: func(ctx context.Context, root string, out io.Writer) error {
		options, err := growth.FromEnvironment(os.LookupEnv)
		if err != nil {
			return err
		}
		options.Progress = func(line string) { fmt.Fprintln(out, "  "+line) }
		return growth.Run(ctx, filepath.Join(root, "bench", "results"), options)
	}},
	{name: "ledger-costs", named: true, run: func(ctx context.Context, root string, out io.Writer) error {
		return ledger.Costs(ctx, filepath.Join(root, "bench", "results"), ledger.CostOptions{
			Progress: func(line string) { fmt.Fprintln(out, "  "+line) },
		})
	}},
	{name: "preemption", run: func(ctx context.Context, root string, out io.Writer) error {
		return preemption.Run(ctx, filepath.Join(root, "bench", "results"), preemption.Options{
			OpenB:    os.Getenv("OPENB_DIR"),
			Progress: func(line string) { fmt.Fprintln(out, "  "+line) },
		})
	}},
	{name: "admission", run: func(ctx context.Context, root string, out io.Writer) error {
		return admission.Run(ctx, filepath.Join(root, "bench", "results"), admission.Options{
			Progress: func(line string) { fmt.Fprintln(out, "  "+line) },
		})
	}},
	{name: "fairness", run: func(ctx context.Context, root string, out io.Writer) error {
		return fairness.Run(ctx, filepath.Join(root, "bench", "results"), fairness.Options{
			Progress: func(line string) { fmt.Fprintln(out, "  "+line) },
		})
	}},
	// The traces are not in the repository: OPENB_DIR names their folder, OPENB_TRACES chooses some of them.
	{name: "placement", run: func(ctx context.Context, root string, out io.Writer) error {
		return placement.Run(ctx, filepath.Join(root, "bench", "results"), placement.Options{
			Folder: os.Getenv("OPENB_DIR"), Traces: os.Getenv("OPENB_TRACES"),
			Progress: func(line string) { fmt.Fprintln(out, "  "+line) },
		})
	}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string, out io.Writer) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	root, err := binaries.ModuleRoot()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "bench", "results"), 0o755); err != nil {
		return fmt.Errorf("make the folder of the results: %w", err)
	}
	var all error
	for _, each := range chosen {
		started := time.Now()
		fmt.Fprintf(out, "benchmark %s\n", each.name)
		if err := each.run(ctx, root, out); err != nil {
			all = errors.Join(all, fmt.Errorf("benchmark %s: %w", each.name, err))
			continue
		}
		result := filepath.Join("bench", "results", each.name+".json")
		content, err := os.ReadFile(filepath.Join(root, result))
		if err != nil {
			all = errors.Join(all, fmt.Errorf("benchmark %s wrote nothing: %w", each.name, err))
			continue
		}
		fmt.Fprintf(out, "%s, after %s:\n%s\n", result, time.Since(started).Round(time.Second), content)
	}
	return all
}

// choose returns the named benchmarks, or all that are published if none is named.
func choose(names []string) ([]benchmark, error) {
	var chosen []benchmark
	if len(names) == 0 {
		for _, each := range benchmarks {
			if !each.named {
				chosen = append(chosen, each)
			}
		}
	}
	for _, name := range names {
		found := false
		for _, each := range benchmarks {
			if each.name == name {
				chosen, found = append(chosen, each), true
			}
		}
		if !found {
			var known []string
			for _, each := range benchmarks {
				known = append(known, each.name)
			}
			return nil, fmt.Errorf("there is no benchmark %q; there are: %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// throughput runs under go test, because the harness of Kubernetes that it stands on is a Go benchmark.
func throughput(ctx context.Context, root string, out io.Writer) error {
	command := exec.CommandContext(ctx, "go", "test", "./bench/throughput", "-run", "^$", "-bench", ".", "-benchtime", "1x", "-timeout", "2h", "-v")
	command.Dir = root
	command.Stdout, command.Stderr = out, os.Stderr
	// The harness starts an API server within the test; on Ctrl-C both get to clean up.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = 30 * time.Second
	return command.Run()
}
