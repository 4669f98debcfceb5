package binaries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// KueueVersion is the version of Kueue's manager; hack/kueue/go.mod pins the same.
const KueueVersion = "v0.17.0"

// kueueProgram's first build takes about 6 minutes on 2 cores with an empty build cache. Measured 2026-11.
const (
	kueueProgram    = "kueue"
	kueueFirstBuild = "about 6 minutes"
)

// KueueCertificatesEnv names the environment variable that says where the manager finds its metrics certificate.
const KueueCertificatesEnv = "KUEUE_METRICS_CERTS"

// kueueCertificates is where it looks otherwise, a folder of the machine that a test must not need.
const kueueCertificates = `"/etc/kueue/metrics/certs"`

// EnsureKueue builds Kueue's manager if it is missing, and returns its path. What is built is Kueue's own main package with one
// expression replaced: where its metrics certificate lies (KueueCertificatesEnv).
func EnsureKueue(ctx context.Context, progress func(line string)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for Kueue's manager: %w", err)
	}
	dir := filepath.Join(cache, "gpubank", "bin", "kueue-"+KueueVersion)
	program := filepath.Join(dir, kueueProgram)
	if len(missingFrom(dir, []string{kueueProgram})) == 0 {
		return program, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if len(missingFrom(dir, []string{kueueProgram})) == 0 {
		return program, nil // another build made it meanwhile
	}
	progress(fmt.Sprintf("building Kueue %s: %s on 2 cores the first time, kept in %s afterwards", KueueVersion, kueueFirstBuild, dir))
	started := time.Now()
	if err := buildKueue(ctx, root, dir, program, progress); err != nil {
		return "", err
	}
	progress(fmt.Sprintf("built Kueue in %s", time.Since(started).Round(time.Second)))
	return program, nil
}

func buildKueue(ctx context.Context, root, dir, program string, progress func(string)) error {
	source, err := KueueSource(ctx)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(dir, ".building-")
	if err != nil {
		return fmt.Errorf("build Kueue: %w", err)
	}
	defer os.RemoveAll(scratch)
	module := filepath.Join(root, "hack", "kueue")
	overlay, err := kueueOverlay(source, module, scratch)
	if err != nil {
		return fmt.Errorf("build Kueue: %w", err)
	}
	built := filepath.Join(scratch, kueueProgram)
	if err := goBuild(ctx, module, kueueProgram, progress, "-overlay", overlay, "-ldflags", "-s -w", "-o", built, "./manager"); err != nil {
		return err
	}
	if err := os.Rename(built, program); err != nil {
		return fmt.Errorf("build Kueue: %w", err)
	}
	return nil
}

// kueueOverlay makes hack/kueue/manager, a package that exists for the compiler alone: Kueue's main package as changed.
func kueueOverlay(source, module, scratch string) (string, error) {
	main, err := os.ReadFile(filepath.Join(source, "cmd", "kueue", "main.go"))
	if err != nil {
		return "", err
	}
	if bytes.Count(main, []byte(kueueCertificates)) != 1 {
		return "", errors.New("its main.go does not name " + kueueCertificates + " once; see what a new version does with its metrics certificate")
	}
	changed := filepath.Join(scratch, "main.go")
	main = bytes.Replace(main, []byte(kueueCertificates), []byte(fmt.Sprintf("os.Getenv(%q)", KueueCertificatesEnv)), 1)
	if err := os.WriteFile(changed, main, 0o600); err != nil {
		return "", err
	}
	content, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(module, "manager", "main.go"): changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// KueueSource is the folder of Kueue's source in the module cache, where its CRDs are.
func KueueSource(ctx context.Context) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/kueue")
	command.Dir = filepath.Join(root, "hack", "kueue")
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find Kueue's source: %w\n%s", err, output)
	}
	var module struct{ Version, Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("find Kueue's source: %w", err)
	}
	if module.Version != KueueVersion {
		return "", fmt.Errorf("hack/kueue pins Kueue %s, and this expects %s", strings.TrimSpace(module.Version), KueueVersion)
	}
	return module.Dir, nil
}
