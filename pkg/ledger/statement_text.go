package ledger

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// StatementText says how a statement is written for people.
type StatementText struct {
	// Zone is what times are shown in and where days begin; nil is UTC.
	Zone *time.Location
	// EveryCharge gives each charge a line. Otherwise those of one workload on one day are one line while nothing but
	// charges comes between: a pod is charged every minute or so, and nobody reads a thousand lines of that.
	EveryCharge bool
}

// Sink writes the statement in credits: the balance before, each movement with the balance after it, the balance at the
// end, what others paid, and what became of each workload. It keeps a bounded part of the statement in memory.
func (t StatementText) Sink(out io.Writer) StatementSink {
	zone := t.Zone
	if zone == nil {
		zone = time.UTC
	}
	return &statementText{out: &textWriter{out: out}, zone: zone, everyCharge: t.EveryCharge}
}

// maxRuns bounds the workloads whose charges are gathered at a time.
const maxRuns = 1_000

type statementText struct {
	out         *textWriter
	zone        *time.Location
	everyCharge bool

	head    StatementHead
	section statementSection
	table   *textTable
	runs    []run        // charges that are gathered, not yet written
	balance Microcredits // after what is written
}

type statementSection int

const (
	sectionLines statementSection = iota
	sectionPaid
	sectionWorkloads
	sectionEnd
)

// run is entries that share a line: one of any kind, or charges of one workload.
type run struct {
	first, last StatementEntry
	payer       string // where it is not the account
	entries     int
	sum         Microcredits
	day         string
}

func (s *statementText) Begin(head StatementHead) error {
	s.head, s.balance = head, head.Opening
	s.out.printf("Statement of account %s\n%s to %s (%s), in credits\n", head.Account, s.time(head.From), s.time(head.To), s.zone)
	if head.After != (StatementCursor{}) {
		s.out.printf("continued behind entry %d, recorded %s\n", head.After.EntryID, s.time(head.After.RecordedAt))
	}
	if head.To.After(head.AsOf) {
		s.out.printf("the period is not over; this is what was recorded until %s\n", s.time(head.AsOf))
	}
	if head.Frozen != "" {
		s.out.printf("the account is frozen: %s\n", oneLine(head.Frozen))
	}
	s.out.printf("\n")
	s.table = newTextTable(s.out, 3, 4)
	s.table.row("recorded", "entry", "what", "amount", "balance")
	s.table.row("", "", "opening balance", "", DisplayCredits(head.Opening))
	return s.out.err
}

func (s *statementText) Line(l StatementLine) error {
	s.add(run{first: l.StatementEntry, last: l.StatementEntry, entries: 1, sum: l.Amount})
	return s.out.err
}

func (s *statementText) Paid(l PaidLine) error {
	if s.section < sectionPaid {
		s.leave(sectionPaid)
		s.out.printf("\nPaid by accounts above, for workloads of account %s (no part of its balance)\n\n", s.head.Account)
		s.table = newTextTable(s.out, 3)
		s.table.row("recorded", "entry", "what", "amount")
	}
	s.add(run{first: l.StatementEntry, last: l.StatementEntry, payer: l.Payer, entries: 1, sum: l.Amount})
	return s.out.err
}

// add gathers charges, and writes what was gathered before anything else.
func (s *statementText) add(r run) {
	r.day = r.last.RecordedAt.In(s.zone).Format(time.DateOnly)
	if s.everyCharge || r.last.Kind != EntryCharge {
		s.writeRuns()
		s.runs = append(s.runs, r)
		s.writeRuns()
		return
	}
	if len(s.runs) > 0 && (s.runs[0].day != r.day || len(s.runs) >= maxRuns) {
		s.writeRuns()
	}
	for i := range s.runs {
		if so := &s.runs[i]; so.last.Reservation == r.last.Reservation && so.payer == r.payer {
			so.last, so.entries, so.sum = r.last, so.entries+1, so.sum+r.sum
			return
		}
	}
	s.runs = append(s.runs, r)
}

// writeRuns writes what was gathered in the order of the last entries, with the balance as it adds up in that order.
func (s *statementText) writeRuns() {
	slices.SortFunc(s.runs, func(a, b run) int { return a.last.Cursor().Compare(b.last.Cursor()) })
	for _, r := range s.runs {
		entries := strconv.FormatInt(r.last.EntryID, 10)
		if r.entries > 1 {
			entries = strconv.FormatInt(r.first.EntryID, 10) + "-" + entries
		}
		cells := []string{s.time(r.last.RecordedAt), entries, s.describe(r), signed(r.sum)}
		if s.section == sectionLines {
			s.balance += r.sum
			cells = append(cells, DisplayCredits(s.balance))
		} else {
			cells[3] = DisplayCredits(r.sum)
		}
		s.table.row(cells...)
	}
	s.runs = s.runs[:0]
}

// leave ends the current section.
func (s *statementText) leave(next statementSection) {
	s.writeRuns()
	switch s.section {
	case sectionLines:
		label := "closing balance"
		if s.head.Next != (StatementCursor{}) {
			label = "balance so far; continue with --after=" + s.head.Next.String()
		}
		s.table.row("", "", label, signed(s.head.Closing-s.head.Opening), DisplayCredits(s.head.Closing))
		s.table.flush()
		s.out.printf("\nset aside for open workloads at %s: %s\n", s.time(s.head.AsOf), DisplayCredits(s.head.Reserved))
	case sectionPaid:
		s.table.row("", "", "paid by accounts above", DisplayCredits(s.head.PaidByOthersSum))
		s.table.flush()
	default:
		s.table.flush()
	}
	s.section = next
}

func (s *statementText) Workload(w WorkloadSummary) error {
	if s.section < sectionWorkloads {
		s.leave(sectionWorkloads)
		s.out.printf("\nWorkloads, as of %s\n\n", s.time(s.head.AsOf))
		s.table = newTextTable(s.out, 3, 4, 5, 6, 7)
		s.table.row("workload", "class", "state", "held", "charged", "in period", "given back", "still held")
	}
	s.table.row(w.Workload.String(), w.Class, string(w.State), DisplayCredits(w.Held), DisplayCredits(w.Charged),
		DisplayCredits(w.ChargedInPeriod), DisplayCredits(w.Released), DisplayCredits(w.Remaining))
	for _, note := range s.notes(w) {
		s.table.note("  " + note)
	}
	return s.out.err
}

// notes are what the columns do not say.
func (s *statementText) notes(w WorkloadSummary) []string {
	var notes []string
	if w.Account != s.head.Account {
		notes = append(notes, "of account "+w.Account+", paid here")
	}
	if w.Payer != s.head.Account {
		notes = append(notes, "paid by account "+w.Payer)
	}
	if w.Overrun > 0 {
		notes = append(notes, fmt.Sprintf("ran beyond what was held: %s credits of overrun are charged all the same (the account's policy: %s)",
			DisplayCredits(w.Overrun), cmp.Or(w.OverrunAction, OverrunStop)))
	}
	if w.DerivedCharge > 0 {
		notes = append(notes, DisplayCredits(w.DerivedCharge)+" credits are for time that no node agent measured, taken from the pod's own start and finish")
	}
	if w.Refunded > 0 {
		notes = append(notes, DisplayCredits(w.Refunded)+" credits of what was charged were refunded")
	}
	return notes
}

func (s *statementText) End() error {
	s.leave(sectionEnd)
	return s.out.err
}

// time shows a moment in the statement's zone, and where that is not UTC with its abbreviation: an hour comes twice
// when clocks go back.
func (s *statementText) time(t time.Time) string {
	layout := time.DateTime
	if s.zone != time.UTC {
		layout += " MST"
	}
	return t.In(s.zone).Format(layout)
}

func (s *statementText) describe(r run) string {
	e := r.last
	switch e.Kind {
	case EntryCharge:
		text := "charge " + s.workload(r)
		if r.entries > 1 {
			text += fmt.Sprintf(" (%d intervals)", r.entries)
		}
		until := e.OccurredAt.In(s.zone)
		if until.Format(time.DateOnly) == r.day {
			return text + ", until " + until.Format(time.TimeOnly)
		}
		return text + ", until " + until.Format(time.DateTime)
	case EntryRefund:
		return "refund " + s.workload(r) + said(e)
	case EntryTransfer:
		direction := "from"
		if e.Amount < 0 {
			direction = "to"
		}
		return "transfer " + direction + " " + e.Counterparty + said(e) + s.expiring(e)
	case EntryAdjustment:
		text := "adjustment"
		if c := e.Corrects; c != nil {
			text += fmt.Sprintf(" of entry %d (%s of %s, %s)", c.EntryID, strings.ToLower(string(c.Kind)), signed(c.Amount),
				c.RecordedAt.In(s.zone).Format(time.DateOnly))
		}
		return text + said(e)
	case EntryRefill:
		return "refill of the period from " + s.time(e.OccurredAt)
	case EntryExpiry:
		if len(e.Expiring) == 0 {
			return "expiry" + said(e)
		}
		return "expiry of credits valid until " + s.time(e.Expiring[0].ExpiresAt)
	}
	return strings.ToLower(string(e.Kind)) + said(e) + s.expiring(e)
}

// workload names a run's workload, and whose it is or who paid where that is not the account.
func (s *statementText) workload(r run) string {
	text := r.last.Workload.String()
	if r.last.Spender != s.head.Account {
		text += " of " + r.last.Spender
	}
	switch {
	case r.payer == "":
	case r.last.Kind == EntryRefund:
		text += ", to " + r.payer
	default:
		text += ", paid by " + r.payer
	}
	return text
}

// said is why an entry is there and who says so.
func said(e StatementEntry) string {
	text := ""
	if e.Reason != "" {
		text += ": " + oneLine(e.Reason)
	}
	if e.Actor != "" {
		text += " (" + oneLine(e.Actor) + ")"
	}
	return text
}

// expiring says until when credits that came are valid.
func (s *statementText) expiring(e StatementEntry) string {
	if e.Amount < 0 {
		return ""
	}
	text := ""
	for _, lot := range e.Expiring {
		part := ""
		if lot.Amount != e.Amount {
			part = DisplayCredits(lot.Amount) + " of it "
		}
		text += ", " + part + "valid until " + s.time(lot.ExpiresAt)
	}
	return text
}

// oneLine keeps a free text from breaking a table or driving a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || (r >= 0x2028 && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) {
			return ' '
		}
		return r
	}, text)
}

// String is "Job namespace/name".
func (w WorkloadRef) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

func signed(amount Microcredits) string {
	if amount > 0 {
		return "+" + DisplayCredits(amount)
	}
	return DisplayCredits(amount)
}
