//go:build failpoints

package failpoint

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this binary was built with failpoints.
const Enabled = true

// pausePoll is how often a paused caller looks whether its line is gone; short beside any test's own waits.
const pausePoll = 10 * time.Millisecond

var (
	hitsMu sync.Mutex
	hits   = map[string]int{}
)

// Hit does what the failpoint file says about name. See the package documentation.
func Hit(name string) {
	path := os.Getenv("GPUBANK_FAILPOINTS")
	if path == "" {
		return
	}
	hitsMu.Lock()
	hits[name]++
	hit := hits[name]
	hitsMu.Unlock()
	for {
		switch armed(path)[name].at(hit) {
		case kill:
			// SIGKILL, not an exit: no deferred function, flush or lease release may run.
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case pause:
			// A test that wants to act while the caller waits can see that it does.
			_ = os.WriteFile(path+"."+name, nil, 0o600)
			time.Sleep(pausePoll)
		case none:
			return
		}
	}
}

func armed(path string) map[string]point {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	points, err := parse(string(text))
	if err != nil {
		panic("failpoint: " + path + ": " + err.Error())
	}
	return points
}
