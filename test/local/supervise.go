package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/local/examples"
)

// supervise is the argument that `up` gives to the copy of this program that stays.
const supervise = "supervise"

// progressPipe is the file descriptor on which `up` listens; readyMark is what it waits for.
const (
	progressPipe = 3
	readyMark    = 0
)

// restartDelay keeps a part that cannot start from spinning; a part that ends on purpose, because another has taken its
// place, comes back as a Deployment's would.
const restartDelay = 2 * time.Second

// superviseUntilStopped holds everything until it is told to end.
func superviseUntilStopped(ctx context.Context) error {
	s, err := findState()
	if err != nil {
		return err
	}
	if err := s.make(); err != nil {
		return err
	}
	lock, err := s.lock()
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("%s belongs to another supervisor", s.dir)
	}
	defer lock.Close()
	if err := os.WriteFile(s.path("supervisor.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return fmt.Errorf("write the supervisor's process id: %w", err)
	}
	// What the supervisor starts must not hold the pipe open.
	syscall.CloseOnExec(progressPipe)
	tell := os.NewFile(progressPipe, "progress")
	running, err := startStack(ctx, s.dir, tell)
	if err != nil {
		return err
	}
	err = announce(ctx, s, running, tell)
	tell.Close()
	if err == nil {
		keepRunning(ctx, running.processes())
	}
	return errors.Join(err, running.Close())
}

// announce fills the cluster with the examples' team and tells `up` that all is ready.
func announce(ctx context.Context, s state, stack *stack, tell io.Writer) error {
	client, err := newAPI(stack.controlPlane.RESTConfig())
	if err != nil {
		return err
	}
	if err := client.create(ctx, examples.Team); err != nil {
		return fmt.Errorf("create the example's team: %w", err)
	}
	if err := until(ctx, "the account has its credits", func(ctx context.Context) (bool, error) {
		amounts, err := client.amounts(ctx)
		return amounts.available > 0, err
	}); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(stack.controlPlane.Kubeconfig)
	if err == nil {
		err = os.WriteFile(s.path("kubeconfig"), kubeconfig, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	kubectl, err := controlPlanePrograms()
	if err != nil {
		return err
	}
	if err := s.write(running{PID: os.Getpid(), Kubeconfig: s.path("kubeconfig"), Since: time.Now(), Bin: []string{stack.gpubank.Bin, kubectl}}); err != nil {
		return err
	}
	_, err = tell.Write([]byte{readyMark})
	return err
}

// keepRunning starts again what ends, until ctx does.
func keepRunning(ctx context.Context, processes []*cluster.Process) {
	ended := make(chan struct{})
	for _, process := range processes {
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				select {
				case <-ctx.Done():
					return
				case <-process.Exited():
				}
				fmt.Printf("%s %s ended; it is started again\n", time.Now().Format(time.RFC3339), process.Name())
				select {
				case <-ctx.Done():
					return
				case <-time.After(restartDelay):
				}
				if err := process.Start(ctx); err != nil {
					fmt.Printf("%s %v\n", time.Now().Format(time.RFC3339), err)
				}
			}
		}()
	}
	for range processes {
		<-ended
	}
}

// supervisorPatience is how long an orderly end may take before the supervisor is killed, which ends everything too.
const supervisorPatience = 60 * time.Second

func (s state) endSupervisor(ctx context.Context, out io.Writer) error {
	content, err := os.ReadFile(s.path("supervisor.pid"))
	if err != nil {
		return fmt.Errorf("find the supervisor: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("find the supervisor: %s is not a process id", content)
	}
	fmt.Fprintln(out, "Stopping …")
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the supervisor, process %d: %w", pid, err)
	}
	deadline := time.NewTimer(supervisorPatience)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		alive, err := s.supervised()
		if err != nil || !alive {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		case <-tick.C:
		}
	}
}

// lastLines is the end of a log.
func lastLines(path string, count int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
