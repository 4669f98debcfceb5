package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	tempPrefix = "gpubank-run-"
	tempLock   = "in-use"
)

// tempLocks keeps the lock files of this program's temporary folders, so that they are not closed, and so unlocked, by
// the garbage collector.
var tempLocks sync.Map // path → *os.File

// TempDir makes a folder for one run, with a short path because Unix sockets are put into it. While this program lives
// the folder is locked; what earlier programs left behind because they were killed is removed on the way.
// Remove it with RemoveTempDir.
func TempDir() (string, error) {
	removeStaleTempDirs()
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return "", fmt.Errorf("make a temporary folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, tempLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return "", fmt.Errorf("lock the temporary folder %s: %w", dir, err)
	}
	tempLocks.Store(dir, lock)
	return dir, nil
}

// RemoveTempDir removes a folder made by TempDir.
func RemoveTempDir(dir string) error {
	err := os.RemoveAll(dir)
	if lock, ok := tempLocks.LoadAndDelete(dir); ok {
		err = errors.Join(err, lock.(*os.File).Close())
	}
	return err
}

// removeStaleTempDirs removes the folders of programs that have ended. A folder that is younger than a minute may still
// be on its way to its lock.
func removeStaleTempDirs() {
	candidates, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range candidates {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, tempLock), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(dir)
			continue
		}
		if err != nil {
			continue // another user's
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		lock.Close()
	}
}
