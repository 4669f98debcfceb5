package binaries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The version that programs are stamped with and kept under is the one that is built.
func TestVersionIsThePinnedOne(t *testing.T) {
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	pins, err := os.ReadFile(filepath.Join(root, "hack", "controlplane", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\tk8s.io/kubernetes " + ControlPlaneVersion + "\n"; !strings.Contains(string(pins), want) {
		t.Errorf("hack/controlplane/go.mod does not pin %q", strings.TrimSpace(want))
	}
}

func TestMissingProgramsSayWhatToRun(t *testing.T) {
	t.Setenv(ControlPlaneDirEnv, t.TempDir())
	_, err := FindControlPlane(Serving...)
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("the error does not say what to run: %v", err)
	}
}

func TestVersionParts(t *testing.T) {
	if major, minor := versionParts("v1.37.2"); major != "1" || minor != "37" {
		t.Errorf("v1.37.2 is %s and %s", major, minor)
	}
}
