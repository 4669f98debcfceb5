package ledger

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"
)

// statementColumns are the header of a statement as CSV. Names and order are stable; new ones come at the end.
var statementColumns = []string{
	"line", "entry_id", "recorded_at", "occurred_at", "kind", "amount", "balance", "paid_by_other", "counterparty", "spender",
	"workload_kind", "workload_namespace", "workload_name", "reservation", "allocation", "corrects_entry_id", "expires_at", "reason", "actor",
}

// CSVStatement is a sink that writes a statement as RFC 4180 has it, one row per entry, between a row with the opening balance
// and one with the closing balance. The sum over the column amount is the one less the other. What others paid has rows
// behind them, with its sums in a column of its own. Amounts are exact decimal credits, times RFC 3339 in UTC. A workload's
// summary is not in it.
//
// What people wrote may end in a spreadsheet, where a cell that begins like a formula is one: such a text gets an
// apostrophe in front, and control characters become spaces. JSON has texts as they are.
func CSVStatement(out io.Writer) StatementSink {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	return &statementCSV{out: w}
}

type statementCSV struct {
	out    *csv.Writer
	head   StatementHead
	closed bool
}

func (s *statementCSV) Begin(head StatementHead) error {
	s.head = head
	if err := s.out.Write(statementColumns); err != nil {
		return err
	}
	from := head.From
	if head.After != (StatementCursor{}) {
		from = head.After.RecordedAt
	}
	return s.row(map[string]string{"line": "opening", "recorded_at": csvTime(from), "balance": FormatCredits(head.Opening)})
}

func (s *statementCSV) Line(l StatementLine) error {
	row := csvEntry("entry", l.StatementEntry)
	row["amount"], row["balance"] = FormatCredits(l.Amount), FormatCredits(l.Balance)
	return s.row(row)
}

func (s *statementCSV) Paid(l PaidLine) error {
	if err := s.closeLines(); err != nil {
		return err
	}
	row := csvEntry("paid-by-other", l.StatementEntry)
	row["paid_by_other"], row["counterparty"] = FormatCredits(l.Amount), l.Payer
	return s.row(row)
}

func (s *statementCSV) Workload(WorkloadSummary) error { return nil }

func (s *statementCSV) End() error {
	if err := s.closeLines(); err != nil {
		return err
	}
	s.out.Flush()
	return s.out.Error()
}

func (s *statementCSV) closeLines() error {
	if s.closed {
		return nil
	}
	s.closed = true
	to := s.head.To
	if s.head.Next != (StatementCursor{}) {
		to = s.head.Next.RecordedAt
	}
	return s.row(map[string]string{"line": "closing", "recorded_at": csvTime(to), "balance": FormatCredits(s.head.Closing)})
}

// row writes the values of a row by the names of their columns. Writes are buffered by the writer, which keeps the first error.
func (s *statementCSV) row(values map[string]string) error {
	cells := make([]string, len(statementColumns))
	for i, column := range statementColumns {
		cells[i] = values[column]
	}
	return s.out.Write(cells)
}

func csvEntry(line string, e StatementEntry) map[string]string {
	row := map[string]string{
		"line": line, "entry_id": strconv.FormatInt(e.EntryID, 10), "recorded_at": csvTime(e.RecordedAt), "occurred_at": csvTime(e.OccurredAt),
		"kind": string(e.Kind), "counterparty": csvText(e.Counterparty), "spender": csvText(e.Spender),
		"workload_kind": csvText(e.Workload.Kind), "workload_namespace": csvText(e.Workload.Namespace), "workload_name": csvText(e.Workload.Name),
		"reservation": csvText(e.Reservation), "allocation": csvText(e.Allocation), "reason": csvText(e.Reason), "actor": csvText(e.Actor),
	}
	if e.Corrects != nil {
		row["corrects_entry_id"] = strconv.FormatInt(e.Corrects.EntryID, 10)
	}
	if len(e.Expiring) > 0 { // the first to expire; JSON has all
		row["expires_at"] = csvTime(e.Expiring[0].ExpiresAt)
	}
	return row
}

func csvTime(t time.Time) string { return stamp(t) }

// csvText is a text that no spreadsheet takes for a formula. They begin with these characters, the full-width ones
// in some; spaces before them are skipped by some readers.
func csvText(text string) string {
	text = oneLine(text)
	if trimmed := strings.TrimLeft(text, " \u00a0\u3000"); trimmed != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(trimmed)[0]) {
		return "'" + text
	}
	return text
}
