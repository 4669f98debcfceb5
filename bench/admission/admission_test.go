package admission

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpubank/gpubank/bench/report"
)

// The benchmark itself runs, in small: one pair at one rate for each installation.
func TestRun(t *testing.T) {
	folder := t.TempDir()
	err := Run(t.Context(), folder, Options{Rates: []int{20}, Pairs: 1, Run: 2 * time.Second, WarmUp: 500 * time.Millisecond, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "admission.json"))
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
		if figure.Value <= 0 || figure.AgainstValue <= 0 {
			t.Errorf("%+v has a value that is none", figure)
		}
	}
	if want := []string{
		"admission_p99_20_vs_none", "admission_p50_20_vs_none", "admission_cpu_20_vs_none",
		"admission_policy_p99_20_vs_none", "admission_policy_p50_20_vs_none", "admission_policy_cpu_20_vs_none",
	}; !slices.Equal(names, want) {
		t.Errorf("figures are %v, want %v", names, want)
	}
}

// A server that stalls once for a second makes everybody wait who arrives meanwhile, and all of that is counted: a generator
// that waited for answers would have seen one slow request.
func TestAStallIsNotOmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1) // serves one at a time
		got, err := constantRate(t.Context(), 100, 400, 0, func(_ context.Context, i int) error {
			server <- struct{}{}
			if i == 100 {
				time.Sleep(time.Second)
			}
			<-server
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// The 100 requests that arrived in that second waited half of it on average.
		if p50, p99 := got.quantile(.50), got.quantile(.99); p50 != 0 || p99 < 900 {
			t.Errorf("p50 is %v ms and p99 %v ms", p50, p99)
		}
	})
}

func TestQuantiles(t *testing.T) {
	var l latencies
	for i := range 200 {
		l.sorted = append(l.sorted, time.Duration(i+1)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 1, .50: 100, .99: 198, 1: 200} {
		if got := l.quantile(q); got != want {
			t.Errorf("quantile %v is %v ms, want %v", q, got, want)
		}
	}
}

func TestFailuresAreNotFast(t *testing.T) {
	refused := errors.New("refused")
	_, err := constantRate(t.Context(), 1000, 5, 0, func(_ context.Context, i int) error {
		if i == 3 {
			return refused
		}
		return nil
	})
	if !errors.Is(err, refused) {
		t.Errorf("a failed request is reported as %v", err)
	}
}
