package pgprograms

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// ErrPoolerMissing says that PgBouncer is not installed. Its message carries the command to run.
var ErrPoolerMissing = errors.New("PgBouncer is not installed (looked on PATH and in /usr/sbin); " +
	"install it with: sudo apt-get install -y pgbouncer   (or your system's package), or set GPUBANK_PGBOUNCER to the program")

// FindPooler returns PgBouncer's program: GPUBANK_PGBOUNCER if set, else the one on PATH or in /usr/sbin, which Debian keeps
// off the PATH of ordinary users.
func FindPooler() (string, error) {
	if chosen := os.Getenv("GPUBANK_PGBOUNCER"); chosen != "" {
		if _, err := exec.LookPath(chosen); err != nil {
			return "", fmt.Errorf("GPUBANK_PGBOUNCER=%s is no program: %w", chosen, err)
		}
		return chosen, nil
	}
	for _, candidate := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if found, err := exec.LookPath(candidate); err == nil {
			return found, nil
		}
	}
	return "", ErrPoolerMissing
}

// EnsurePooler returns PgBouncer's program, after installing it through apt when it is missing and this is root on Debian or
// Ubuntu. The package would otherwise start a system-wide one; it is told not to. progress receives one line before and apt's
// output during the installation.
func EnsurePooler(ctx context.Context, progress func(line string)) (string, error) {
	program, err := FindPooler()
	if !errors.Is(err, ErrPoolerMissing) || !mayInstall() {
		return program, err
	}
	progress("PgBouncer is missing: installing Debian's package (it is not started) …")
	allow, err := forbidServiceStarts()
	if err != nil {
		return "", fmt.Errorf("install PgBouncer: %w", err)
	}
	err = install(ctx, progress, "pgbouncer")
	if err = errors.Join(err, allow()); err != nil {
		return "", err
	}
	return FindPooler()
}

// pgbouncerUnit is masked, or the system would start its own PgBouncer at the next boot.
const pgbouncerUnit = "/etc/systemd/system/pgbouncer.service"

// servicePolicy is the program that Debian's packages ask whether they may start what they bring.
const servicePolicy = "/usr/sbin/policy-rc.d"

// forbidServiceStarts keeps packages from starting their services until allow is called, and PgBouncer's from being started at
// boot at all (`systemctl unmask pgbouncer` takes that back). What somebody already wrote is left alone: then there is a choice
// to respect.
func forbidServiceStarts() (allow func() error, err error) {
	if err := os.MkdirAll("/etc/systemd/system", 0o755); err != nil {
		return nil, err
	}
	if err := os.Symlink("/dev/null", pgbouncerUnit); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	policy, err := os.OpenFile(servicePolicy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	const forbidden = "#!/bin/sh\n# Written while gpubank's tests install a package; 101: do not start it.\nexit 101\n"
	if _, err := policy.WriteString(forbidden); err != nil {
		return nil, errors.Join(err, policy.Close(), os.Remove(servicePolicy))
	}
	return func() error { return os.Remove(servicePolicy) }, policy.Close()
}
