package ledger

import "time"

// Times in this package are UTC with microsecond precision, the finest that PostgreSQL keeps; see Instant.

// ReservationState says what has become of the amount set aside for one workload.
type ReservationState string

const (
	// Held: the amount is set aside and nothing has been placed yet.
	Held ReservationState = "Held"
	// Active: at least one allocation was made under it.
	Active ReservationState = "Active"
	// Settled: the workload ended, its usage is charged and the remainder was given back. Final.
	Settled ReservationState = "Settled"
	// Released: the workload was cancelled before it used anything. Final.
	Released ReservationState = "Released"
	// Expired: the API server confirmed that the workload does not exist. Final.
	Expired ReservationState = "Expired"
)

// AllocationState says where one attempt (one pod UID) stands.
type AllocationState string

const (
	// AllocationIntended: committed by the scheduler; the pod may not be bound yet.
	AllocationIntended AllocationState = "Intended"
	// AllocationReleased: the intent was given up before binding. The same pod may be placed again.
	AllocationReleased AllocationState = "Released"
	// AllocationBound: the API server stored the binding.
	AllocationBound AllocationState = "Bound"
	// AllocationMetering: the pod's start on its node is known, so time is being held and charged.
	AllocationMetering AllocationState = "Metering"
	// AllocationSuspect: the node is silent; nothing is released until it is deleted or fenced, or comes back.
	AllocationSuspect AllocationState = "Suspect"
	// AllocationEnded: all held time is charged. Final.
	AllocationEnded AllocationState = "Ended"
)

// EntryKind says why money moved.
type EntryKind string

const (
	// EntryGrant moves credits from SystemIssuance to an account.
	EntryGrant EntryKind = "Grant"
	// EntryCharge moves the price of one interval from an account to SystemRevenue.
	EntryCharge EntryKind = "Charge"
)

// The two accounts on the other side of grants and charges. User account names follow the DNS-1123 subdomain
// rule, so a name with a colon can never collide.
const (
	SystemIssuance = "system:issuance"
	SystemRevenue  = "system:revenue"
)

// Policy is what an account's owner has decided about its spending.
type Policy struct {
	// OverdraftLimit is how far below zero available credits may fall through holds, 0 or more.
	OverdraftLimit Microcredits `json:"overdraft_limit_microcredits"`
	// DefaultMaxRuntimeSeconds bounds a pod that declares no bound of its own; 0 means that there is no default.
	DefaultMaxRuntimeSeconds int64 `json:"default_max_runtime_seconds"`
}

// Account is who pays, with its balance projection (I2).
type Account struct {
	Name   string
	Parent string // empty for a root
	Policy Policy

	Balance  Microcredits // own entries: grants minus charges
	Reserved Microcredits // own open reservations' remainders, ≥ 0
	Charged  Microcredits // own charges since the account began

	// The same sums over this account and everything below it. I1 is checked on these for every ancestor, so that
	// splitting an account into many gains nothing.
	SubtreeBalance  Microcredits
	SubtreeReserved Microcredits
	// SubtreeOverspent is the sum of Overspent over the same accounts. Checks of an ancestor leave it out, so that an
	// overspender stops itself and not its siblings (L24).
	SubtreeOverspent Microcredits

	// Revision grows with every change of the row; readers use it to ask what changed.
	Revision int64
}

// Available is what the account may still reserve by its own balance, before overdraft. Ancestors may allow less.
func (a Account) Available() Microcredits { return a.Balance - a.Reserved }

// Overspent is how far the account's own available credits are below its overdraft limit, 0 or more. Holds never get it
// there; real usage beyond a hold (I9) and a lowered limit do.
func (a Account) Overspent() Microcredits {
	return max(0, -a.Policy.OverdraftLimit-a.Available())
}

// WorkloadRef names what the user asked for.
type WorkloadRef struct {
	Kind      string // "Job" or "Pod"
	Namespace string
	Name      string
}

// Reservation is the amount set aside for one workload, keyed by the workload's UID.
type Reservation struct {
	UID      string
	Account  string
	Workload WorkloadRef
	Class    string
	// RateVersion is the version of Class's rate that the hold was priced with, Rate its value. Allocations under the
	// reservation are charged at it, whatever becomes of the class (L22).
	RateVersion int64
	Rate        Rate
	// MaxGPUs bounds the GPUs of its open allocations at any moment, so that a forged owner reference cannot run
	// more on a hold than was reserved.
	MaxGPUs int64
	// GPUSeconds is the most the workload may use; Amount is its price.
	GPUSeconds int64
	Amount     Microcredits
	// Charged is the price of what was used so far. Beyond Amount it is Overrun (I9).
	Charged Microcredits
	State   ReservationState
	Reason  string // why it was closed
	// CreatedAt and ClosedAt; ClosedAt is zero while it is open.
	CreatedAt, ClosedAt time.Time
}

// Remaining is what is still set aside: Amount − Charged, never below zero, and zero once closed.
func (r Reservation) Remaining() Microcredits {
	if !r.Open() || r.Charged >= r.Amount {
		return 0
	}
	return r.Amount - r.Charged
}

// Overrun is usage beyond the hold. It was charged all the same (I9).
func (r Reservation) Overrun() Microcredits { return max(0, r.Charged-r.Amount) }

// Open reports whether the reservation still sets credits aside.
func (r Reservation) Open() bool { return r.State == Held || r.State == Active }

// Allocation is one attempt at a workload: one pod holding particular GPUs of one node.
type Allocation struct {
	PodUID      string
	Pod         WorkloadRef // Kind "Pod"
	Reservation string      // UID
	Account     string
	Node        string
	Class       string
	RateVersion int64
	Rate        Rate
	GPUs        int64
	GPUUUIDs    []string // as reported by the node, sorted; empty until it reports
	LeaderEpoch int64    // the scheduler that decided it
	State       AllocationState
	// StartedAt is the pod's own start on its node (status.startTime), EndedAt its last container's finish.
	// Both are zero until known. I4 counts from StartedAt, so it is fixed once.
	IntendedAt, StartedAt, EndedAt time.Time
	// LastSeen is the node's last lease renewal, recorded when the allocation becomes Suspect.
	LastSeen time.Time
	Charged  Microcredits
}

// Open reports whether the allocation may still hold GPUs.
func (a Allocation) Open() bool {
	return a.State != AllocationEnded && a.State != AllocationReleased
}

// IntervalSource says who vouches for an interval.
type IntervalSource string

const (
	// SourceAgent: measured by the node agent.
	SourceAgent IntervalSource = "Agent"
	// SourceDerived: no agent interval covers it; taken from the pod's own start and finish.
	SourceDerived IntervalSource = "Derived"
)

// Interval is [Start, End) of an allocation's held time, the unit of metering.
type Interval struct {
	PodUID     string
	Start, End time.Time
	Source     IntervalSource
	Charge     Microcredits
	ReceivedAt time.Time
}

// DeviceHold is the time for which one allocation was metered on one GPU, from its first interval to its last.
type DeviceHold struct {
	GPUUUID    string
	PodUID     string
	Start, End time.Time
}

// RateVersion is one version of a GPU class's price. Versions count from 1 and are never edited.
type RateVersion struct {
	Class   string
	Version int64
	Rate    Rate
}

// Entry is one movement of money, with a debit and a credit side (I10). Immutable (I8).
type Entry struct {
	ID          int64
	Key         string // event key, unique
	Kind        EntryKind
	Debit       string // the account that pays
	Credit      string // the account that receives
	Amount      Microcredits
	Reservation string // empty for grants
	Allocation  string // pod UID; empty for grants
	// OccurredAt is when it became due: the interval's end, or the grant's acceptance. RecordedAt is when it was committed.
	OccurredAt, RecordedAt time.Time
	Reason                 string
	Actor                  string
}

// DiscrepancyKind names a disagreement between node, scheduler, pod status and ledger.
type DiscrepancyKind string

const (
	// IntervalConflict: a second, different interval over time that is already charged.
	IntervalConflict DiscrepancyKind = "IntervalConflict"
	// IntervalOutsidePod: an interval before the pod's start or after its end.
	IntervalOutsidePod DiscrepancyKind = "IntervalOutsidePod"
	// GPUChargedTwice: one exclusive GPU is charged to two allocations for the same time (I3).
	GPUChargedTwice DiscrepancyKind = "GPUChargedTwice"
	// GPUCountDiffers: the node reports another number of GPUs than was allocated.
	GPUCountDiffers DiscrepancyKind = "GPUCountDiffers"
	// StartDiffers: two reports of the pod's start disagree; the first stands.
	StartDiffers DiscrepancyKind = "StartDiffers"
	// EndUnknown: the pod vanished before its finish was seen; it is charged to the last moment that is vouched for.
	EndUnknown DiscrepancyKind = "EndUnknown"
	// UnknownAllocation: a node meters a pod that the ledger has no allocation for.
	UnknownAllocation DiscrepancyKind = "UnknownAllocation"
)

// Discrepancy is a disagreement kept for a person, with both sides. Key makes a repeat impossible.
type Discrepancy struct {
	Key     string
	Kind    DiscrepancyKind
	PodUID  string
	Account string
	Ledger  string // what the ledger held
	Other   string // what the other side said
	FoundAt time.Time
}
