package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ControlPlaneVersion is the Kubernetes version of the control plane; hack/controlplane/go.mod pins the same.
const ControlPlaneVersion = "v1.37.2"

// ControlPlaneDirEnv names the environment variable that replaces the folder of the control plane's programs.
const ControlPlaneDirEnv = "GPUBANK_CONTROLPLANE_BIN"

// program is one of the control plane's.
type program struct {
	name, goPackage string
	// firstBuild is how long it takes on 2 cores with an empty build cache, in this order. Measured 2026-11.
	firstBuild string
}

var programs = []program{
	{"etcd", "go.etcd.io/etcd/server/v3", "1 to 2 minutes"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "about 12 minutes"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "about 4 minutes"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "about 1 minute"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl", "about 2 minutes"},
}

// Serving are the programs that every control plane of package cluster needs.
var Serving = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

// All are the programs that hack/controlplane pins: the serving ones, kube-scheduler to measure against, and kubectl.
func All() []string {
	names := make([]string, 0, len(programs))
	for _, each := range programs {
		names = append(names, each.name)
	}
	return names
}

// ControlPlaneDir is the folder of the control plane's programs: GPUBANK_CONTROLPLANE_BIN if set, else one in the
// user's cache folder.
func ControlPlaneDir() (string, error) {
	if chosen := os.Getenv(ControlPlaneDirEnv); chosen != "" {
		return filepath.Abs(chosen)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of the control plane's programs: %w; set %s", err, ControlPlaneDirEnv)
	}
	return filepath.Join(cache, "gpubank", "bin", ControlPlaneVersion), nil
}

// FindControlPlane returns the folder that holds the named programs, or an error that says how to build them.
func FindControlPlane(names ...string) (string, error) {
	dir, err := ControlPlaneDir()
	if err != nil {
		return "", err
	}
	if missing := missingFrom(dir, names); len(missing) > 0 {
		return "", fmt.Errorf("%s not found in %s; build the control plane once with: make controlplane",
			strings.Join(missing, ", "), dir)
	}
	return dir, nil
}

// EnsureControlPlane returns the folder that holds the named programs, after building those that are missing.
// progress receives a line when a build begins, every 15 s while it runs, and when it ends.
func EnsureControlPlane(ctx context.Context, progress func(line string), names ...string) (string, error) {
	dir, err := ControlPlaneDir()
	if err != nil {
		return "", err
	}
	if len(missingFrom(dir, names)) == 0 {
		return dir, nil
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
	missing := missingFrom(dir, names) // another build may have made them meanwhile
	for number, name := range missing {
		which, err := lookup(name)
		if err != nil {
			return "", err
		}
		progress(fmt.Sprintf("building %s of Kubernetes %s, %d of %d: %s on 2 cores the first time, kept in %s afterwards",
			name, ControlPlaneVersion, number+1, len(missing), which.firstBuild, dir))
		if err := buildControlPlane(ctx, root, dir, which, progress); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func buildControlPlane(ctx context.Context, root, dir string, which program, progress func(string)) error {
	started := time.Now()
	// Into a folder of the same file system first, so that the rename is atomic.
	scratch, err := os.MkdirTemp(dir, ".building-")
	if err != nil {
		return fmt.Errorf("build %s: %w", which.name, err)
	}
	defer os.RemoveAll(scratch)
	// An API server without a version is refused by clients that parse it; see DESIGN.md, dependencies.
	const versionPackage = "k8s.io/component-base/version"
	major, minor := versionParts(ControlPlaneVersion)
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		versionPackage, ControlPlaneVersion, major, minor)
	built := filepath.Join(scratch, which.name)
	if err := goBuild(ctx, filepath.Join(root, "hack", "controlplane"), which.name, progress,
		"-ldflags", flags, "-o", built, which.goPackage); err != nil {
		return err
	}
	if err := os.Rename(built, filepath.Join(dir, which.name)); err != nil {
		return fmt.Errorf("build %s: %w", which.name, err)
	}
	progress(fmt.Sprintf("built %s in %s", which.name, time.Since(started).Round(time.Second)))
	return nil
}

func missingFrom(dir string, names []string) []string {
	var missing []string
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			missing = append(missing, name)
		}
	}
	return missing
}

func lookup(name string) (program, error) {
	for _, each := range programs {
		if each.name == name {
			return each, nil
		}
	}
	return program{}, fmt.Errorf("there is no control-plane program %q; there are: %s", name, strings.Join(All(), ", "))
}

// versionParts splits v1.37.2 into 1 and 37.
func versionParts(version string) (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// errNoModule says that this does not run below a checkout.
var errNoModule = errors.New("not inside a checkout of gpubank: no go.mod of module github.com/gpubank/gpubank in this folder or above")

// ModuleRoot is the checkout that the working folder lies in.
func ModuleRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module github.com/gpubank/gpubank\n") {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errNoModule
		}
		folder = parent
	}
}
