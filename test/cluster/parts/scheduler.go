package parts

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// NewScheduler prepares a scheduler with the configuration of manifests/scheduler, under a name of its own for its log
// and files; all share one service account and one lease. Leases are shorter than in production, so that a killed
// leader's successor need not wait for 15 s. edit, if not nil, may change the configuration further.
func (g *Gpubank) NewScheduler(ctx context.Context, name string, edit func(configuration map[string]any)) (*cluster.Process, error) {
	kubeconfig, err := g.kubeconfig(ctx, Scheduler)
	if err != nil {
		return nil, err
	}
	root, err := binaries.ModuleRoot()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, "manifests", "scheduler", "scheduler-config.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	configuration := map[string]any{}
	if err := yaml.Unmarshal(content, &configuration); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	section(configuration, "clientConnection")["kubeconfig"] = kubeconfig
	lease := section(configuration, "leaderElection")
	lease["leaseDuration"], lease["renewDeadline"], lease["retryPeriod"] = "4s", "3s", "1s"
	if edit != nil {
		edit(configuration)
	}
	edited, err := yaml.Marshal(configuration)
	if err != nil {
		return nil, fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	path := g.path(name + "-config.yaml")
	if err := os.WriteFile(path, edited, 0o600); err != nil {
		return nil, fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	address, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(address[0])
	return g.process(name, "scheduler", "https://"+address[0]+"/readyz",
		"--config="+path,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--database-url-file="+g.DatabaseURLFile(cluster.SchedulerRole),
		"--bind-address="+host, "--secure-port="+port,
	), nil
}

// section is a part of a configuration, made if it is not there.
func section(configuration map[string]any, name string) map[string]any {
	found, ok := configuration[name].(map[string]any)
	if !ok {
		found = map[string]any{}
		configuration[name] = found
	}
	return found
}
