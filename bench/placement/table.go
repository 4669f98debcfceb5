package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpubank/gpubank/bench/report"
)

// figures are those of the report: for each trace and demand ours against FGD's, and what calibrates the harness against its own
// publication.
func figures(results []Result) []report.Figure {
	var all []report.Figure
	for _, result := range results {
		for at, percent := range Arrived {
			figure := report.Figure{
				Name: fmt.Sprintf("openb_%s_%d", result.Trace, percent), Value: round(result.Mean[at]), Unit: "% of GPU capacity allocated", Runs: result.Seeds,
			}
			compared, by := result.Against[at], against
			if result.Policy != ours {
				figure.Name = fmt.Sprintf("calibration_%s_%s_%d", result.Trace, strings.ToLower(result.Policy), percent)
				compared, by = result.Published[at], result.Policy
			}
			if compared != 0 {
				figure.Against = by + ", as published, mean of 10 seeds"
				figure.AgainstValue = compared
				figure.Ratio, figure.RatioLow, figure.RatioHigh = result.Mean[at]/compared, result.Low[at]/compared, result.High[at]/compared
			}
			all = append(all, figure)
		}
	}
	// What is measured first, then what vouches for it.
	slices.SortStableFunc(all, func(a, b report.Figure) int {
		return cmp.Compare(strings.Index(a.Name, "calibration_"), strings.Index(b.Name, "calibration_"))
	})
	return all
}

func round(percent float64) float64 { return float64(int64(percent*100+0.5)) / 100 }

// table shows all results beside what is published.
func table(results []Result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "GPU capacity allocated, in per cent, when 100 %% and 130 %% of it have been requested\n\n")
	fmt.Fprintf(&out, "%-12s %-8s %7s %9s %7s   %7s %9s %7s\n", "trace", "policy", "at 100", "published", "points", "at 130", "published", "points")
	var gained Outcome
	var compared int
	for _, result := range results {
		beside := result.Published
		name := result.Policy
		if result.Policy == ours {
			beside, name = result.Against, ours+"*"
		}
		fmt.Fprintf(&out, "%-12s %-8s", result.Trace, name)
		for at := range Arrived {
			if beside[at] == 0 {
				fmt.Fprintf(&out, " %7.2f %9s %7s  ", result.Mean[at], "-", "-")
				continue
			}
			fmt.Fprintf(&out, " %7.2f %9.2f %+7.2f  ", result.Mean[at], beside[at], result.Mean[at]-beside[at])
			if result.Policy == ours {
				gained[at] += result.Mean[at] - beside[at]
			}
		}
		if result.Policy == ours && beside[0] != 0 {
			compared++
		}
		fmt.Fprintln(&out)
	}
	if compared > 0 {
		fmt.Fprintf(&out, "* against published %s: %+.2f points at 100 %%, %+.2f at 130 %%, mean of %d traces\n", against, gained[0]/float64(compared), gained[1]/float64(compared), compared)
	}
	return out.String()
}
