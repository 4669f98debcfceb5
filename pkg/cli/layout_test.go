package cli

import (
	"strings"
	"testing"
)

func TestParagraph(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 90)
	for _, test := range []struct{ name, text, want string }{
		{"short", "one two", "  a  one two\n"},
		{"empty", "", "  a\n"},
		{"breaks between words", strings.Repeat("123456789 ", 9),
			"  a  " + strings.TrimSpace(strings.Repeat("123456789 ", 7)) + "\n     123456789 123456789\n"},
		{"a long word stays whole", "one " + long + " two", "  a  one\n     " + long + "\n     two\n"},
		{"nothing drives the terminal", "red \x1b[31m\x00\u202e\u0085alert\nnext\ttab\x7f", "  a  red [31m alert next tab\n"},
	} {
		if got := paragraph("  a  ", test.text); got != test.want {
			t.Errorf("%s: got\n%q, want\n%q", test.name, got, test.want)
		}
	}
}
