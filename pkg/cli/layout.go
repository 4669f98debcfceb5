package cli

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lineWidth is what fits a terminal that nobody has widened.
const lineWidth = 80

// paragraph writes words after label, broken into lines that fit, each later line indented as far as the label is long.
// Anything that is not printable counts as a space: what nodes and users have written neither breaks the layout nor
// drives the terminal. A word that is longer than a line stays whole, so that it can be copied.
func paragraph(label, text string) string {
	var out strings.Builder
	indent := utf8.RuneCountInString(label)
	out.WriteString(label)
	column, first := indent, true
	for _, word := range words(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case first:
		case column+1+length > lineWidth:
			out.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column, first = column+length, false
	}
	return strings.TrimRight(out.String(), " ") + "\n"
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// printable is text on one line.
func printable(text string) string { return strings.Join(words(text), " ") }

// table writes rows with aligned columns: the first names columns to the left, all others, which are numbers, to the
// right.
func table(out io.Writer, names int, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				text.WriteString("  ")
			}
			if i < names {
				text.WriteString(cell + padding)
			} else {
				text.WriteString(padding + cell)
			}
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(out, text.String())
	return err
}
