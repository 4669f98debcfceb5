package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CreditReservationArgs are the arguments of the plugin CreditReservation.
//
// +kubebuilder:object:root=true
type CreditReservationArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Leadership names the leadership in the ledger that this scheduler writes under: whoever acquired it last is obeyed,
	// every earlier holder is refused. All replicas of one scheduler share it. Default gpubank-scheduler.
	Leadership string `json:"leadership,omitempty"`
	// LedgerTimeout is how long a pod that has a node waits for the ledger's answer before it gives the node back and
	// says that it waits for the ledger. 1s to 5m, default 10s.
	LedgerTimeout metav1.Duration `json:"ledgerTimeout,omitempty"`
	// SweepPeriod is how often an unreachable ledger is tried, and how often waiting pods are looked over for one
	// whose event was missed. 100ms to 1m, default 1s.
	SweepPeriod metav1.Duration `json:"sweepPeriod,omitempty"`
	// RefusalRetry is after how long a refusal that no event answers is asked again, for refusals other than too few
	// credits. 1s to 1h, default 30s.
	RefusalRetry metav1.Duration `json:"refusalRetry,omitempty"`
}

// GangArgs are the arguments of the plugin Gang.
//
// +kubebuilder:object:root=true
type GangArgs struct {
	metav1.TypeMeta `json:",inline"`

	// CollectTimeout is how long the members of a gang that have a node wait for the others, before all give theirs back. A PodGroup's
	// scheduleTimeoutSeconds comes before it. 1s to 1h, default 30s.
	CollectTimeout metav1.Duration `json:"collectTimeout,omitempty"`
	// SweepPeriod is how often gangs are looked over: for a round whose time is over, and for one that may be tried again. 100ms to 1m,
	// default 1s.
	SweepPeriod metav1.Duration `json:"sweepPeriod,omitempty"`
}
