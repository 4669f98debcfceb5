package fairness

import (
	"strings"
	"testing"
	"time"
)

// A small run, so that the benchmark cannot rot: a day and one seed. A day is too short for 2 %.
func TestFiguresAreWithinTheirBounds(t *testing.T) {
	figures, err := Measure(t.Context(), Options{Seeds: 1, Span: 24 * time.Hour, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range figures {
		names[f.Name] = true
		switch {
		case strings.HasSuffix(f.Name, "_deviation") && f.Value > 3*goal && !strings.Contains(f.Name, "nothing_gathered"):
			t.Errorf("%s is %v %s", f.Name, f.Value, f.Unit)
		case strings.HasPrefix(f.Name, "longest_wait") && f.Value > f.AgainstValue:
			t.Errorf("%s is %v %s, the bound is %v", f.Name, f.Value, f.Unit, f.AgainstValue)
		case f.Name == "catch_up_half" && (f.Ratio < 0.9 || f.Ratio > 1.1), f.Name == "catch_up_error" && f.Value > f.AgainstValue:
			t.Errorf("%s is %v %s, want %v", f.Name, f.Value, f.Unit, f.AgainstValue)
		}
	}
	if len(names) != 19 {
		t.Errorf("%d figures: %v", len(names), names)
	}
}
