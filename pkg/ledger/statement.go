package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// StatementQuery says which of an account's movements to list.
type StatementQuery struct {
	Account string
	// From and To bound the time of recording, [From, To), so that a statement of a past period never changes.
	From, To time.Time
	// After continues a statement behind the last line that was seen; the zero value begins with From.
	After StatementCursor
	// Limit is the most entries to list, in both lists together; 0 for all of them.
	Limit int
}

// Check returns why the query makes no sense; nil if it does.
func (q StatementQuery) Check() error {
	switch {
	case slices.Contains(SystemAccounts, q.Account):
		return fmt.Errorf("%s is the ledger's own other side of entries and has no statement; name an account that is granted credits", q.Account)
	case !q.From.Before(q.To):
		return fmt.Errorf("the period from %s to %s is empty", stamp(q.From), stamp(q.To))
	case q.Limit < 0:
		return fmt.Errorf("at most %d entries: want 1 or more, or 0 for all", q.Limit)
	case q.After != StatementCursor{} && (q.After.RecordedAt.Before(q.From) || !q.After.RecordedAt.Before(q.To)):
		return fmt.Errorf("%s lies outside the period from %s to %s; continue a statement with its own period", q.After, stamp(q.From), stamp(q.To))
	}
	return nil
}

// Whole reports whether the query asks for the period as a whole, not for a page of it.
func (q StatementQuery) Whole() bool { return q.After == StatementCursor{} && q.Limit == 0 }

// StatementCursor is the place of an entry in the order of statements, (RecordedAt, EntryID). It is written as text in
// JSON, "2026-03-02T09:00:01.5Z/42"; the zero value is no place.
type StatementCursor struct {
	RecordedAt time.Time
	EntryID    int64
}

// String is the text form; empty for the zero value.
func (c StatementCursor) String() string {
	if c == (StatementCursor{}) {
		return ""
	}
	return stamp(c.RecordedAt) + "/" + strconv.FormatInt(c.EntryID, 10)
}

// Compare orders cursors as statements do.
func (c StatementCursor) Compare(other StatementCursor) int {
	if order := c.RecordedAt.Compare(other.RecordedAt); order != 0 {
		return order
	}
	switch {
	case c.EntryID < other.EntryID:
		return -1
	case c.EntryID > other.EntryID:
		return 1
	}
	return 0
}

// ParseStatementCursor reads the text form.
func ParseStatementCursor(text string) (StatementCursor, error) {
	recorded, id, found := strings.Cut(text, "/")
	at, timeErr := time.Parse(time.RFC3339Nano, recorded)
	number, idErr := strconv.ParseInt(id, 10, 64)
	if !found || timeErr != nil || idErr != nil || number < 1 {
		return StatementCursor{}, fmt.Errorf("%q is no place in a statement; want the time of recording and the number of its last entry, such as 2026-03-02T09:00:01.5Z/42", text)
	}
	return StatementCursor{RecordedAt: Instant(at), EntryID: number}, nil
}

// MarshalText implements encoding.TextMarshaler.
func (c StatementCursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *StatementCursor) UnmarshalText(text []byte) (err error) {
	*c = StatementCursor{}
	if len(text) > 0 {
		*c, err = ParseStatementCursor(string(text))
	}
	return err
}

// StatementHead is what a statement says before its lists. All of it, and all of the lists, are from one snapshot.
type StatementHead struct {
	Account string    `json:"account"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	// After and Next bound a page: it begins behind After, and Next is where the one after it does. Both are left out of a whole statement.
	After StatementCursor `json:"after,omitzero"`
	Next  StatementCursor `json:"next,omitzero"`
	// AsOf is when the statement was made.
	AsOf time.Time `json:"as_of"`
	// Opening is the balance before the first line, Closing the one after the last: Opening + Σ Lines.Amount = Closing.
	Opening Microcredits `json:"opening_microcredits"`
	Closing Microcredits `json:"closing_microcredits"`
	// Reserved is what open reservations set aside on the account at AsOf.
	Reserved Microcredits `json:"reserved_microcredits"`
	// PaidByOthersSum is the sum of PaidByOthers: what accounts above paid for the account's workloads. It is no part of
	// the account's balance.
	PaidByOthersSum Microcredits `json:"paid_by_others_microcredits"`
	// Frozen says why the account is frozen at AsOf; empty if it is not.
	Frozen string `json:"frozen,omitempty"`
}

// Statement is one account's movements in a period, whole in memory. A StatementSink takes one that need not fit.
type Statement struct {
	StatementHead
	// Lines and PaidByOthers are each ordered by (RecordedAt, EntryID).
	Lines        []StatementLine `json:"lines"`
	PaidByOthers []PaidLine      `json:"paid_by_others"`
	// Workloads are the account's own and those it pays for, as far as they were open in the period or an entry in the
	// lists is for them, oldest first. A page has none.
	Workloads []WorkloadSummary `json:"workloads"`
}

// StatementEntry is an entry as a statement shows it.
type StatementEntry struct {
	EntryID int64     `json:"entry_id"`
	Kind    EntryKind `json:"kind"`
	// Amount is positive when the account receives, negative when it pays. Where another account pays it is what that
	// paid: positive for a charge, negative for a refund.
	Amount Microcredits `json:"amount_microcredits"`
	// Counterparty is the other side of the entry: an account, or one of SystemAccounts.
	Counterparty string `json:"counterparty"`
	// Spender is whose workload a charge or refund is for; empty for other kinds.
	Spender     string      `json:"spender,omitempty"`
	Workload    WorkloadRef `json:"workload,omitzero"`
	Reservation string      `json:"reservation,omitempty"`
	Allocation  string      `json:"allocation,omitempty"`
	// Corrects is the entry that an adjustment corrects, nil for none.
	Corrects *CorrectedEntry `json:"corrects,omitempty"`
	// Expiring are the credits that a grant or transfer brought and that expire, or that did expire.
	Expiring   []ExpiringCredits `json:"expiring,omitempty"`
	OccurredAt time.Time         `json:"occurred_at"`
	RecordedAt time.Time         `json:"recorded_at"`
	Reason     string            `json:"reason,omitempty"`
	Actor      string            `json:"actor,omitempty"`
}

// Cursor is the entry's place.
func (e StatementEntry) Cursor() StatementCursor { return StatementCursor{e.RecordedAt, e.EntryID} }

// CorrectedEntry is what an adjustment says of the entry it corrects.
type CorrectedEntry struct {
	EntryID int64     `json:"entry_id"`
	Kind    EntryKind `json:"kind"`
	// Amount is positive when the account received.
	Amount     Microcredits `json:"amount_microcredits"`
	RecordedAt time.Time    `json:"recorded_at"`
}

// ExpiringCredits are those of one lot.
type ExpiringCredits struct {
	Lot       string       `json:"lot"`
	Amount    Microcredits `json:"amount_microcredits"`
	ExpiresAt time.Time    `json:"expires_at"`
}

// StatementLine is an entry of the account itself, as payer or receiver.
type StatementLine struct {
	StatementEntry
	// Balance is the account's balance after the entry.
	Balance Microcredits `json:"balance_microcredits"`
}

// PaidLine is a charge or refund of the account's workload on the balance of an account above it.
type PaidLine struct {
	StatementEntry
	Payer string `json:"payer"`
}

// WorkloadSummary is what became of one reservation, as of the statement's AsOf.
type WorkloadSummary struct {
	UID      string      `json:"uid"`
	Workload WorkloadRef `json:"workload"`
	// Account is whose workload it is, Payer whose balance it is charged to.
	Account string           `json:"account"`
	Payer   string           `json:"payer"`
	Class   string           `json:"class"`
	Rate    Rate             `json:"rate_microcredits_per_gpu_second"`
	State   ReservationState `json:"state"`
	// Held is the amount set aside, renewals included. Charged is all that was used, also outside the period; Refunded
	// what of that was given back after attempts that failed, were preempted or met a device fault.
	Held     Microcredits `json:"held_microcredits"`
	Charged  Microcredits `json:"charged_microcredits"`
	Refunded Microcredits `json:"refunded_microcredits"`
	// ChargedInPeriod are the charges of it that are in the statement's lists.
	ChargedInPeriod Microcredits `json:"charged_in_period_microcredits"`
	// Released is what was given back when it closed; Remaining what is still set aside; Overrun what was charged
	// beyond Held, and OverrunAction what the account's policy of then says about that.
	Released      Microcredits  `json:"released_microcredits"`
	Remaining     Microcredits  `json:"remaining_microcredits"`
	Overrun       Microcredits  `json:"overrun_microcredits"`
	OverrunAction OverrunAction `json:"overrun_action"`
	// DerivedCharge is the part of Charged for held time that no node agent measured.
	DerivedCharge Microcredits `json:"derived_charge_microcredits"`
	CreatedAt     time.Time    `json:"created_at"`
	ClosedAt      time.Time    `json:"closed_at,omitzero"`
}

// StatementSink takes a statement piece by piece, in this order: Begin once, every Line, every Paid, every Workload, End
// once. An error ends it, and then End is not called.
type StatementSink interface {
	Begin(StatementHead) error
	Line(StatementLine) error
	Paid(PaidLine) error
	Workload(WorkloadSummary) error
	End() error
}

// CollectStatement is a sink that keeps everything.
func CollectStatement(into *Statement) StatementSink { return &statementCollector{into} }

type statementCollector struct{ *Statement }

func (c *statementCollector) Begin(head StatementHead) error {
	// Not nil: JSON says [] when there are none.
	*c.Statement = Statement{StatementHead: head, Lines: []StatementLine{}, PaidByOthers: []PaidLine{}, Workloads: []WorkloadSummary{}}
	return nil
}

func (c *statementCollector) Line(l StatementLine) error {
	c.Lines = append(c.Lines, l)
	return nil
}

func (c *statementCollector) Paid(l PaidLine) error {
	c.PaidByOthers = append(c.PaidByOthers, l)
	return nil
}

func (c *statementCollector) Workload(w WorkloadSummary) error {
	c.Workloads = append(c.Workloads, w)
	return nil
}

func (c *statementCollector) End() error { return nil }

// Send hands the statement to a sink.
func (s Statement) Send(to StatementSink) error {
	if err := to.Begin(s.StatementHead); err != nil {
		return err
	}
	for _, l := range s.Lines {
		if err := to.Line(l); err != nil {
			return err
		}
	}
	for _, l := range s.PaidByOthers {
		if err := to.Paid(l); err != nil {
			return err
		}
	}
	for _, w := range s.Workloads {
		if err := to.Workload(w); err != nil {
			return err
		}
	}
	return to.End()
}
