package placement

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// bar is one bar of the drawings: an outcome at 100 % of capacity requested.
type bar struct {
	trace, policy string
	percent       float64
}

// bars are, for each trace, what was replayed and published FGD, which comes before ours.
func bars(results []Result) []bar {
	var all []bar
	for _, result := range results {
		if result.Policy == ours && result.Against[0] != 0 {
			all = append(all, bar{result.Trace, against, result.Against[0]})
		}
		all = append(all, bar{result.Trace, result.Policy, result.Mean[0]})
	}
	return all
}

// floor is where the axis begins: the differences are a few points, and bars from 0 would all look alike. Both drawings say so.
func floor(all []bar) float64 {
	least := 100.0
	for _, each := range all {
		least = min(least, each.percent)
	}
	return max(0, math.Floor(least/5)*5)
}

// chart draws bars for a terminal, in eighths of a character.
func chart(results []Result) string {
	const width = 50
	all := bars(results)
	from := floor(all)
	var out strings.Builder
	fmt.Fprintf(&out, "allocated when 100 %% are requested; the axis runs from %.0f to 100 %%\n\n", from)
	trace := ""
	for _, each := range all {
		label := ""
		if each.trace != trace {
			trace, label = each.trace, each.trace
		}
		eighths := int(math.Round((each.percent - from) / (100 - from) * width * 8))
		drawn := strings.Repeat("█", eighths/8)
		if rest := eighths % 8; rest > 0 {
			drawn += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		}
		fmt.Fprintf(&out, "%-12s %-8s %5.2f %s\n", label, each.policy, each.percent, drawn)
	}
	return out.String()
}

var colours = map[string]string{"Random": "#c9c9c9", "BestFit": "#9aa5b1", against: "#e0a03c", ours: "#2f7d4f"}

// drawing is the chart as an SVG.
func drawing(results []Result) string {
	const left, width, thick, gap, top, right = 190, 520, 15, 12, 56, 60
	all := bars(results)
	from := floor(all)
	x := func(percent float64) float64 { return left + (percent-from)/(100-from)*width }

	var body strings.Builder
	y, trace := top, ""
	for _, each := range all {
		if each.trace != trace {
			if trace != "" {
				y += gap
			}
			trace = each.trace
			fmt.Fprintf(&body, `<text x="8" y="%d" font-weight="bold">%s</text>`+"\n", y+thick-3, html.EscapeString(each.trace))
		}
		fmt.Fprintf(&body, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-6, y+thick-3, each.policy)
		fmt.Fprintf(&body, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y, x(each.percent)-left, thick-2, colours[each.policy])
		fmt.Fprintf(&body, `<text x="%.1f" y="%d">%.2f</text>`+"\n", x(each.percent)+4, y+thick-3, each.percent)
		y += thick
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", left+width+right, y+16)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="white"/><text x="8" y="18" font-size="13">GPU capacity allocated when 100 %% are requested, per cent; the axis begins at %.0f</text>`+"\n", from)
	for percent := from; percent <= 100; percent += 5 {
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#e4e4e4"/><text x="%.1f" y="%d" text-anchor="middle" fill="#777">%.0f</text>`+"\n",
			x(percent), x(percent), top-8, y, x(percent), top-14, percent)
	}
	return out.String() + body.String() + "</svg>\n"
}

func writeDrawing(path string, results []Result) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	if err := os.WriteFile(path, []byte(drawing(results)), 0o644); err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	return nil
}
