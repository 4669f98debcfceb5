package scheduling_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

// installCoscheduling installs the CustomResourceDefinition of scheduler-plugins' PodGroup, as its module brings it.
func installCoscheduling(t *testing.T, cp *cluster.ControlPlane) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins").Output()
	must(t, err)
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(output)), "manifests", "coscheduling", "crd.yaml"))
	must(t, err)
	crd := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal(content, &crd.Object))
	applier, err := parts.NewApplier(cp.RESTConfig())
	must(t, err)
	must(t, applier.Apply(t.Context(), crd, false))
	must(t, applier.WaitEstablished(t.Context(), crd))
}
