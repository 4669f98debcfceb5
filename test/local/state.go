package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// state is what `up` leaves for the next `up` and for `down`: a folder of the checkout that git ignores.
type state struct{ dir string }

// running describes a cluster that is up.
type running struct {
	PID        int       `json:"pid"` // the supervisor's
	Kubeconfig string    `json:"kubeconfig"`
	Since      time.Time `json:"since"`
	// Bin are the folders with kubectl and kubectl-credit.
	Bin []string `json:"bin"`
}

func findState() (state, error) {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return state{}, err
	}
	return state{filepath.Join(root, ".local")}, nil
}

func (s state) path(name string) string { return filepath.Join(s.dir, name) }

// make creates the folder. Others may pass through it: PostgreSQL runs as another user when this one is root.
func (s state) make() error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the local cluster: %w", err)
	}
	return nil
}

// lock is held by the supervisor as long as it lives, so that who is alive never depends on a file being removed.
// It is nil, without an error, when another process holds it.
func (s state) lock() (*os.File, error) {
	file, err := os.OpenFile(s.path("supervisor.lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.dir, err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", s.dir, err)
}

// supervised reports whether a supervisor is alive.
func (s state) supervised() (bool, error) {
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	lock, err := s.lock()
	if err != nil || lock == nil {
		return lock == nil && err == nil, err
	}
	return false, lock.Close()
}

// read returns what the supervisor wrote; the zero value, without an error, if it wrote nothing.
func (s state) read() (running, error) {
	content, err := os.ReadFile(s.path("running.json"))
	if errors.Is(err, os.ErrNotExist) {
		return running{}, nil
	}
	var r running
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil {
		return running{}, fmt.Errorf("read what runs in %s: %w", s.dir, err)
	}
	return r, nil
}

func (s state) write(r running) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(s.path("running.json.new"), content, 0o600)
	}
	if err == nil {
		err = os.Rename(s.path("running.json.new"), s.path("running.json"))
	}
	if err != nil {
		return fmt.Errorf("write what runs in %s: %w", s.dir, err)
	}
	return nil
}
