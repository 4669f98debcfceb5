package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpubank/gpubank/"

// goPackage is what `go list` says of a package of this module; paths are relative to the module.
type goPackage struct {
	path string
	// imports are those of the package itself, tests not included; standard says which belong to the standard library.
	imports  []string
	cgo      bool
	standard map[string]bool
}

// layers are the parts that may use the ledger but not each other, by their folder.
var layers = []string{"pkg/webhook", "pkg/controller", "pkg/kueue", "pkg/meter", "pkg/plugins", "pkg/cli"}

// shared are the few things a layer lends to others, with the reason.
var shared = map[string]string{
	// The intake's protocol: the agent speaks it, the controller answers.
	"pkg/meter/intakeapi": "pkg/controller",
	// How a command is asked for again across restarts: both run in the controller's process, on the same terms.
	"pkg/controller/submission": "pkg/kueue",
}

// mayImport says whether from may import to, both of this module; the answer is the rule that forbids it, or "".
func mayImport(from, to string) string {
	layer, target := layerOf(from), layerOf(to)
	switch {
	case within(from, "cmd") || within(from, "test") || within(from, "bench") || within(from, "internal/deps"):
		return ""
	case within(to, "cmd") || within(to, "test") || within(to, "bench"):
		return "only commands, tests and benchmarks may use what is made for them"
	case within(to, "pkg/ledger/postgres") && !within(from, "pkg/ledger/postgres"):
		return "only commands and tests may choose the store; declare the methods you need beside their use"
	case within(from, "pkg/ledger") && !within(to, "pkg/ledger") && !within(to, "internal"):
		return "the ledger knows nothing above it"
	case within(from, "pkg/nvml") && !within(to, "pkg/nvml"):
		return "nvml knows nothing of credits"
	case within(from, "api") && !within(to, "api"):
		return "the API depends on nothing"
	case layer != "" && target != "" && layer != target:
		if shared[to] != "" && within(from, shared[to]) {
			return ""
		}
		return "parts meet in the ledger and the API server, not in each other"
	}
	return ""
}

func layerOf(path string) string {
	for _, layer := range layers {
		if within(path, layer) {
			return layer
		}
	}
	return ""
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func TestImportsRunOneWay(t *testing.T) {
	for _, each := range list(t) {
		for _, imported := range each.imports {
			to, own := strings.CutPrefix(imported, module)
			if !own {
				continue
			}
			if rule := mayImport(each.path, to); rule != "" {
				t.Errorf("%s imports %s: %s", each.path, to, rule)
			}
		}
	}
}

// pkg/ledger decides with the standard library alone; its stores and test support may use more.
func TestLedgerUsesTheStandardLibraryOnly(t *testing.T) {
	for _, each := range list(t) {
		if each.path != "pkg/ledger" {
			continue
		}
		for _, imported := range each.imports {
			if !each.standard[imported] {
				t.Errorf("pkg/ledger imports %s, which is not in the standard library", imported)
			}
		}
	}
}

func TestCgoStaysInNVML(t *testing.T) {
	for _, each := range list(t) {
		if each.cgo && !within(each.path, "pkg/nvml") {
			t.Errorf("%s uses cgo", each.path)
		}
	}
	// What wraps a C library is cgo, too.
	const wrapper = "github.com/NVIDIA/go-nvml/"
	for _, each := range list(t) {
		for _, imported := range each.imports {
			if strings.HasPrefix(imported, wrapper) && !within(each.path, "pkg/nvml") && !within(each.path, "internal/deps") {
				t.Errorf("%s imports %s", each.path, imported)
			}
		}
	}
}

// The rules themselves, on what they are meant for.
func TestMayImport(t *testing.T) {
	for _, each := range []struct {
		from, to string
		allowed  bool
	}{
		{"cmd/scheduler", "pkg/ledger/postgres", true},
		{"pkg/webhook", "pkg/ledger", true},
		{"pkg/webhook", "pkg/ledger/postgres", false},
		{"pkg/plugins/gang", "pkg/plugins/catalog", true},
		{"pkg/plugins/gang", "pkg/webhook", false},
		{"pkg/controller/intake", "pkg/meter/intakeapi", true},
		{"pkg/webhook", "pkg/meter/intakeapi", false},
		{"pkg/controller", "pkg/meter", false},
		{"pkg/kueue", "pkg/controller/submission", true},
		{"pkg/kueue", "pkg/controller/lifecycle", false},
		{"pkg/ledger", "pkg/workload", false},
		{"pkg/ledger/postgres", "pkg/ledger", true},
		{"pkg/nvml", "pkg/ledger", false},
		{"pkg/meter", "pkg/nvml", true},
		{"pkg/cli", "test/cluster", false},
		{"test/integration/path", "pkg/webhook", true},
	} {
		if got := mayImport(each.from, each.to) == ""; got != each.allowed {
			t.Errorf("may %s import %s? %v", each.from, each.to, got)
		}
	}
}

// registries matches addresses of public image registries: which one is used is the operator's choice.
var registries = regexp.MustCompile(`\b(ghcr|gcr|quay|docker|k8s\.gcr|registry\.k8s|mcr\.microsoft|nvcr|public\.ecr)\.(io|com|aws)\b`)

func TestNoRegistryIsNamed(t *testing.T) {
	root := moduleRoot(t)
	for _, folder := range []string{"api", "cmd", "internal", "manifests", "pkg", "test", "Dockerfile", "Makefile"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "tidy_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for number, line := range bytes.Split(content, []byte("\n")) {
				if found := registries.Find(line); found != nil {
					relative, _ := filepath.Rel(root, path)
					t.Errorf("%s:%d names the registry %s", relative, number+1, found)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// A file that nobody can read in one sitting is several purposes in one place.
func TestFilesAreShort(t *testing.T) {
	const most = 500
	root := moduleRoot(t)
	for _, folder := range []string{"api", "cmd", "internal", "pkg", "test", "bench"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if lines := bytes.Count(content, []byte("\n")); lines > most && !bytes.HasPrefix(content, []byte("// Code generated")) && !strings.HasPrefix(entry.Name(), "zz_generated") {
				relative, _ := filepath.Rel(root, path)
				t.Errorf("%s has %d lines, more than %d", relative, lines, most)
			}
			return nil
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// list asks the go command for the packages of this module, with cgo on so that its files are seen.
func list(t *testing.T) []goPackage {
	t.Helper()
	command := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,CgoFiles,Standard", "./...")
	command.Dir = moduleRoot(t)
	command.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var each struct {
			ImportPath string
			Imports    []string
			CgoFiles   []string
		}
		if err := decoder.Decode(&each); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		standard := map[string]bool{}
		for _, imported := range each.Imports {
			// Only import paths of the standard library have no dot in their first element.
			first, _, _ := strings.Cut(imported, "/")
			standard[imported] = !strings.Contains(first, ".")
		}
		packages = append(packages, goPackage{
			path: strings.TrimPrefix(each.ImportPath, module), imports: each.Imports,
			cgo: len(each.CgoFiles) > 0 || slices.Contains(each.Imports, "C"), standard: standard,
		})
	}
	if len(packages) < 10 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	return packages
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}
