package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareTakesMediansOfInterleavedRuns(t *testing.T) {
	got := Compare("n", "pods/s", "plain", []Pair{{90, 100}, {110, 100}, {300, 200}})
	want := Figure{Name: "n", Unit: "pods/s", Against: "plain", Runs: 3, Value: 110, AgainstValue: 100, Ratio: 1.1, RatioLow: 0.9, RatioHigh: 1.5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of an even count is %v", got)
	}
}

func TestWriteHasAHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results", "x.json")
	if err := Write(path, map[string]string{"postgresql": "15.8"}, []Figure{{Name: "n", Value: 1, Unit: "s", Runs: 1}}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	if got.Machine == "" || got.Commit == "" || got.Date.IsZero() || got.Versions["postgresql"] != "15.8" || got.Versions["go"] == "" || len(got.Figures) != 1 {
		t.Errorf("report is %+v", got)
	}
}
