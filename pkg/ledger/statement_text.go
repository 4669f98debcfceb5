package ledger

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const statementTime = "2006-01-02 15:04:05"

// WriteText writes the statement for people, in credits and UTC: the balance before, each movement with the balance
// after it, the balance at the end, and what became of each workload.
func (s Statement) WriteText(w io.Writer) error {
	out := &textWriter{out: w}
	out.printf("Statement of account %s\n%s to %s (UTC), in credits\n\n", s.Account, s.From.UTC().Format(statementTime), s.To.UTC().Format(statementTime))
	out.table(func(row func(cells ...string)) {
		row("recorded", "what", "amount", "balance")
		row("", "opening balance", "", DisplayCredits(s.Opening))
		for _, run := range runs(s.Lines) {
			last := run[len(run)-1]
			var sum Microcredits
			for _, l := range run {
				sum += l.Amount
			}
			row(last.RecordedAt.UTC().Format(statementTime), describe(run), signed(sum), DisplayCredits(last.Balance))
		}
		row("", "closing balance", signed(s.Closing-s.Opening), DisplayCredits(s.Closing))
	}, 2, 3)
	out.printf("\nset aside for open workloads at %s: %s\n", s.AsOf.UTC().Format(statementTime), DisplayCredits(s.Reserved))
	if len(s.Workloads) > 0 {
		out.printf("\nWorkloads, as of %s\n\n", s.AsOf.UTC().Format(statementTime))
		s.writeWorkloads(out)
	}
	return out.err
}

func (s Statement) writeWorkloads(out *textWriter) {
	out.table(func(row func(cells ...string)) {
		row("workload", "class", "state", "held", "charged", "in period", "given back", "still held")
		for _, w := range s.Workloads {
			row(w.Workload.String(), w.Class, string(w.State), DisplayCredits(w.Held), DisplayCredits(w.Charged),
				DisplayCredits(w.ChargedInPeriod), DisplayCredits(w.Released), DisplayCredits(w.Remaining))
		}
	}, 3, 4, 5, 6, 7)
	for _, w := range s.Workloads {
		if w.Overrun > 0 {
			out.printf("\n%s ran beyond what was held for it: %s credits of overrun are charged to the account.\n",
				w.Workload, DisplayCredits(w.Overrun))
		}
		if w.DerivedCharge > 0 {
			out.printf("\n%s: %s credits are for time that no node agent measured; it is taken from the pod's own start and finish.\n",
				w.Workload, DisplayCredits(w.DerivedCharge))
		}
	}
}

// runs cuts lines where something else than the same workload's next charge follows: a pod is charged every minute or
// so, and nobody reads a thousand lines of that. JSON has them all.
func runs(lines []StatementLine) [][]StatementLine {
	var all [][]StatementLine
	for i, l := range lines {
		if i > 0 && l.Kind == EntryCharge && lines[i-1].Kind == EntryCharge && l.Reservation == lines[i-1].Reservation {
			all[len(all)-1] = lines[i-len(all[len(all)-1]) : i+1]
		} else {
			all = append(all, lines[i:i+1])
		}
	}
	return all
}

func describe(run []StatementLine) string {
	l := run[len(run)-1]
	switch l.Kind {
	case EntryCharge:
		text := "charge " + l.Workload.String()
		if len(run) > 1 {
			text += fmt.Sprintf(" (%d intervals)", len(run))
		}
		return text + ", until " + l.OccurredAt.UTC().Format(time.TimeOnly)
	case EntryGrant:
		text := "grant"
		if l.Reason != "" {
			text += ": " + oneLine(l.Reason)
		}
		if l.Actor != "" {
			text += " (" + oneLine(l.Actor) + ")"
		}
		return text
	}
	return strings.ToLower(string(l.Kind)) + " " + oneLine(l.Reason)
}

// oneLine keeps a free text from breaking a table or driving a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
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

// textWriter keeps the first error.
type textWriter struct {
	out io.Writer
	err error
}

func (t *textWriter) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.out, format, args...)
	}
}

// table writes rows with aligned columns; the columns listed are numbers and aligned to the right.
func (t *textWriter) table(fill func(row func(cells ...string)), numbers ...int) {
	var rows [][]string
	var widths []int
	fill(func(cells ...string) {
		rows = append(rows, cells)
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	})
	right := make(map[int]bool)
	for _, column := range numbers {
		right[column] = true
	}
	for _, cells := range rows {
		line := ""
		for i, cell := range cells {
			padding := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if right[i] {
				line += padding + cell
			} else {
				line += cell + padding
			}
			line += "  "
		}
		t.printf("%s\n", strings.TrimRight(line, " "))
	}
}
