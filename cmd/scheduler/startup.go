package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/pkg/plugins/creditreservation"
)

// discoveryPatience is how long the first contact with the API server may take, so that a restart of both does not
// need a second restart of this one.
const (
	discoveryPatience = time.Minute
	discoveryRetry    = time.Second
)

// startup is what has to be settled between reading the flags and building the scheduler.
type startup struct {
	databaseURLFile       string
	withoutLeaderElection bool

	server server
	store  *postgres.Store
	gates  gateDecision
	// nominated says that NominatedNodeNameForExpectation was switched off, which nobody asked for or against.
	nominated bool
}

// attach adds our flags to kube-scheduler's command, and prepare to what runs before it.
func (s *startup) attach(command *cobra.Command) {
	command.Use = "gpubank-scheduler"
	command.Long = "kube-scheduler with gpubank's plugins: it binds no GPU pod before the ledger has committed its allocation."
	flags := command.Flags()
	flags.StringVar(&s.databaseURLFile, "database-url-file", "", "File with the PostgreSQL URL of the ledger (a mounted Secret); read again for each new connection.")
	flags.BoolVar(&s.withoutLeaderElection, "without-leader-election", false,
		"Start although leader election is off in the configuration. The ledger still obeys only the newest of several schedulers, but the others then exit again and again.")

	setGates := command.PersistentPreRunE
	command.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		// The flags' feature gates come first, because which APIs are needed depends on them.
		if err := setGates(c, args); err != nil {
			return err
		}
		if c.Flags().Lookup("version").Changed {
			return nil
		}
		return s.prepare(c.Context(), c.Flags())
	}
}

func (s *startup) prepare(ctx context.Context, flags *pflag.FlagSet) error {
	if err := configv1.Register(); err != nil {
		return fmt.Errorf("register the plugins' arguments: %w", err)
	}
	if s.databaseURLFile == "" {
		return errors.New("--database-url-file is missing: name the file that holds the ledger's PostgreSQL URL")
	}
	path := flags.Lookup("config").Value.String()
	if path == "" {
		return errors.New("--config is missing: without it this would be a second default-scheduler; start from manifests/scheduler/scheduler-config.yaml")
	}
	config, err := options.LoadConfigFromFile(klog.Background(), path)
	if err != nil {
		return fmt.Errorf("read the scheduler's configuration %s: %w", path, err)
	}
	if err := checkLeaderElection(leaderElectionOf(config, flags), s.withoutLeaderElection); err != nil {
		return err
	}
	if err := s.askServer(ctx, config.ClientConnection.Kubeconfig, flags.Lookup("master").Value.String()); err != nil {
		return err
	}
	return s.switchOff(flags)
}

// leaderElection is the part of a configuration that says whether several replicas exclude each other.
type leaderElection struct {
	on                  bool
	namespace, resource string
}

// leaderElectionOf applies the flags that kube-scheduler honours beside a configuration file.
func leaderElectionOf(config *schedulerconfig.KubeSchedulerConfiguration, flags *pflag.FlagSet) leaderElection {
	l := leaderElection{config.LeaderElection.LeaderElect, config.LeaderElection.ResourceNamespace, config.LeaderElection.ResourceName}
	if flag := flags.Lookup("leader-elect"); flag.Changed {
		l.on = flag.Value.String() == "true"
	}
	if flag := flags.Lookup("leader-elect-resource-namespace"); flag.Changed {
		l.namespace = flag.Value.String()
	}
	if flag := flags.Lookup("leader-elect-resource-name"); flag.Changed {
		l.resource = flag.Value.String()
	}
	return l
}

func checkLeaderElection(l leaderElection, without bool) error {
	switch {
	case !l.on && without:
		return nil
	case !l.on:
		return errors.New("leader election is off: set leaderElection.leaderElect: true, or pass --without-leader-election if there can be only one")
	case l.resource == "kube-scheduler":
		return fmt.Errorf("leaderElection.resourceName is kube-scheduler in namespace %s, the lease of the cluster's own scheduler; set resourceName: gpubank-scheduler", l.namespace)
	}
	return nil
}

// askServer decides the feature gates from what the API server serves.
func (s *startup) askServer(ctx context.Context, kubeconfig, master string) error {
	config, err := clientcmd.BuildConfigFromFlags(master, kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, discoveryRetry, discoveryPatience, true, func(context.Context) (bool, error) {
		s.server, last = discover(client)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(last, err)
	}
	gate := utilfeature.DefaultMutableFeatureGate
	s.gates = decideGates(s.server.serves, gate.Enabled, gate.Dependencies())
	if len(s.gates.missing) > 0 {
		return fmt.Errorf("the API server (%s) does not serve %s, without which kube-scheduler never starts; the oldest supported server is 1.35 with its default APIs",
			s.server.version.GitVersion, strings.Join(s.gates.missing, ", "))
	}
	return nil
}

func (s *startup) switchOff(flags *pflag.FlagSet) error {
	off := map[string]bool{}
	for _, feature := range s.gates.off {
		off[feature] = false
	}
	// With it, each pod costs one more write to the API server before it is bound, so that an autoscaler sees where a
	// pod that waits in PreBind will go. Ours waits there for a commit, some milliseconds.
	nominated := string(features.NominatedNodeNameForExpectation)
	if !strings.Contains(flags.Lookup("feature-gates").Value.String(), nominated) {
		off[nominated] = false
		s.nominated = true
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(off); err != nil {
		return fmt.Errorf("switch off features that the API server lacks: %w", err)
	}
	return nil
}

// report logs, once logging is configured, what was decided before.
func (s *startup) report(frameworkruntime.Registry) error {
	klog.Background().Info("Feature gates follow the API server", "serverVersion", s.server.version.GitVersion,
		"switchedOff", s.gates.off, "absentAPIs", s.gates.absent, "nominatedNodeNameOff", s.nominated)
	return nil
}

// openLedger returns the one store that all plugins share. It connects lazily: the scheduler starts, and says that pods wait for the
// ledger, while PostgreSQL is away. Plugins are made one after the other.
func (s *startup) openLedger(ctx context.Context) (*postgres.Store, error) {
	if s.store != nil {
		return s.store, nil
	}
	store, err := postgres.OpenFile(ctx, s.databaseURLFile, postgres.Options{
		Logger: klog.FromContext(ctx), BatchSpacing: creditreservation.CommitSpacing,
	})
	if err != nil {
		return nil, fmt.Errorf("open the ledger named in %s: %w", s.databaseURLFile, err)
	}
	s.store = store
	return store, nil
}
