package ledger_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of testdata/README.md points to tests that exist and to files that name the report.
func TestFieldReportsAreShown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile("`([^`:]+)(?::(Test[A-Za-z0-9]+))?`")
	reports := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " L") {
			continue
		}
		reports++
		id, places := strings.TrimSpace(cells[1]), place.FindAllStringSubmatch(cells[3], -1)
		if len(places) == 0 {
			t.Errorf("%s is shown nowhere", id)
		}
		for _, at := range places {
			file, err := os.ReadFile(filepath.Join("..", "..", at[1]))
			if err != nil {
				t.Errorf("%s: %v", id, err)
				continue
			}
			wanted := regexp.MustCompile(`\b` + id + `\b`)
			if at[2] != "" {
				wanted = regexp.MustCompile(`\bfunc ` + at[2] + `\(`)
			}
			if !wanted.Match(file) {
				t.Errorf("%s is said to be shown by %s, which has no %s", id, at[1], wanted)
			}
		}
	}
	if reports == 0 {
		t.Error("the table is gone")
	}
}
