package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are taken below the range that the kernel hands out to outgoing connections (from 32768 on Linux), so that a
// part which is stopped finds its port free again; and above the registered services people usually run.
const (
	firstPort = 20000
	lastPort  = 31999
)

// ports keeps the lock files of the ports this program has taken. They stay locked until it ends.
var ports struct {
	sync.Mutex
	held []*os.File
}

// FreePort takes a TCP port of 127.0.0.1 for the rest of this program's life. Other programs that use this package do
// not get it meanwhile, even while nothing listens on it: it is locked by a file that the kernel unlocks when this
// program ends. A program that does not know the lock may still come in between, so whoever listens retries with
// another port.
func FreePort() (int, error) {
	directory := filepath.Join(os.TempDir(), "gpubank-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := os.OpenFile(filepath.Join(directory, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !listenable(port) {
			lock.Close()
			continue
		}
		ports.Lock()
		ports.held = append(ports.held, lock)
		ports.Unlock()
		return port, nil
	}
	return 0, fmt.Errorf("find a free port: none of 1000 tries between %d and %d was free", firstPort, lastPort)
}

func listenable(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
