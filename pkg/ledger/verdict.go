package ledger

import "fmt"

// Verdict is the ledger's answer to one command. What is remembered (I6) is the answer: whether it was refused and why, and
// what it moved. The rows are as they stand when the verdict is given, also when a command is repeated.
type Verdict struct {
	// Refusal is nil when the command was carried out, or had been before.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Reservation, Allocation and Account are the rows after the command, where it concerns one.
	Reservation *Reservation `json:"-"`
	Allocation  *Allocation  `json:"-"`
	Account     *Account     `json:"-"`
	RateVersion int64        `json:"rate_version,omitempty"`
	// Charged is what this command moved from the account to revenue, Refunded what it moved back.
	Charged  Microcredits `json:"charged,omitempty"`
	Refunded Microcredits `json:"refunded,omitempty"`
	// Replayed: the answer is the remembered one, and nothing changed now.
	Replayed bool `json:"-"`
}

// answer is the part of a verdict that is remembered.
func (v Verdict) answer() Verdict {
	return Verdict{Refusal: v.Refusal, RateVersion: v.RateVersion, Charged: v.Charged, Refunded: v.Refunded}
}

// RefusalCode is why a command was refused. Codes are stable; messages are for people.
type RefusalCode string

const (
	InsufficientCredits RefusalCode = "InsufficientCredits" // Refusal.Account is the one whose limit refuses
	SpendingLimited     RefusalCode = "SpendingLimited"     // Refusal.Account's limit for a period refuses
	RunningLimited      RefusalCode = "RunningLimited"      // Refusal.Account's limit of running jobs refuses
	AccountFrozen       RefusalCode = "AccountFrozen"
	AlreadyRefunded     RefusalCode = "AlreadyRefunded"
	AlreadyResolved     RefusalCode = "AlreadyResolved"
	AlreadyExpired      RefusalCode = "AlreadyExpired"
	StillRunning        RefusalCode = "StillRunning" // the attempt has not ended
	UnknownEntry        RefusalCode = "UnknownEntry"
	UnknownDiscrepancy  RefusalCode = "UnknownDiscrepancy"
	UnknownAccount      RefusalCode = "UnknownAccount"
	UnknownClass        RefusalCode = "UnknownClass"
	UnknownReservation  RefusalCode = "UnknownReservation"
	UnknownPod          RefusalCode = "UnknownPod" // no allocation for this pod UID
	AccountInUse        RefusalCode = "AccountInUse"
	ReservationInUse    RefusalCode = "ReservationInUse" // an allocation under it is open
	ReservationClosed   RefusalCode = "ReservationClosed"
	NoReservation       RefusalCode = "NoReservation"
	HoldExceeded        RefusalCode = "HoldExceeded" // more GPUs at once than the hold covers
	TermsDiffer         RefusalCode = "TermsDiffer"  // the UID already has a reservation with other terms
	AlreadyBound        RefusalCode = "AlreadyBound" // bound to another node
	AllocationOver      RefusalCode = "AllocationOver"
	StaleEpoch          RefusalCode = "StaleEpoch" // a newer leader or node agent exists (I7)
	KeyReused           RefusalCode = "KeyReused"  // same key, other content (I6)
	Conflict            RefusalCode = "Conflict"   // overlaps a different interval; kept as a discrepancy
	OutsidePod          RefusalCode = "OutsidePod" // outside the pod's own start and end; kept as a discrepancy
	InTheFuture         RefusalCode = "InTheFuture"
	Invalid             RefusalCode = "Invalid" // malformed: says which field and why
	OutOfRange          RefusalCode = "OutOfRange"
)

// Refusal is the ledger's "no". It is an answer, not a failure: repeating the command under the same
// key will not change it, unless its code is Retryable.
type Refusal struct {
	Code    RefusalCode `json:"code"`
	Message string      `json:"message"`
	// For InsufficientCredits and SpendingLimited: which account's limit refuses, what was needed and what that limit
	// leaves (including an overdraft limit). For RunningLimited, the account alone.
	Account   string       `json:"account,omitempty"`
	Needed    Microcredits `json:"needed,omitempty"`
	Available Microcredits `json:"available,omitempty"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }
