package clustertest

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
)

// shared holds what this test binary started for all its tests.
var shared struct {
	sync.Mutex
	mainRuns bool
	closers  []func() error // run in reverse order at the end
}

// Main runs the tests of a package and then ends everything they shared. Call it from TestMain.
func Main(m *testing.M) {
	shared.Lock()
	shared.mainRuns = true
	shared.Unlock()

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		closeShared()
		os.Exit(130)
	}()

	code := m.Run()
	closeShared()
	os.Exit(code)
}

func closeShared() {
	shared.Lock()
	defer shared.Unlock()
	for len(shared.closers) > 0 {
		last := len(shared.closers) - 1
		if err := shared.closers[last](); err != nil {
			fmt.Fprintln(os.Stderr, "clean up after the tests:", err)
		}
		shared.closers = shared.closers[:last]
	}
}

// atEnd runs close when all tests of the package are over.
func atEnd(t testing.TB, close func() error) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.mainRuns {
		t.Fatal("this package uses clustertest without its Main, so nothing would be cleaned up; " +
			"add: func TestMain(m *testing.M) { clustertest.Main(m) }")
	}
	shared.closers = append(shared.closers, close)
}
