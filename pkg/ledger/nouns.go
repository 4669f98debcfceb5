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
	// EntryRefill does the same at the beginning of a refill period.
	EntryRefill EntryKind = "Refill"
	// EntryExpiry moves what was left of a lot from an account to SystemExpired.
	EntryExpiry EntryKind = "Expiry"
	// EntryCharge moves the price of one interval from an account to SystemRevenue.
	EntryCharge EntryKind = "Charge"
	// EntryRefund moves part of an attempt's charges from SystemRevenue back to the account that paid.
	EntryRefund EntryKind = "Refund"
	// EntryAdjustment corrects an account, in either direction, against SystemAdjustments.
	EntryAdjustment EntryKind = "Adjustment"
	// EntryTransfer moves credits from one account to another.
	EntryTransfer EntryKind = "Transfer"
)

// EntryKinds lists every kind.
var EntryKinds = []EntryKind{EntryGrant, EntryRefill, EntryExpiry, EntryCharge, EntryRefund, EntryAdjustment, EntryTransfer}

// The accounts on the other side. User account names follow the DNS-1123 subdomain rule, so a name with a colon can
// never collide.
const (
	SystemIssuance    = "system:issuance"
	SystemRevenue     = "system:revenue"
	SystemExpired     = "system:expired"
	SystemAdjustments = "system:adjustments"
)

// SystemAccounts lists them.
var SystemAccounts = []string{SystemIssuance, SystemRevenue, SystemExpired, SystemAdjustments}

// Account is one node of the account tree, with its projection (I2).
type Account struct {
	Name   string
	Parent string // empty for a root
	Policy Policy
	// PolicyVersion counts the account's policies from 1, or on from those of an account of the same name that was removed.
	PolicyVersion int64
	// Frozen says why nothing may be held or moved by hand; empty for an account in order. See FreezeAccount.
	Frozen string

	// As payer: Balance is the sum of its entries; Reserved what remains of open reservations that it pays for, 0 or more.
	Balance  Microcredits
	Reserved Microcredits
	// As spender, whoever pays: Held is what remains of its workloads' open reservations, Charged their charges less
	// refunds since the account began, Running its Active reservations. Each is 0 or more.
	Held    Microcredits
	Charged Microcredits
	Running int64

	// The same sums over this account and everything below it. I1 and the limits are checked on these for every ancestor,
	// so that splitting an account into many gains nothing.
	SubtreeBalance  Microcredits
	SubtreeReserved Microcredits
	SubtreeHeld     Microcredits
	SubtreeRunning  int64
	// SubtreeOverspent is the sum of Overspent over the same accounts. Checks of an ancestor leave it out, so that an
	// overspender stops itself and not its siblings (L24).
	SubtreeOverspent Microcredits
	// SubtreeSpent is the charges less refunds of all spenders of the subtree that were recorded since SpentSince, the
	// beginning of the current period of Policy.Spending. Both are zero without such a limit.
	SubtreeSpent Microcredits
	SpentSince   time.Time

	// RefilledAt is the beginning of the last refill period that was posted; zero before the first.
	RefilledAt time.Time
	// LastEntryAt is RecordedAt of its latest entry: the next one is not recorded before it, whatever the clocks say.
	LastEntryAt time.Time
	// DueAt is when something falls due by itself: a lot expires, a refill period or a spending period begins. Whoever
	// touches the account then or later gets it done; zero if nothing will.
	DueAt time.Time

	// Revision grows with every change of the row; readers use it to ask what changed.
	Revision int64
}

// Available is what the account may still reserve by its own balance, before overdraft. Ancestors may allow less.
func (a Account) Available() Microcredits { return a.Balance - a.Reserved }

// Overspent is how far the account's own available credits are below its overdraft limit, 0 or more. Holds never get it
// there; real usage beyond a hold (I9), adjustments, expiry and a lowered limit do.
func (a Account) Overspent() Microcredits {
	return max(0, -a.Policy.OverdraftLimit-a.Available())
}

// PolicyVersion is one version of an account's policy. Versions count from 1 and are never edited.
type PolicyVersion struct {
	Account string
	Version int64
	Policy  Policy
}

// Lot is a grant that expires. Its credits are part of the account's balance: Free ones may be held or charged, Held
// ones belong to open reservations; what is in neither was spent, or expired. Credits without expiry have no lot.
type Lot struct {
	Key     string // of the entry that brought it
	Account string
	Amount  Microcredits
	Free    Microcredits
	Held    Microcredits
	Expired Microcredits
	// ExpiresAt is when what is free leaves. What is held stays usable by its hold.
	ExpiresAt time.Time
}

// Take is an amount out of a lot.
type Take struct {
	Lot    string       `json:"lot"`
	Amount Microcredits `json:"microcredits"`
}

// DailySpending is a spender's charges less refunds that were recorded on one UTC day.
type DailySpending struct {
	Account string
	Day     time.Time
	Amount  Microcredits
}

// WorkloadRef names what the user asked for.
type WorkloadRef struct {
	Kind      string // "Job" or "Pod"
	Namespace string
	Name      string
}

// Reservation is the amount set aside for one workload, keyed by the workload's UID.
type Reservation struct {
	UID string
	// Account is the spender: whose workload it is. Payer is the account whose balance it is set aside on, the spender
	// itself or an account above it, as the policy said then (PolicyVersion of the spender).
	Account       string
	Payer         string
	PolicyVersion int64
	Workload      WorkloadRef
	Class         string
	// RateVersion is the version of Class's rate that the hold was priced with, Rate its value. Allocations under the
	// reservation are charged at it, whatever becomes of the class (L22).
	RateVersion int64
	Rate        Rate
	// MaxGPUs bounds the GPUs of its open allocations at any moment, so that a forged owner reference cannot run
	// more on a hold than was reserved.
	MaxGPUs int64
	// GPUSeconds is the most the workload may use; Amount is its price.
	// Renewals let both grow.
	GPUSeconds int64
	Amount     Microcredits
	// Takes is what of the remaining amount comes out of lots, earliest expiring first; the rest is permanent credits.
	Takes []Take
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
	// Refunded is what of Charged was given back, once at most, for the cause RefundedFor.
	Refunded    Microcredits
	RefundedFor RefundCause
}

// Open reports whether the allocation may still hold GPUs.
func (a Allocation) Open() bool {
	return a.State != AllocationEnded && a.State != AllocationReleased
}

// RefundCause says why an attempt's charge may be given back.
type RefundCause string

const (
	// RefundFailed: the attempt failed by itself.
	RefundFailed RefundCause = "Failed"
	// RefundPreempted: it was stopped for another.
	RefundPreempted RefundCause = "Preempted"
	// RefundDeviceFault: its node reported a fault of one of its GPUs.
	RefundDeviceFault RefundCause = "DeviceFault"
)

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
	ID     int64
	Key    string // event key, unique
	Kind   EntryKind
	Debit  string // the account that pays
	Credit string // the account that receives
	Amount Microcredits
	// Spender is whose workload a charge or refund is for; empty for other kinds.
	Spender     string
	Reservation string // empty for other kinds than charges and refunds
	Allocation  string // pod UID; likewise
	// Corrects is the ID of the entry that an adjustment corrects; 0 for none.
	Corrects int64
	// Draws is what of the amount left lots of the paying account. Of a grant that is a lot itself it is what filled a
	// balance below zero at once; a transfer has that of the lots that it brings (TransferredLotKey) after those that it draws on.
	Draws []Take
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

	// Those below are found by comparing what the sides say now, see docs/designs/discrepancies.md; those above when a report
	// comes in.

	// NodeDiffers: the API server shows the pod on another node than it was allocated on.
	NodeDiffers DiscrepancyKind = "NodeDiffers"
	// GPUsDiffer: the node metered the pod on other GPUs than it first reported.
	GPUsDiffer DiscrepancyKind = "GPUsDiffer"
	// MeteringGap: the node's agent reports other pods' time and has stopped to report this one's.
	MeteringGap DiscrepancyKind = "MeteringGap"
	// NodeOvercommitted: allocations that are open on one node have more GPUs than the node.
	NodeOvercommitted DiscrepancyKind = "NodeOvercommitted"
	// OpenAfterPod: the pod is over or gone, and its allocation is still open.
	OpenAfterPod DiscrepancyKind = "OpenAfterPod"
	// RunsUnallocated: the API server shows a pod that holds GPUs, and the ledger has no open allocation for it.
	RunsUnallocated DiscrepancyKind = "RunsUnallocated"
)

// DiscrepancyKinds lists every kind.
var DiscrepancyKinds = []DiscrepancyKind{
	IntervalConflict, IntervalOutsidePod, GPUChargedTwice, GPUCountDiffers, StartDiffers, EndUnknown, UnknownAllocation,
	NodeDiffers, GPUsDiffer, MeteringGap, NodeOvercommitted, OpenAfterPod, RunsUnallocated,
}

// MeteredAllocation is an open allocation with what its node has reported of it.
type MeteredAllocation struct {
	Allocation
	// MeteredUntil is the end of the latest interval that the node's agent sent; zero if it sent none.
	MeteredUntil time.Time
	// MeteredGPUs are the UUIDs of all the GPUs that it named, sorted.
	MeteredGPUs []string
}

// Discrepancy is a disagreement kept for a person, with both sides. Key makes a repeat impossible.
type Discrepancy struct {
	Key     string
	Kind    DiscrepancyKind
	PodUID  string
	Account string
	Ledger  string // what the ledger held
	Other   string // what the other side said
	FoundAt time.Time
	// ResolvedAt, Resolution and ResolvedBy say how a person closed it; zero while it is open. See Adjust.
	ResolvedAt             time.Time
	Resolution, ResolvedBy string
}
