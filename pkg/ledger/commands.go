package ledger

import "time"

// Command asks the ledger for one change. Its key is chosen by the caller; the same key with the same content gives
// the same verdict again and changes nothing, the same key with other content is refused as KeyReused (I6).
// Refusals are remembered too, so a caller that wants a fresh decision brings a fresh key; but for those that only say
// "not yet" or "not you", see RefusalCode.Retryable.
type Command interface {
	// CommandKey returns the idempotency key, 1 to 512 bytes.
	CommandKey() string
	isCommand()
}

// SetAccount creates an account or replaces its parent and policy. A parent must exist; a cycle is refused.
type SetAccount struct {
	Key     string
	Account string
	Parent  string
	Policy  Policy
}

// RemoveAccount removes an account that has no entries, reservations or children.
type RemoveAccount struct {
	Key     string
	Account string
}

// SetRate gives a GPU class a new rate version, unless the newest one already says the same.
type SetRate struct {
	Key   string
	Class string
	Rate  Rate
}

// PostGrant adds credits to an account.
type PostGrant struct {
	Key     string
	Account string
	Amount  Microcredits // 1 or more
	// ExpiresAt makes it a lot that expires then; zero for credits that stay. Refused when it is past.
	ExpiresAt time.Time
	Reason    string
	Actor     string
}

// Adjust corrects an account by a new entry, in either direction and whatever its balance.
type Adjust struct {
	Key     string
	Account string
	// Amount is added to the balance; negative takes away. 0 only together with Discrepancy: then there is no entry.
	Amount Microcredits
	// Corrects is the ID of the entry that was wrong, which must be one of the account's; 0 for none.
	Corrects int64
	// Discrepancy is the key of a disagreement that this closes; empty for none.
	Discrepancy string
	Reason      string // 1 or more bytes
	Actor       string
}

// Transfer moves credits between accounts. The giver must have them available without its overdraft, and so must every
// account above it that is not above the receiver too. Credits that expire keep their expiry.
type Transfer struct {
	Key      string
	From, To string
	Amount   Microcredits // 1 or more
	Reason   string
	Actor    string
}

// FreezeAccount stops all holds, renewals, transfers and grants of an account, and of spenders that it pays for, until it is
// unfrozen. Usage is charged on (I9), and adjustments are possible: they are how a person repairs it.
type FreezeAccount struct {
	Key     string
	Account string
	Reason  string // 1 or more bytes
}

// UnfreezeAccount ends a freeze.
type UnfreezeAccount struct {
	Key     string
	Account string
	Reason  string // 1 or more bytes
	Actor   string
}

// PostDue touches an account, so that what has fallen due is posted; every command does so for the accounts it touches.
type PostDue struct {
	Key     string
	Account string
}

// PlaceHold sets aside rate × GPUSeconds for a workload. A workload that already has an open reservation with the
// same terms is answered with it, whatever the key.
type PlaceHold struct {
	Key        string
	UID        string // the workload's UID
	Account    string
	Workload   WorkloadRef
	Class      string
	MaxGPUs    int64 // GPUs of one pod × pods at once; 1 or more
	GPUSeconds int64 // 1 or more
}

// RenewHold extends an open reservation by GPU-seconds at its own rate, within the same limits as a new hold.
type RenewHold struct {
	Key        string
	UID        string
	GPUSeconds int64 // 1 or more, to add
}

// EnsureHold sets aside what Hold asks for from now on, whatever was used before: it places the hold, or makes the open reservation
// of the same workload cover as much. It never takes anything away. A reservation that sets nothing aside and has no open allocation is
// priced anew, for Hold's class; any other one keeps its class, price and payer, and grows.
type EnsureHold struct {
	Key  string
	Hold PlaceHold // its Key is unused
	// From is the reservation's GPUSeconds that the caller saw, 0 for no reservation: a reservation that has changed since is
	// left as it is (TermsDiffer), so that nobody who is late adds to a hold that is in use.
	From int64
}

// PauseHold gives back all that an open reservation still sets aside and leaves it open: its workload waits for another
// admission, and no pod can be placed until EnsureHold. Refused while an allocation under it is open (ReservationInUse).
type PauseHold struct {
	Key string
	UID string
	// From is the reservation's GPUSeconds that the caller saw, as in EnsureHold.
	From int64
}

// CloseReservation ends a reservation: Settled when anything was allocated under it, else Released or Expired as
// asked. Refused while an allocation under it is open (ReservationInUse).
type CloseReservation struct {
	Key     string
	UID     string
	Outcome ReservationState // Settled, Released or Expired
	Reason  string
}

// Allocate records that a pod is about to be bound. An allocation that is still Intended, or Released, is
// re-targeted, so that a pod that is scheduled again after a crash keeps its row. Refused under a stale leader
// epoch (StaleEpoch), without an open reservation (NoReservation), or when the hold's MaxGPUs would be exceeded.
type Allocate struct {
	Key         string
	PodUID      string
	Pod         WorkloadRef
	Reservation string // the workload's UID
	Account     string // must be the reservation's
	Node        string
	Class       string // must be the reservation's
	GPUs        int64
	Leader      string // name of the leadership, e.g. the scheduler name
	LeaderEpoch int64
	// Hold, if set, is placed first when the workload has no reservation yet (a pod that bypassed the webhook).
	// The verdict is one: either both happen or neither.
	Hold *PlaceHold
	// AlreadyRunning says that the API server shows the pod bound to Node, placed by someone who did not ask. Real usage
	// is never refused (I9): neither missing credits nor the hold's MaxGPUs refuse it, and Hold is placed all the same.
	AlreadyRunning bool
}

// AllocateGang is the Allocates of pods that are placed together: all of them happen, or nothing does. Limits are asked once
// for the whole gang: credits for the sum of the holds that it brings, a reservation's MaxGPUs for all of its pods, the
// limit of running jobs for all reservations that begin to run. A member that is bound to its node already is passed over.
type AllocateGang struct {
	Key string
	// Members are 1 to MaxGangMembers, each another pod, all of one account and under one leader's epoch. Their keys, and their holds', are
	// not used; AlreadyRunning is refused.
	Members []Allocate
}

// ConfirmBound records that the API server shows the pod on Node.
type ConfirmBound struct {
	Key    string
	PodUID string
	Node   string
}

// ReleaseAllocation gives up an intent. It changes nothing when the pod is bound, already released or unknown.
type ReleaseAllocation struct {
	Key    string
	PodUID string
	Reason string
}

// RecordStart fixes when the pod started on its node. The first report stands; another one is a discrepancy.
type RecordStart struct {
	Key       string
	PodUID    string
	StartedAt time.Time
}

// RecordInterval charges one measured interval. See DESIGN §4.3 for what is refused and what becomes a discrepancy.
type RecordInterval struct {
	Key          string
	PodUID       string
	Node         string
	OwnerEpoch   int64 // the node agent's epoch, from RegisterNodeAgent
	PodStartedAt time.Time
	Start, End   time.Time
	GPUUUIDs     []string
}

// EndAllocation charges whatever of [StartedAt, EndedAt) no interval covers, marked Derived, and ends the allocation.
// A zero StartedAt means that the pod never held its GPUs: nothing is charged.
type EndAllocation struct {
	Key                string
	PodUID             string
	StartedAt, EndedAt time.Time
	Reason             string
	// EndUnknown records that EndedAt is only the last moment anyone vouches for.
	EndUnknown bool
}

// Refund gives back of an ended attempt's charge what its spender's policy says for the cause, which may be nothing.
// An attempt has one refund.
type Refund struct {
	Key    string
	PodUID string
	Cause  RefundCause
	// CheckpointedAt is when the attempt's last durable checkpoint was made; zero if it reported none.
	CheckpointedAt time.Time
	Reason         string
}

// MarkSuspect records that the allocation's node is silent since LastSeen.
type MarkSuspect struct {
	Key      string
	PodUID   string
	LastSeen time.Time
}

// ClearSuspect records that the node is back.
type ClearSuspect struct {
	Key    string
	PodUID string
}

func (c SetAccount) CommandKey() string        { return c.Key }
func (c RemoveAccount) CommandKey() string     { return c.Key }
func (c SetRate) CommandKey() string           { return c.Key }
func (c PostGrant) CommandKey() string         { return c.Key }
func (c Adjust) CommandKey() string            { return c.Key }
func (c Transfer) CommandKey() string          { return c.Key }
func (c FreezeAccount) CommandKey() string     { return c.Key }
func (c UnfreezeAccount) CommandKey() string   { return c.Key }
func (c PostDue) CommandKey() string           { return c.Key }
func (c RenewHold) CommandKey() string         { return c.Key }
func (c EnsureHold) CommandKey() string        { return c.Key }
func (c PauseHold) CommandKey() string         { return c.Key }
func (c Refund) CommandKey() string            { return c.Key }
func (c PlaceHold) CommandKey() string         { return c.Key }
func (c CloseReservation) CommandKey() string  { return c.Key }
func (c Allocate) CommandKey() string          { return c.Key }
func (c AllocateGang) CommandKey() string      { return c.Key }
func (c ConfirmBound) CommandKey() string      { return c.Key }
func (c ReleaseAllocation) CommandKey() string { return c.Key }
func (c RecordStart) CommandKey() string       { return c.Key }
func (c RecordInterval) CommandKey() string    { return c.Key }
func (c EndAllocation) CommandKey() string     { return c.Key }
func (c MarkSuspect) CommandKey() string       { return c.Key }
func (c ClearSuspect) CommandKey() string      { return c.Key }

func (SetAccount) isCommand()        {}
func (RemoveAccount) isCommand()     {}
func (SetRate) isCommand()           {}
func (PostGrant) isCommand()         {}
func (Adjust) isCommand()            {}
func (Transfer) isCommand()          {}
func (FreezeAccount) isCommand()     {}
func (UnfreezeAccount) isCommand()   {}
func (PostDue) isCommand()           {}
func (RenewHold) isCommand()         {}
func (EnsureHold) isCommand()        {}
func (PauseHold) isCommand()         {}
func (Refund) isCommand()            {}
func (PlaceHold) isCommand()         {}
func (CloseReservation) isCommand()  {}
func (Allocate) isCommand()          {}
func (AllocateGang) isCommand()      {}
func (ConfirmBound) isCommand()      {}
func (ReleaseAllocation) isCommand() {}
func (RecordStart) isCommand()       {}
func (RecordInterval) isCommand()    {}
func (EndAllocation) isCommand()     {}
func (MarkSuspect) isCommand()       {}
func (ClearSuspect) isCommand()      {}
