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

// FairQueueArgs are the arguments of the plugin FairQueue. What an account's policy says wins over its defaults here.
//
// +kubebuilder:object:root=true
type FairQueueArgs struct {
	metav1.TypeMeta `json:",inline"`

	// HalfLife is how long until usage counts half, among the accounts without a parent and where a parent's policy says
	// nothing. 1m to 8760h, default 168h.
	HalfLife metav1.Duration `json:"halfLife,omitempty"`
	// Aging is the longest time by which a priority lets a pod go before an older one of the same account, where the account's
	// policy says nothing. 0s to 8760h, default 24h.
	Aging *metav1.Duration `json:"aging,omitempty"`
	// MaxWait is how long an account that runs nothing waits for its turn whatever it used before, where its policy says
	// nothing; 0s for ever. 0s to 8760h, default 24h.
	MaxWait *metav1.Duration `json:"maxWait,omitempty"`
	// QuotaPatience is how long a pod is held back by a limit until others under the same limit no longer overtake it.
	// 0s to 24h, default 10m.
	QuotaPatience *metav1.Duration `json:"quotaPatience,omitempty"`
	// AlikeRetry is after how long another of an account's pods that look alike is tried, when one fits nowhere. 1s to 1h,
	// default 1m.
	AlikeRetry metav1.Duration `json:"alikeRetry,omitempty"`
	// SweepPeriod is how often the queue is looked over for a turn that was missed. 50ms to 10s, default 250ms.
	SweepPeriod metav1.Duration `json:"sweepPeriod,omitempty"`
	// HistoryPeriod is how often past usage is read from the ledger. 1m to 24h, default 10m.
	HistoryPeriod metav1.Duration `json:"historyPeriod,omitempty"`
	// HistoryPatience is how long at its start the scheduler waits for the first answer, before it begins without the past.
	// 0s to 10m, default 10s.
	HistoryPatience *metav1.Duration `json:"historyPatience,omitempty"`
	// ExplainAfter is how long a pod waits for its turn or a limit until its condition PodScheduled says so. 0s to 1h,
	// default 5s.
	ExplainAfter *metav1.Duration `json:"explainAfter,omitempty"`
	// ExplainPerSecond is how many conditions are written per second at most. 1 to 1000, default 20.
	ExplainPerSecond int32 `json:"explainPerSecond,omitempty"`
}

// CheckpointPreemptionArgs are the arguments of the plugin CheckpointPreemption. Durations are cut to whole seconds.
//
// +kubebuilder:object:root=true
type CheckpointPreemptionArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Leadership is CreditReservation's: decisions are recorded under its epoch. Default gpubank-scheduler.
	Leadership string `json:"leadership,omitempty"`
	// DefaultInterval is how much work a running pod that reports no checkpoint is taken to lose at most. 1m to 24h, default 30m.
	DefaultInterval metav1.Duration `json:"defaultInterval,omitempty"`
	// AgeCap is the age beyond which a checkpoint counts as no older, so that nothing is immune. At least DefaultInterval, at most
	// 720h, default 4h.
	AgeCap metav1.Duration `json:"ageCap,omitempty"`
	// MaxRestart bounds the restart time that a pod claims. 0s to 24h, default 30m.
	MaxRestart *metav1.Duration `json:"maxRestart,omitempty"`
	// Cooldown is how long after its start a workload is left alone that was stopped within the hour before. 0s to 1h, default 10m.
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// StopPatience is how long after its grace period a pod's stop is waited for before its place is given up. 10s to 1h, default 2m.
	StopPatience metav1.Duration `json:"stopPatience,omitempty"`
	// OwnAccountOnly keeps priority from stopping pods of other accounts; what is below its guaranteed share may reclaim all the same.
	OwnAccountOnly bool `json:"ownAccountOnly,omitempty"`
	// KueueNamespaces selects the namespaces in which Kueue manages what names one of its queues; that is neither stopped nor stops anything
	// here. Default: none. Which pods name a queue is their authors' word, so it counts only where an operator says so.
	KueueNamespaces *metav1.LabelSelector `json:"kueueNamespaces,omitempty"`
}
