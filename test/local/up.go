package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// up starts the supervisor and waits until everything runs, telling what the supervisor tells.
func up(ctx context.Context, out io.Writer) error {
	s, err := findState()
	if err != nil {
		return err
	}
	alive, err := s.supervised()
	if err != nil {
		return err
	}
	if alive {
		r, err := s.read()
		if err != nil {
			return err
		}
		if r.Kubeconfig == "" {
			return fmt.Errorf("another `make up` is just starting the cluster; its log is %s", s.path("supervisor.log"))
		}
		fmt.Fprintf(out, "It is already running, since %s.\n", r.Since.Local().Format("15:04:05"))
		return nextSteps(out, r)
	}
	// What a supervisor that was killed left behind; the kernel ended its processes with it.
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove an earlier cluster: %w", err)
	}
	if err := s.make(); err != nil {
		return err
	}
	fmt.Fprintln(out, "Starting a cluster with gpubank in the background:")
	if err := startSupervisor(ctx, s, out); err != nil {
		return err
	}
	r, err := s.read()
	if err != nil {
		return err
	}
	return nextSteps(out, r)
}

// startSupervisor runs this program again in a session of its own, and returns once it has said that all is up.
func startSupervisor(ctx context.Context, s state, out io.Writer) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	log, err := os.OpenFile(s.path("supervisor.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	defer log.Close()
	progress, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	defer progress.Close()
	command := exec.Command(executable, supervise)
	command.Dir = filepath.Dir(s.dir)
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{tell}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	tell.Close()
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	ready := make(chan bool, 1)
	go func() { ready <- relay(progress, out) }()
	select {
	case isReady := <-ready:
		if isReady {
			return nil
		}
		<-ended
		return fmt.Errorf("the cluster did not start; the log is %s:\n%s", log.Name(), lastLines(log.Name(), 20))
	case <-ctx.Done():
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
		return errors.Join(ctx.Err(), os.RemoveAll(s.dir))
	}
}

// relay copies what the supervisor tells until it says that all is up.
func relay(progress io.Reader, out io.Writer) (ready bool) {
	reader := bufio.NewReader(progress)
	for {
		character, err := reader.ReadByte()
		if err != nil {
			return false
		}
		if character == readyMark {
			return true
		}
		// Byte by byte: a step's line is shown before it is complete.
		_, _ = out.Write([]byte{character})
	}
}

func nextSteps(out io.Writer, r running) error {
	working, err := os.Getwd()
	if err != nil {
		return err
	}
	kubeconfig := r.Kubeconfig
	if relative, err := filepath.Rel(working, kubeconfig); err == nil && !strings.HasPrefix(relative, "..") {
		kubeconfig = relative
	}
	_, err = fmt.Fprintf(out, `
  export KUBECONFIG=$PWD/%[1]s PATH=%[2]s:$PATH
  kubectl get creditaccounts,gpuclasses            # team-a has 10,000 credits
  kubectl create -f test/local/examples/train.yaml # 4 GPUs for at most a minute
  kubectl get creditaccounts -w                    # reserved, then charged, then given back
  kubectl credit statement team-a --database-url-file %[3]s
  kubectl create -f test/local/examples/too-expensive.yaml

Logs are in %[4]s. Stop and remove it with: make down
`, kubeconfig, strings.Join(r.Bin, ":"), filepath.Join(filepath.Dir(kubeconfig), "control-plane", "database-url-"+cluster.ReaderRole),
		filepath.Join(filepath.Dir(kubeconfig), "control-plane"))
	return err
}

// down ends the supervisor, and with it everything, and removes the folder. It does as much whatever is left.
func down(ctx context.Context, out io.Writer) error {
	s, err := findState()
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(out, "Nothing is running.")
		return nil
	}
	alive, err := s.supervised()
	if err != nil {
		return err
	}
	if alive {
		if err := s.endSupervisor(ctx, out); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove %s: %w", s.dir, err)
	}
	fmt.Fprintln(out, "The cluster is stopped and removed.")
	return nil
}

// controlPlanePrograms is where kubectl is.
func controlPlanePrograms() (string, error) { return binaries.FindControlPlane("kubectl") }
