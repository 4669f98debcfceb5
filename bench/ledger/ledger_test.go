package ledger

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpubank/gpubank/bench/report"
)

// The benchmark itself runs, in small.
func TestRun(t *testing.T) {
	folder := t.TempDir()
	err := Run(t.Context(), folder, Options{
		Runs: 1, Time: time.Second, Step: 200 * time.Millisecond, Scale: 1, Accounts: 100, ManyAccounts: 200, MostCallers: 4,
		Progress: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "ledger.json"))
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
		if figure.Value <= 0 || figure.Ratio <= 0 {
			t.Errorf("%+v measured nothing", figure)
		}
	}
	if want := []string{
		"holds_64_callers_vs_tpcb", "holds_1024_callers_vs_tpcb", "holds_worst_step", "lives_1024_callers_vs_tpcb",
		"hold_p99_vs_pgbench_p99", "holds_100k_accounts_vs_10k",
	}; !slices.Equal(names, want) {
		t.Errorf("figures %v, want %v", names, want)
	}
}

// So does the measurement of costs, and finds some on both sides.
func TestCosts(t *testing.T) {
	folder := t.TempDir()
	err := Costs(t.Context(), folder, CostOptions{Runs: 1, Holds: 200, Lives: 50, Callers: 16, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "ledger-costs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got report.Report
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Figures) != 6 {
		t.Errorf("%d figures, want 6", len(got.Figures))
	}
	for _, figure := range got.Figures {
		if figure.Value <= 0 {
			t.Errorf("%+v measured nothing", figure)
		}
	}
	for _, profile := range []string{"ledger-costs-hold.pprof", "ledger-costs-life.pprof"} {
		if _, err := os.Stat(filepath.Join(folder, profile)); err != nil {
			t.Error(err)
		}
	}
}
