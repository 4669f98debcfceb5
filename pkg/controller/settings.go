package controller

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// leastHoldExpiry is above the API server's default limit of one request (--request-timeout, 60 s): a younger hold's
// object may still be on its way into storage.
const leastHoldExpiry = 90 * time.Second

// What is reported late comes mostly within minutes: leastCompactAfter saves compacting it twice. The database forgets nothing that is
// younger than leastRemember, whoever asks.
const (
	leastCompactAfter = time.Hour
	leastRemember     = 24 * time.Hour
)

// Settings are the controller's command line.
type Settings struct {
	DatabaseURLFile string
	LeaderElect     bool

	Namespace     string
	IntakeAddress string
	IntakeCertDir string
	IntakeService string
	AgentAccount  string

	HoldExpiry time.Duration
	// AllowShortHoldExpiry lets tests expire holds sooner than an API server may need.
	AllowShortHoldExpiry bool
	Resync               time.Duration
	NodeGrace            time.Duration

	SealInterval    time.Duration
	AuditInterval   time.Duration
	CompareInterval time.Duration
	CompareSettle   time.Duration

	UpkeepInterval time.Duration
	CompactAfter   time.Duration
	Remember       time.Duration
	RememberGPUs   time.Duration

	HealthProbeAddress string
	MetricsAddress     string
}

// Bind adds the flags to a flag set.
func (s *Settings) Bind(flags *flag.FlagSet) {
	flags.StringVar(&s.DatabaseURLFile, "database-url-file", "", "File with the PostgreSQL URL of the ledger (a mounted Secret); read again for each new connection.")
	flags.BoolVar(&s.LeaderElect, "leader-elect", true, "Reconcile only while holding the lease. The intake serves on every replica.")
	flags.StringVar(&s.Namespace, "namespace", v1alpha1.SystemNamespace, "Namespace of the lease, of the intake's Secret, ConfigMap and Service, and of the node agent.")
	flags.StringVar(&s.IntakeAddress, "intake-address", ":8443", "Address to serve node agents on.")
	flags.StringVar(&s.IntakeCertDir, "intake-cert-dir", "", "Folder with tls.crt and tls.key, kept by a certificate manager. Empty: make, share and rotate them here, and publish the authority in the ConfigMap intake-ca.")
	flags.StringVar(&s.IntakeService, "intake-service", "credit-controller", "Service by which node agents call the intake: the certificate's name. Unused with --intake-cert-dir.")
	flags.StringVar(&s.AgentAccount, "agent-service-account", "nvml-exporter", "Service account of the node agent, the only one that may report.")
	flags.DurationVar(&s.HoldExpiry, "hold-expiry", 2*time.Minute, "Age at which a hold whose object the API server does not have is given back. Must exceed the API server's longest request.")
	flags.BoolVar(&s.AllowShortHoldExpiry, "allow-short-hold-expiry", false, "Accept a --hold-expiry below "+leastHoldExpiry.String()+". For tests: a Job that is slow to be stored may lose its hold.")
	flags.DurationVar(&s.Resync, "resync", time.Minute, "How often everything that the ledger holds open is compared with the cluster, whatever the watches said.")
	flags.DurationVar(&s.NodeGrace, "node-grace", time.Minute, "Age of a node's last lease renewal from which its pods' allocations are suspect.")
	flags.DurationVar(&s.SealInterval, "seal-interval", 10*time.Second, "How often new entries are sealed. Until then a change of one leaves no trace in the chain.")
	flags.DurationVar(&s.AuditInterval, "audit-interval", time.Hour, "How often every seal and every invariant is verified, give or take a tenth. It reads every entry.")
	flags.DurationVar(&s.CompareInterval, "compare-interval", time.Minute, "How often ledger, scheduler, pod status and node agents are compared.")
	flags.DurationVar(&s.CompareSettle, "compare-settle", 5*time.Minute, "How long they must disagree before it is kept as a discrepancy.")
	flags.DurationVar(&s.UpkeepInterval, "upkeep-interval", 10*time.Minute, "How long to wait between two passes of compacting and forgetting.")
	flags.DurationVar(&s.CompactAfter, "compact-after", 7*24*time.Hour, "Age of an allocation's end at which its intervals become one row; at least an hour. Statements stay as they are. 0: never.")
	flags.DurationVar(&s.Remember, "remember", 30*24*time.Hour, "How long answers are remembered word for word, at least a day; afterwards they are told from the ledger's rows. Set more than a node's agent may be cut off. 0: for ever.")
	flags.DurationVar(&s.RememberGPUs, "remember-gpus", 90*24*time.Hour, "How long after a pod it is noticed that another one was metered on the same GPU at the same time, at least a day. 0: for ever.")
	flags.StringVar(&s.HealthProbeAddress, "health-probe-address", ":8081", "Address of /healthz and /readyz.")
	flags.StringVar(&s.MetricsAddress, "metrics-address", ":8080", "Address of /metrics; 0 for none.")
}

// Validate says what is wrong with the settings, and what to set.
func (s *Settings) Validate() error {
	var problems []error
	if s.DatabaseURLFile == "" {
		problems = append(problems, errors.New("--database-url-file is missing: name the file that holds the ledger's PostgreSQL URL"))
	}
	if s.HoldExpiry < leastHoldExpiry && !s.AllowShortHoldExpiry {
		problems = append(problems, fmt.Errorf("--hold-expiry=%s is below %s: the API server could still be storing the object; set more", s.HoldExpiry, leastHoldExpiry))
	}
	for name, value := range map[string]time.Duration{"hold-expiry": s.HoldExpiry, "resync": s.Resync, "node-grace": s.NodeGrace,
		"seal-interval": s.SealInterval, "audit-interval": s.AuditInterval, "compare-interval": s.CompareInterval, "upkeep-interval": s.UpkeepInterval,
	} {
		if value < time.Second {
			problems = append(problems, fmt.Errorf("--%s=%s is below 1s; set more", name, value))
		}
	}
	for name, age := range map[string]struct{ value, least time.Duration }{
		"compact-after": {s.CompactAfter, leastCompactAfter}, "remember": {s.Remember, leastRemember}, "remember-gpus": {s.RememberGPUs, leastRemember},
	} {
		if age.value != 0 && age.value < age.least {
			problems = append(problems, fmt.Errorf("--%s=%s is below %s: what is still being reported would go; set more, or 0 to keep everything", name, age.value, age.least))
		}
	}
	return errors.Join(problems...)
}
