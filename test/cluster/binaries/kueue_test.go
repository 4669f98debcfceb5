package binaries

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The version that the manager is kept under is the one that is built, and the one whose kinds gpubank is compiled with.
func TestKueueVersionIsThePinnedOne(t *testing.T) {
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"hack/kueue/go.mod", "go.mod"} {
		pins, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		if want := "sigs.k8s.io/kueue " + KueueVersion + "\n"; !strings.Contains(string(pins), want) {
			t.Errorf("%s does not pin %q", file, strings.TrimSpace(want))
		}
	}
}

// Exactly one expression of Kueue's main.go is replaced; what cannot be recognised is not built.
func TestKueueOverlay(t *testing.T) {
	source, scratch := t.TempDir(), t.TempDir()
	main := filepath.Join(source, "cmd", "kueue", "main.go")
	if err := os.MkdirAll(filepath.Dir(main), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(content string) {
		if err := os.WriteFile(main, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("package main\nvar path = " + kueueCertificates + "\n")
	overlay, err := kueueOverlay(source, "/module", scratch)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	var replaced struct{ Replace map[string]string }
	if err := json.Unmarshal(content, &replaced); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(replaced.Replace["/module/manager/main.go"])
	if err != nil {
		t.Fatal(err)
	}
	if want := "package main\nvar path = os.Getenv(\"KUEUE_METRICS_CERTS\")\n"; string(got) != want {
		t.Errorf("main.go becomes %q, want %q", got, want)
	}
	write("package main\n")
	if _, err := kueueOverlay(source, "/module", scratch); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("a main.go that cannot be changed: %v", err)
	}
}
