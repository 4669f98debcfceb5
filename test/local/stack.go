package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

const (
	nodes       = 2
	gpusPerNode = 8
)

// stack is everything that runs: PostgreSQL, the control plane, gpubank.
type stack struct {
	postgres     *cluster.Postgres
	controlPlane *cluster.ControlPlane
	gpubank      *parts.Gpubank
}

// startStack starts everything and says how long each step took. dir keeps the data; temporary folders if empty.
func startStack(ctx context.Context, dir string, out io.Writer) (*stack, error) {
	s := &stack{}
	if err := s.start(ctx, dir, &narrator{out: out}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *stack) start(ctx context.Context, dir string, say *narrator) error {
	below := func(name string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"gpubank's programs, built (minutes the first time)", func() error {
			return parts.Build(ctx, say.line)
		}},
		{"PostgreSQL, a private cluster of its own", func() (err error) {
			s.postgres, err = cluster.StartPostgres(ctx, cluster.PostgresOptions{Dir: below("postgres"), Progress: say.line})
			return err
		}},
		{"etcd, kube-apiserver, kube-controller-manager", func() (err error) {
			s.controlPlane, err = cluster.StartControlPlane(ctx, cluster.ControlPlaneOptions{Dir: below("control-plane")})
			return err
		}},
		{"gpubank's manifests, applied", func() (err error) {
			s.gpubank, err = parts.New(ctx, parts.Options{
				ControlPlane: s.controlPlane, Postgres: s.postgres, Nodes: nodes, GPUs: gpusPerNode,
				NodeLabels: map[string]string{"nvidia.com/gpu.present": "true"}, Progress: say.line,
			})
			return err
		}},
		{fmt.Sprintf("gpubank, %d simulated nodes of %d GPUs, a node agent on each", nodes, gpusPerNode), func() error {
			return s.gpubank.Start(ctx)
		}},
	}
	for _, step := range steps {
		if err := say.step(step.what, step.do); err != nil {
			return err
		}
	}
	return nil
}

// processes lists everything that runs, in the order in which it was started.
func (s *stack) processes() []*cluster.Process {
	var all []*cluster.Process
	if s.postgres != nil {
		all = append(all, s.postgres.Process)
	}
	if s.controlPlane != nil {
		all = append(all, s.controlPlane.Processes()...)
	}
	if s.gpubank != nil {
		all = append(all, s.gpubank.Processes()...)
	}
	return all
}

// Close ends everything, in the opposite order.
func (s *stack) Close() error {
	var all error
	if s.gpubank != nil {
		all = errors.Join(all, s.gpubank.Close())
	}
	if s.controlPlane != nil {
		all = errors.Join(all, s.controlPlane.Close())
	}
	if s.postgres != nil {
		all = errors.Join(all, s.postgres.Close())
	}
	return all
}

// narrator says what is going on: a line per step with its time, and within it whatever a step reports.
type narrator struct {
	out io.Writer
	mid bool // a step's line is open
}

func (n *narrator) step(what string, do func() error) error {
	fmt.Fprintf(n.out, "  %-64s", what)
	n.mid = true
	started := time.Now()
	err := do()
	result := fmt.Sprintf("%5.1f s", time.Since(started).Seconds())
	if err != nil {
		result = "failed"
	}
	if !n.mid {
		result = fmt.Sprintf("  %-64s%s", what, result)
	}
	fmt.Fprintln(n.out, result)
	n.mid = false
	return err
}

func (n *narrator) line(line string) {
	if n.mid {
		fmt.Fprintln(n.out)
		n.mid = false
	}
	fmt.Fprintln(n.out, "    "+line)
}
