package growth

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpubank/gpubank/bench/report"
)

// The benchmark itself runs, in small.
func TestRun(t *testing.T) {
	folder := t.TempDir()
	if err := Run(t.Context(), folder, Options{Runs: 1, Jobs: 70, Minutes: 30, Progress: func(line string) { t.Log(line) }}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "growth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got report.Report
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, figure := range got.Figures {
		names = append(names, figure.Name)
		if figure.Value <= 0 {
			t.Errorf("%+v measured nothing", figure)
		}
	}
	if want := []string{
		"growth_bytes_per_job", "growth_bytes_per_interval", "growth_compaction_intervals", "growth_forgotten_answers", "growth_rebuild_entries", "growth_audit_entries",
	}; !slices.Equal(names, want) {
		t.Errorf("figures %v, want %v", names, want)
	}
	for _, figure := range got.Figures[:2] {
		if figure.Ratio <= 0 || figure.Ratio >= 1 {
			t.Errorf("%+v: nothing became smaller", figure)
		}
	}
}

func TestOptionsFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		jobs    string
		want    int
		problem bool
	}{{"", 0, false}, {"5000", 5000, false}, {"many", 0, true}, {"0", 0, true}} {
		got, err := FromEnvironment(func(name string) (string, bool) { return c.jobs, name == "GROWTH_JOBS" })
		if (err != nil) != c.problem || err == nil && got.Jobs != c.want {
			t.Errorf("%q: %+v, %v", c.jobs, got, err)
		}
	}
}
