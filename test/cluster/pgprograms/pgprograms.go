// Package pgprograms finds the programs of PostgreSQL and PgBouncer, and installs them where that is possible.
package pgprograms

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// oldest is the oldest major version that is supported.
const oldest = 15

// ErrMissing says that PostgreSQL's programs are not installed. Its message carries the command to run.
var ErrMissing = errors.New("PostgreSQL 15 or newer is not installed (looked on PATH, in /usr/lib/postgresql and asked pg_config); " +
	"install it with: sudo apt-get install -y postgresql   (or your system's package of the server), or set GPUBANK_POSTGRES_BIN to the folder with initdb and postgres")

// Find returns the folder with initdb and postgres: GPUBANK_POSTGRES_BIN if set, else the newest of those on
// PATH, below /usr/lib/postgresql (Debian keeps them off PATH), and where pg_config points.
func Find() (string, error) {
	if chosen := os.Getenv("GPUBANK_POSTGRES_BIN"); chosen != "" {
		if majorOf(chosen) == 0 {
			return "", fmt.Errorf("GPUBANK_POSTGRES_BIN=%s has no working initdb and postgres in it", chosen)
		}
		return chosen, nil
	}
	var folders []string
	if found, err := exec.LookPath("initdb"); err == nil {
		if resolved, err := filepath.EvalSymlinks(found); err == nil {
			folders = append(folders, filepath.Dir(resolved))
		}
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	folders = append(folders, debian...)
	if output, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(output)))
	}
	best, bestMajor := "", oldest-1
	for _, folder := range folders {
		if major := majorOf(folder); major > bestMajor {
			best, bestMajor = folder, major
		}
	}
	if best == "" {
		return "", ErrMissing
	}
	return best, nil
}

// majorOf is the major version of the server in folder, or 0 if it has none.
func majorOf(folder string) int {
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return 0
	}
	output, err := exec.Command(filepath.Join(folder, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	// "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)" or, between releases, "… 18beta1".
	fields := strings.Fields(string(output))
	if len(fields) < 3 {
		return 0
	}
	digits := strings.IndexFunc(fields[2], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(fields[2])
	}
	major, _ := strconv.Atoi(fields[2][:digits])
	return major
}

// Ensure returns the folder with PostgreSQL's programs, after installing them through apt when they are missing
// and this is root on Debian or Ubuntu. The package would otherwise create and start a system-wide cluster; it is told
// not to. progress receives one line before and apt's output during the installation.
func Ensure(ctx context.Context, progress func(line string)) (string, error) {
	folder, err := Find()
	if !errors.Is(err, ErrMissing) || !mayInstall() {
		return folder, err
	}
	progress("PostgreSQL is missing: installing Debian's package (no system-wide cluster is created or started) …")
	if err := keepPackageFromStartingCluster(); err != nil {
		return "", fmt.Errorf("install PostgreSQL: %w", err)
	}
	if err := install(ctx, progress, "postgresql"); err != nil {
		return "", err
	}
	return Find()
}

// mayInstall: as root, where there is apt.
func mayInstall() bool {
	_, missing := exec.LookPath("apt-get")
	return os.Geteuid() == 0 && missing == nil
}

// install installs a package of Debian or Ubuntu.
func install(ctx context.Context, progress func(line string), name string) error {
	for _, arguments := range [][]string{
		{"-o", "DPkg::Lock::Timeout=300", "-q", "update"},
		{"-o", "DPkg::Lock::Timeout=300", "-q", "-y", "install", "--no-install-recommends", name},
	} {
		apt := exec.CommandContext(ctx, "apt-get", arguments...)
		apt.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		output := &lineWriter{emit: progress}
		apt.Stdout, apt.Stderr = output, output
		if err := apt.Run(); err != nil {
			return fmt.Errorf("install %s: apt-get %s: %w; run it by hand to see why: apt-get install -y %[1]s",
				name, strings.Join(arguments, " "), err)
		}
	}
	return nil
}

// keepPackageFromStartingCluster writes the setting that postgresql-common reads before it creates Debian's "main"
// cluster. A file that somebody already wrote is left alone: then there is a choice to respect.
func keepPackageFromStartingCluster() error {
	const folder, file = "/etc/postgresql-common/createcluster.d", "gpubank.conf"
	if _, err := os.Stat("/etc/postgresql-common/createcluster.conf"); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, file),
		[]byte("# gpubank's tests run private clusters of their own and need only the programs.\ncreate_main_cluster = false\n"), 0o644)
}

// lineWriter hands whole lines to emit.
type lineWriter struct {
	emit    func(line string)
	partial []byte
}

func (w *lineWriter) Write(content []byte) (int, error) {
	w.partial = append(w.partial, content...)
	for {
		end := slices.Index(w.partial, '\n')
		if end < 0 {
			return len(content), nil
		}
		w.emit(strings.TrimRight(string(w.partial[:end]), "\r"))
		w.partial = w.partial[end+1:]
	}
}
