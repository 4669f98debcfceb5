package clustertest

import (
	"context"
	"testing"
	"time"

	"github.com/gpubank/gpubank/test/cluster"
)

// loggedLines is how much of each part's log a failed test shows: enough for a panic with its first stack.
const loggedLines = 40

// showLogs prints the end of the logs of parts when the test has failed.
func showLogs(t testing.TB, parts ...*cluster.Process) {
	if !t.Failed() {
		return
	}
	for _, part := range parts {
		t.Logf("the end of %s (%s):\n%s", part.Name(), part.LogFile(), part.LogTail(loggedLines))
	}
}

// cleanupContext bounds what runs after a test, whose own context has ended by then.
func cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}
