package preemption

import (
	"testing"

	"github.com/gpubank/gpubank/bench/report"
)

// A small run: it works, and less is destroyed than by DefaultPreemption, on every seed.
func TestMeasure(t *testing.T) {
	figures, err := Measure(t.Context(), Options{Seeds: 2, Nodes: 40, Preemptors: 20, DecisionNodes: []int{50}, Decisions: 2, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]report.Figure{}
	for _, figure := range figures {
		byName[figure.Name] = figure
	}
	for _, name := range []string{"waste_even_1d", "waste_even_7d", "waste_even_1d_silent", "waste_even_7d_silent", "decision_50_nodes"} {
		if byName[name].Runs != 2 {
			t.Errorf("%s is missing: %+v", name, figures)
		}
	}
	for _, name := range []string{"waste_even_1d", "waste_even_7d"} {
		if byName[name].RatioHigh >= 1 {
			t.Errorf("%s destroys more than DefaultPreemption: %+v", name, byName[name])
		}
	}
}
