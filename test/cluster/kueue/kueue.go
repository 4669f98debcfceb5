// Package kueue runs Kueue's own manager beside a cluster.ControlPlane, as an operator's Kueue would run in the cluster.
//
// What differs from an installed Kueue: it runs as a cluster administrator, with batch Jobs alone, and its admission webhooks are not registered.
// They fill in defaults and refuse mistakes; a test writes out what they would fill in, above all spec.suspend of its Jobs.
package kueue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

// Kueue is the manager's process, to be stopped, killed and started again.
type Kueue struct {
	Manager *cluster.Process
}

// InstallCRDs applies Kueue's kinds, as they are in its source, and waits until they are served.
func InstallCRDs(ctx context.Context, cp *cluster.ControlPlane) error {
	source, err := binaries.KueueSource(ctx)
	if err != nil {
		return err
	}
	applier, err := parts.NewApplier(cp.RESTConfig())
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(source, "config", "components", "crd", "bases", "kueue.x-k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find Kueue's CRDs below %s: %d files, %w", source, len(files), err)
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a CRD of Kueue: %w", err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &crd.Object); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := applier.Apply(ctx, crd, false); err != nil {
			return err
		}
		crds = append(crds, crd)
	}
	for _, crd := range crds {
		if err := applier.WaitEstablished(ctx, crd); err != nil {
			return err
		}
	}
	return nil
}

// New prepares the manager, whose program EnsureKueue has built. gates are feature gates, such as "PartialAdmission": true.
func New(ctx context.Context, cp *cluster.ControlPlane, progress func(string), gates map[string]bool) (*Kueue, error) {
	program, err := binaries.EnsureKueue(ctx, progress)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cp.UserKubeconfig("kueue", "kueue", "system:masters")
	if err != nil {
		return nil, err
	}
	certificates := filepath.Join(cp.Dir, "kueue-certificates")
	if err := cp.ServingCertificate(certificates, "kueue"); err != nil {
		return nil, err
	}
	var ports [3]int
	for i := range ports {
		if ports[i], err = cluster.FreePort(); err != nil {
			return nil, err
		}
	}
	if err := cp.CreateNamespace(ctx, "kueue-system", nil); err != nil {
		return nil, err
	}
	config := filepath.Join(cp.Dir, "kueue.yaml")
	if err := os.WriteFile(config, []byte(configuration(certificates, ports, gates)), 0o600); err != nil {
		return nil, fmt.Errorf("write Kueue's configuration: %w", err)
	}
	return &Kueue{Manager: cluster.NewProcess(cluster.Command{
		Name: "kueue", Path: program, Dir: cp.Dir, LogFile: filepath.Join(cp.Dir, "kueue.log"),
		Args:  []string{"--config=" + config, "--kubeconfig=" + kubeconfig},
		Env:   []string{binaries.KueueCertificatesEnv + "=" + certificates},
		Ready: cluster.HTTPReady("http://127.0.0.1:" + strconv.Itoa(ports[0]) + "/readyz"),
	})}, nil
}

func configuration(certificates string, ports [3]int, gates map[string]bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "127.0.0.1:%d"}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
integrations: {frameworks: [batch/job]}
featureGates:
  VisibilityOnDemand: false
`, ports[0], ports[1], ports[2], certificates)
	for gate, on := range gates {
		fmt.Fprintf(&text, "  %s: %t\n", gate, on)
	}
	return text.String()
}
