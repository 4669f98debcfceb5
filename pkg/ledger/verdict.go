package ledger

import "fmt"

// Verdict is the ledger's answer to one command.
type Verdict struct {
	// Refusal is nil when the command was carried out, or had been before.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Reservation, Allocation and Account are the rows after the command, where it concerns one.
	Reservation *Reservation `json:"reservation,omitempty"`
	Allocation  *Allocation  `json:"allocation,omitempty"`
	Account     *Account     `json:"account,omitempty"`
	RateVersion int64        `json:"rate_version,omitempty"`
	// Charged is what this command moved from the account to revenue.
	Charged Microcredits `json:"charged,omitempty"`
	// Replayed: the answer is the remembered one, and nothing changed now.
	Replayed bool `json:"-"`
}

// RefusalCode is why a command was refused. Codes are stable; messages are for people.
type RefusalCode string

const (
	InsufficientCredits RefusalCode = "InsufficientCredits" // Refusal.Account is the one whose limit refuses
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
	// For InsufficientCredits: which account's limit refuses, what was needed and what it has available
	// (including its overdraft limit).
	Account   string       `json:"account,omitempty"`
	Needed    Microcredits `json:"needed,omitempty"`
	Available Microcredits `json:"available,omitempty"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }
