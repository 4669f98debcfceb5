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
