package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentFolder makes this test binary play a parent: it starts a child with a grandchild, prints their ids, and waits
// to be killed.
const parentFolder = "GPUBANK_TEST_PARENT_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(parentFolder); folder != "" {
		playParent(folder)
	}
	os.Exit(m.Run())
}

func playParent(folder string) {
	child := NewProcess(Command{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}, LogFile: filepath.Join(folder, "log")})
	if err := child.Launch(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(child.PID())
	select {}
}

// Nothing survives a parent that is killed with SIGKILL, which can clean up nothing itself.
func TestChildrenDieWithTheirParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentFolder+"="+t.TempDir())
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says: %s", line)
	}
	if !alive(child) {
		t.Fatalf("process %d does not run", child)
	}
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually(t, "the child ends", func() bool { return !alive(child) })
}

// Kill takes along what a child started, even in a session of its own.
func TestKillTakesDescendants(t *testing.T) {
	process := NewProcess(Command{
		Name: "shell", Path: "/bin/sh", LogFile: filepath.Join(t.TempDir(), "log"),
		Args: []string{"-c", "setsid sleep 600 & sleep 600"},
	})
	if err := process.Launch(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two children run", func() bool { return len(descendants(process.PID())) == 2 })
	below := descendants(process.PID())
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, child := range below {
		if alive(child) {
			t.Errorf("process %d outlives the kill", child)
		}
	}
	if process.Running() {
		t.Error("the shell still runs")
	}
}

// A program that fails at its start is reported with the end of its log.
func TestStartShowsTheLogOfAFailure(t *testing.T) {
	process := NewProcess(Command{
		Name: "shell", Path: "/bin/sh", LogFile: filepath.Join(t.TempDir(), "log"),
		Args:  []string{"-c", "echo no such flag; exit 3"},
		Ready: func(context.Context) error { return fmt.Errorf("not yet") },
	})
	err := process.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the error does not say why: %v", err)
	}
}

// A port is given to one caller only.
func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given out twice", port)
		}
		seen[port] = true
	}
}

// eventually asks until it is so, for at most 10 seconds.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}
