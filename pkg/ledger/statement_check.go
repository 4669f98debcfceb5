package ledger

import (
	"errors"
	"fmt"
)

// ErrStatementUnsound says that what was read of an account does not add up. Nobody should act on such a statement.
var ErrStatementUnsound = errors.New("the statement does not add up")

// CheckStatement is a sink before another that lets a statement pass only as it must be: entries in order, inside the
// period and each once; a balance after each line that is the one before it and the line's amount; and, before anything
// follows the lines, a closing balance that the opening one and all lines come to. Head and lines are read by different
// queries, so that a page which skips or repeats a row is noticed (L35). The lines' Balance is set here.
func CheckStatement(next StatementSink) StatementSink { return &statementCheck{next: next} }

type statementCheck struct {
	next     StatementSink
	head     StatementHead
	balance  Microcredits // after the lines so far
	paid     Microcredits
	lines    int64
	last     StatementCursor
	lastPaid StatementCursor
	closed   bool // the lines are complete
}

func (c *statementCheck) Begin(head StatementHead) error {
	*c = statementCheck{next: c.next, head: head, balance: head.Opening}
	return c.next.Begin(head)
}

func (c *statementCheck) Line(l StatementLine) error {
	if c.closed {
		panic("ledger: a line of a statement after its lines")
	}
	var err error
	if c.last, err = c.place(c.last, l.StatementEntry); err != nil {
		return err
	}
	sum, fits := addWithin(c.balance, l.Amount)
	if !fits {
		return c.unsound("entry %d takes the balance beyond ±%s credits", l.EntryID, DisplayCredits(MaxAmount))
	}
	c.balance, l.Balance = sum, sum
	c.lines++
	return c.next.Line(l)
}

func (c *statementCheck) Paid(l PaidLine) error {
	if err := c.closeLines(); err != nil {
		return err
	}
	var err error
	if c.lastPaid, err = c.place(c.lastPaid, l.StatementEntry); err != nil {
		return err
	}
	sum, fits := addWithin(c.paid, l.Amount)
	if !fits {
		return c.unsound("entry %d takes what others paid beyond ±%s credits", l.EntryID, DisplayCredits(MaxAmount))
	}
	c.paid = sum
	return c.next.Paid(l)
}

func (c *statementCheck) Workload(w WorkloadSummary) error {
	if err := c.closeLines(); err != nil {
		return err
	}
	return c.next.Workload(w)
}

func (c *statementCheck) End() error {
	if err := c.closeLines(); err != nil {
		return err
	}
	if c.paid != c.head.PaidByOthersSum {
		return c.unsound("what others paid is listed as %s credits, and is %s", DisplayCredits(c.paid), DisplayCredits(c.head.PaidByOthersSum))
	}
	return c.next.End()
}

func (c *statementCheck) closeLines() error {
	if !c.closed && c.balance != c.head.Closing {
		return c.unsound("%s credits at its opening and %d lines come to %s, and the closing balance is %s",
			DisplayCredits(c.head.Opening), c.lines, DisplayCredits(c.balance), DisplayCredits(c.head.Closing))
	}
	c.closed = true
	return nil
}

// place returns the entry's place, which must be behind the one before it and inside the period.
func (c *statementCheck) place(last StatementCursor, e StatementEntry) (StatementCursor, error) {
	at := e.Cursor()
	switch {
	case e.RecordedAt.Before(c.head.From) || !e.RecordedAt.Before(c.head.To):
		return last, c.unsound("entry %d was recorded %s, outside its period", e.EntryID, stamp(e.RecordedAt))
	case at.Compare(last) <= 0, at.Compare(c.head.After) <= 0:
		return last, c.unsound("entry %d comes twice or out of order", e.EntryID)
	}
	return at, nil
}

func (c *statementCheck) unsound(format string, args ...any) error {
	return fmt.Errorf("account %s: %w: %s; use none of it, and have whoever keeps the ledger run kubectl credit audit",
		c.head.Account, ErrStatementUnsound, fmt.Sprintf(format, args...))
}
