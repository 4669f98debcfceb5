package ledger

import "time"

// Statement is one account's movements in [From, To), by the time they were recorded, so that a statement of a past
// period never changes. It adds up by construction: Opening + Σ Lines.Amount = Closing.
type Statement struct {
	Account string       `json:"account"`
	From    time.Time    `json:"from"`
	To      time.Time    `json:"to"`
	Opening Microcredits `json:"opening_microcredits"`
	Closing Microcredits `json:"closing_microcredits"`
	// Reserved is what open reservations set aside when the statement was made, at AsOf.
	Reserved Microcredits `json:"reserved_microcredits"`
	AsOf     time.Time    `json:"as_of"`
	// Lines are ordered by (RecordedAt, EntryID).
	Lines []StatementLine `json:"lines"`
	// Workloads are the reservations that were open in the period or had a charge recorded in it, oldest first.
	Workloads []WorkloadSummary `json:"workloads"`
}

// StatementLine is one entry as the account sees it.
type StatementLine struct {
	EntryID int64     `json:"entry_id"`
	Kind    EntryKind `json:"kind"`
	// Amount is positive when the account receives, negative when it pays.
	Amount Microcredits `json:"amount_microcredits"`
	// Balance is the account's balance after the entry.
	Balance     Microcredits `json:"balance_microcredits"`
	Workload    WorkloadRef  `json:"workload,omitzero"`
	Reservation string       `json:"reservation,omitempty"`
	Allocation  string       `json:"allocation,omitempty"`
	OccurredAt  time.Time    `json:"occurred_at"`
	RecordedAt  time.Time    `json:"recorded_at"`
	Reason      string       `json:"reason,omitempty"`
	Actor       string       `json:"actor,omitempty"`
}

// WorkloadSummary is what became of one reservation, as of the statement's AsOf.
type WorkloadSummary struct {
	UID      string           `json:"uid"`
	Workload WorkloadRef      `json:"workload"`
	Class    string           `json:"class"`
	Rate     Rate             `json:"rate_microcredits_per_gpu_second"`
	State    ReservationState `json:"state"`
	// Held is the amount set aside at creation. Charged is all that was used, also outside the period.
	Held    Microcredits `json:"held_microcredits"`
	Charged Microcredits `json:"charged_microcredits"`
	// ChargedInPeriod is the part whose entries are among the statement's lines.
	ChargedInPeriod Microcredits `json:"charged_in_period_microcredits"`
	// Released is what was given back when it closed; Remaining what is still set aside; Overrun what was charged
	// beyond Held.
	Released  Microcredits `json:"released_microcredits"`
	Remaining Microcredits `json:"remaining_microcredits"`
	Overrun   Microcredits `json:"overrun_microcredits"`
	// DerivedCharge is the part of Charged for held time that no node agent measured.
	DerivedCharge Microcredits `json:"derived_charge_microcredits"`
	CreatedAt     time.Time    `json:"created_at"`
	ClosedAt      time.Time    `json:"closed_at,omitzero"`
}
