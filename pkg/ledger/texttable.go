package ledger

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

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

// tableRows is how many rows a textTable aligns together.
const tableRows = 1_000

// textTable writes rows with aligned columns, of which some are numbers and aligned to the right. It keeps tableRows rows at
// most: a longer table is written in parts, whose columns only grow wider from one to the next.
type textTable struct {
	out    *textWriter
	right  map[int]bool
	widths []int
	rows   [][]string // one cell: a note across all columns
}

func newTextTable(out *textWriter, numbers ...int) *textTable {
	t := &textTable{out: out, right: make(map[int]bool)}
	for _, column := range numbers {
		t.right[column] = true
	}
	return t
}

func (t *textTable) row(cells ...string) {
	for i, cell := range cells {
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
	}
	t.keep(cells)
}

// note is a line of its own between rows.
func (t *textTable) note(text string) { t.keep([]string{text}) }

func (t *textTable) keep(cells []string) {
	t.rows = append(t.rows, cells)
	if len(t.rows) >= tableRows {
		t.flush()
	}
}

// flush writes what is kept.
func (t *textTable) flush() {
	for _, cells := range t.rows {
		if len(cells) == 1 {
			t.out.printf("%s\n", cells[0])
			continue
		}
		var line strings.Builder
		for i, cell := range cells {
			padding := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line.WriteString(padding + cell + "  ")
			} else {
				line.WriteString(cell + padding + "  ")
			}
		}
		t.out.printf("%s\n", strings.TrimRight(line.String(), " "))
	}
	t.rows = t.rows[:0]
}
