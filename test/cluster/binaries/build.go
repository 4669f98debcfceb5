package binaries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// progressEvery is how often a running build says that it still runs.
const progressEvery = 15 * time.Second

// goBuild runs `go build arguments…` in a module's folder, without cgo, and says every 15 s how long it has taken.
func goBuild(ctx context.Context, folder, what string, progress func(string), arguments ...string) error {
	command := exec.CommandContext(ctx, "go", append([]string{"build"}, arguments...)...)
	command.Dir = folder
	// GOFLAGS and GOWORK of the person's own would change what is built, and rebuild it under another cache key.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The compilers are children of go; they end with it only when the whole group is told.
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output

	started := time.Now()
	if err := command.Start(); err != nil {
		return fmt.Errorf("build %s: %w; is Go installed?", what, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				return fmt.Errorf("build %s: %w", what, ctx.Err())
			}
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", what, err, output.Bytes())
			}
			return nil
		case <-tick.C:
			progress(fmt.Sprintf("  … %s, %s so far", what, time.Since(started).Round(time.Second)))
		}
	}
}

// lock takes the build lock of a folder, which the kernel gives back when this program ends.
func lock(ctx context.Context, dir string, progress func(string)) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock %s for building: %w", dir, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s for building: %w", dir, err)
	}
	started := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var said time.Time
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		if time.Since(said) >= progressEvery {
			said = time.Now()
			progress(fmt.Sprintf("waiting for another build into %s (%s so far)", dir, time.Since(started).Round(time.Second)))
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build into %s: %w", dir, ctx.Err())
		case <-tick.C:
		}
	}
	return func() { file.Close() }, nil
}
