package ledger

import (
	"bytes"
	"encoding/json"
	"io"
)

// JSONStatement is a sink that writes a statement as the JSON of Statement, an element at a time. Microcredits are
// integers. What is cut off by an error is not valid JSON, so that nobody takes it for whole.
func JSONStatement(out io.Writer) StatementSink { return &statementJSON{out: &textWriter{out: out}} }

// statementLists are the lists of a statement, in the order in which they come.
var statementLists = []string{"lines", "paid_by_others", "workloads"}

type statementJSON struct {
	out      *textWriter
	list     int // the open one, an index into statementLists
	elements int // written to it
}

func (s *statementJSON) Begin(head StatementHead) error {
	object, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	// The head's fields are the statement's first.
	s.out.printf("%s,\n  %q: [", bytes.TrimSuffix(object, []byte("\n}")), statementLists[0])
	return s.out.err
}

func (s *statementJSON) Line(l StatementLine) error       { return s.element(0, l) }
func (s *statementJSON) Paid(l PaidLine) error            { return s.element(1, l) }
func (s *statementJSON) Workload(w WorkloadSummary) error { return s.element(2, w) }

func (s *statementJSON) element(list int, value any) error {
	text, err := json.MarshalIndent(value, "    ", "  ")
	if err != nil {
		return err
	}
	s.open(list)
	if s.elements > 0 {
		s.out.printf(",")
	}
	s.out.printf("\n    %s", text)
	s.elements++
	return s.out.err
}

// open ends lists until the one asked for is open.
func (s *statementJSON) open(list int) {
	for s.list < list {
		s.close()
		s.list, s.elements = s.list+1, 0
		s.out.printf(",\n  %q: [", statementLists[s.list])
	}
}

func (s *statementJSON) close() {
	if s.elements > 0 {
		s.out.printf("\n  ")
	}
	s.out.printf("]")
}

func (s *statementJSON) End() error {
	s.open(len(statementLists) - 1)
	s.close()
	s.out.printf("\n}\n")
	return s.out.err
}
