package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AccountPolicy is what the account's owner has decided about its spending. Each field says what its absence means; the
// rules are those of docs/designs/ledger-rules.md.
type AccountPolicy struct {
	// DefaultMaxRuntime bounds a pod that declares neither activeDeadlineSeconds nor the annotation
	// gpubank.io/max-runtime. Without it, such a pod is refused. Whole seconds, 1s to 8760h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h') && duration(self).getMilliseconds() % 1000 == 0",message="defaultMaxRuntime must be whole seconds from 1s to 8760h, such as 24h"
	DefaultMaxRuntime *metav1.Duration `json:"defaultMaxRuntime,omitempty"`
	// OverdraftLimit is how far below zero holds may take the available credits, "0" or more. Absent: "0".
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="overdraftLimit must not be negative"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="overdraftLimit must be at most 4000000000000, the most that the ledger keeps"
	OverdraftLimit Credits `json:"overdraftLimit,omitempty"`
	// Funding says whose balance pays for the account's workloads: its Own, or that of the first Ancestor above it whose
	// funding is Own.
	// +optional
	// +kubebuilder:default=Own
	Funding Funding `json:"funding,omitempty"`
	// Spending bounds what the account and everything below it spend in a calendar period. Absent: no bound.
	// +optional
	Spending *SpendingLimit `json:"spending,omitempty"`
	// RunningJobs bounds the workloads of the account and everything below it that run at once. Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000000000
	RunningJobs int64 `json:"runningJobs,omitempty"`
	// GPUs bounds the GPUs that the account and everything below it use at once, by class. A class that is not named has
	// no bound. At most 50 classes.
	// ---
	// 52 of the longest names with the highest numbers fit the text of 4,096 bytes in which the ledger keeps them.
	// +optional
	// +listType=map
	// +listMapKey=class
	// +kubebuilder:validation:MaxItems=50
	GPUs []GPULimit `json:"gpus,omitempty"`
	// FairShare says how the account competes for GPUs that several accounts want. The scheduler follows it at once; the ledger
	// does not keep it.
	// +optional
	// +kubebuilder:default={}
	FairShare FairSharePolicy `json:"fairShare,omitzero"`
	// HoldAt says when what a workload may cost is set aside: at Submission, as one hold of the whole workload; at Admission, as
	// the same hold, when Kueue admits a Job, and given back while it is not admitted (whatever does not wait for Kueue is held at
	// submission); or at Placement, for each of its pods when it is placed.
	// +optional
	// +kubebuilder:default=Submission
	HoldAt HoldMoment `json:"holdAt,omitempty"`
	// Overrun says what becomes of a workload that outlasts its hold.
	// +optional
	// +kubebuilder:default={}
	Overrun OverrunPolicy `json:"overrun,omitzero"`
	// Refunds says what is given back of an attempt that failed, was preempted or met a device fault. Absent: nothing.
	// +optional
	Refunds *RefundPolicy `json:"refunds,omitempty"`
	// Refill adds credits at the beginning of each period. Absent: none.
	// +optional
	Refill *RefillPolicy `json:"refill,omitempty"`
}

// Funding says whose balance pays.
// +kubebuilder:validation:Enum=Own;Ancestor
type Funding string

const (
	FundingOwn      Funding = "Own"
	FundingAncestor Funding = "Ancestor"
)

// SpendingLimit bounds remaining holds plus charges less refunds since the period began.
type SpendingLimit struct {
	// Credits that may be spent in one period, more than 0.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="spending.credits must be more than 0"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="spending.credits must be at most 4000000000000, the most that the ledger keeps"
	Credits Credits `json:"credits"`
	// Period is a calendar period in UTC; weeks begin on Monday.
	Period Period `json:"period"`
}

// Period is a calendar period.
// +kubebuilder:validation:Enum=Day;Week;Month;Quarter;Year
type Period string

const (
	PeriodDay     Period = "Day"
	PeriodWeek    Period = "Week"
	PeriodMonth   Period = "Month"
	PeriodQuarter Period = "Quarter"
	PeriodYear    Period = "Year"
)

// GPULimit bounds the GPUs of one class.
type GPULimit struct {
	// Class is the name of a GPUClass.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="class must be the name of a GPUClass"
	Class string `json:"class"`
	// Guaranteed GPUs are the account's own share, 0 to 100000.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Guaranteed int64 `json:"guaranteed"`
	// Borrowable is how many more it may use while others leave theirs idle, 0 to 100000.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Borrowable int64 `json:"borrowable"`
}

// FairSharePolicy says how an account competes. docs/designs/fairqueue.md has the order in which it counts.
type FairSharePolicy struct {
	// Weight among the accounts with the same parent: twice the weight is twice the share.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Weight int64 `json:"weight,omitempty"`
	// HalfLife is how long until usage counts half, in comparisons among the accounts directly below this one and its own pods.
	// Absent: the scheduler's, 168h. Whole seconds, 1m to 8760h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h') && duration(self).getMilliseconds() % 1000 == 0",message="fairShare.halfLife must be whole seconds from 1m to 8760h, such as 168h"
	HalfLife *metav1.Duration `json:"halfLife,omitempty"`
	// Aging is the longest time by which a pod's priority lets it go before an older pod of this account. Absent: the
	// scheduler's, 24h. Whole seconds, 0s to 8760h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('8760h') && duration(self).getMilliseconds() % 1000 == 0",message="fairShare.aging must be whole seconds from 0s to 8760h, such as 24h"
	Aging *metav1.Duration `json:"aging,omitempty"`
	// MaxWait is how long the account's oldest pod waits, while nothing of the account runs, until it goes before every account that
	// is not below its guaranteed share, whatever was used before. 0s: never. Absent: the scheduler's, 24h. Whole seconds, 0s to 8760h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('8760h') && duration(self).getMilliseconds() % 1000 == 0",message="fairShare.maxWait must be whole seconds from 0s to 8760h, such as 24h"
	MaxWait *metav1.Duration `json:"maxWait,omitempty"`
	// Floors are minimums for some of the account's own pods, such as those that serve: while these hold fewer GPUs, they go before
	// everyone. Who is not among them may use what of a floor is idle.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=class
	// +kubebuilder:validation:MaxItems=20
	Floors []GPUFloor `json:"floors,omitempty"`
}

// GPUFloor is a minimum of GPUs of one class for the account's pods with the label gpubank.io/floor of that name.
type GPUFloor struct {
	// Name is the value of the pods' label gpubank.io/floor.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Class is the name of a GPUClass.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="class must be the name of a GPUClass"
	Class string `json:"class"`
	// GPUs that are theirs, 1 to 100000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	GPUs int64 `json:"gpus"`
}

// HoldMoment says when a workload's hold is placed.
// +kubebuilder:validation:Enum=Submission;Admission;Placement
type HoldMoment string

const (
	HoldAtSubmission HoldMoment = "Submission"
	HoldAtAdmission  HoldMoment = "Admission"
	HoldAtPlacement  HoldMoment = "Placement"
)

// OverrunPolicy says what becomes of a workload that outlasts its hold.
// +kubebuilder:validation:XValidation:rule="!has(self.action) || self.action != 'Renew' || (has(self.step) && duration(self.step) >= duration('1s'))",message="overrun.action Renew needs overrun.step: by how much run time a renewal extends the hold, 1s or more"
type OverrunPolicy struct {
	// Action: Stop it when its hold is used up; Renew the hold in steps while every limit allows it, then stop it; or let
	// it run on in Overdraft while its payer stays within the overdraft limit, then stop it. Real usage is charged in
	// every case.
	// +optional
	// +kubebuilder:default=Stop
	Action OverrunAction `json:"action,omitempty"`
	// Lead is how long before a hold is used up it is renewed, or an event announces the stop. Absent: 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('87600h') && duration(self).getMilliseconds() % 1000 == 0",message="overrun.lead must be whole seconds from 0s to 87600h, such as 10m"
	Lead *metav1.Duration `json:"lead,omitempty"`
	// Step is by how much run time, on all its GPUs, a renewal extends the hold.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('87600h') && duration(self).getMilliseconds() % 1000 == 0",message="overrun.step must be whole seconds from 0s to 87600h, such as 30m"
	Step *metav1.Duration `json:"step,omitempty"`
}

// OverrunAction says what becomes of a workload that outlasts its hold.
// +kubebuilder:validation:Enum=Stop;Renew;Overdraft
type OverrunAction string

const (
	OverrunStop      OverrunAction = "Stop"
	OverrunRenew     OverrunAction = "Renew"
	OverrunOverdraft OverrunAction = "Overdraft"
)

// RefundPolicy says what is given back of one attempt's charge.
type RefundPolicy struct {
	// FailedPercent of the charge of an attempt that failed by itself, 0 to 100.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailedPercent int64 `json:"failedPercent"`
	// PreemptedPercent of the charge of an attempt that was stopped for another, 0 to 100.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PreemptedPercent int64 `json:"preemptedPercent"`
	// PreemptedSinceCheckpoint gives a preempted attempt the price of the time since its last checkpoint instead, of all
	// its time if it reported none.
	// +optional
	// +kubebuilder:default=false
	PreemptedSinceCheckpoint bool `json:"preemptedSinceCheckpoint"`
	// DeviceFault gives everything back when the node reported a fault of a GPU (an XID error).
	// +optional
	// +kubebuilder:default=false
	DeviceFault bool `json:"deviceFault"`
}

// RefillPolicy is a token bucket.
// ---
// The ledger bounds cap ÷ credits, in whole numbers, by 1000: cap < 1001 × credits. A quantity with the suffix k is 1000
// of it, exactly.
// +kubebuilder:validation:XValidation:rule="quantity(self.cap).compareTo(quantity(self.credits)) >= 0",message="refill.cap must be at least refill.credits"
// +kubebuilder:validation:XValidation:rule="quantity(self.cap).isLessThan(quantity(self.credits + 'k').add(quantity(self.credits)))",message="refill.cap must be at most 1000 times refill.credits"
type RefillPolicy struct {
	// Credits to add at the beginning of each period, more than 0.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="refill.credits must be more than 0"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="refill.credits must be at most 4000000000000, the most that the ledger keeps"
	Credits Credits `json:"credits"`
	// Period: periods are whole multiples of it since 1970-01-01 UTC, and the one in which the policy is set is the first.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+([.][0-9]{1,3})?(h|m|s)|[0-9]+ms)+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h') && duration(self).getMilliseconds() % 1000 == 0",message="refill.period must be whole seconds from 1s to 87600h, such as 168h"
	Period metav1.Duration `json:"period"`
	// Cap is the balance up to which credits are added.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="refill.cap must be more than 0"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="refill.cap must be at most 4000000000000, the most that the ledger keeps"
	Cap Credits `json:"cap"`
}
