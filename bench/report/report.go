// Package report writes what a benchmark measured, in the one format that all benchmarks of this repository share: a list of
// figures under a header that says on what machine, with which versions, from which commit and when.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Figure is one measured number beside what it is compared with. Names, once published, stay.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Against says what AgainstValue, in the same unit, was measured on; empty if there is nothing to compare with.
	Against      string  `json:"against,omitempty"`
	AgainstValue float64 `json:"against_value,omitempty"`
	// Ratio is Value by AgainstValue, the median over runs that were interleaved; RatioLow and RatioHigh are its spread.
	Ratio     float64 `json:"ratio,omitempty"`
	RatioLow  float64 `json:"ratio_low,omitempty"`
	RatioHigh float64 `json:"ratio_high,omitempty"`
	Runs      int     `json:"runs"`
}

// Pair is one interleaved run of both sides.
type Pair struct{ Value, Against float64 }

// Compare makes a figure of interleaved runs, of which there must be at least one. Each side's value is its own median.
func Compare(name, unit, against string, pairs []Pair) Figure {
	if len(pairs) == 0 {
		panic("report: a comparison of no runs")
	}
	var values, others, ratios []float64
	for _, pair := range pairs {
		values, others = append(values, pair.Value), append(others, pair.Against)
		ratios = append(ratios, pair.Value/pair.Against)
	}
	return Figure{
		Name: name, Unit: unit, Against: against, Runs: len(pairs),
		Value: Median(values), AgainstValue: Median(others),
		Ratio: Median(ratios), RatioLow: slices.Min(ratios), RatioHigh: slices.Max(ratios),
	}
}

// Median of at least one number; of an even count, the mean of the middle two.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Report is the file.
type Report struct {
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Commit   string            `json:"commit"`
	Date     time.Time         `json:"date"`
	Figures  []Figure          `json:"figures"`
}

// Write writes figures to path, making its folder. versions names what else took part, such as PostgreSQL; Go, Kubernetes and
// the machine are added here.
func Write(path string, versions map[string]string, figures []Figure) error {
	all := map[string]string{"go": runtime.Version(), "kubernetes": moduleVersion("k8s.io/kubernetes")}
	for what, version := range versions {
		all[what] = version
	}
	content, err := json.MarshalIndent(Report{
		Machine: machine(), Versions: all, Commit: commit(), Date: time.Now().UTC().Truncate(time.Second), Figures: figures,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write benchmark report %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write benchmark report: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write benchmark report: %w", err)
	}
	return nil
}

func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), model)
}

// moduleVersion is what this program was linked with; test binaries do not say, so the go command is asked.
func moduleVersion(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return output("go", "list", "-m", "-f", "{{.Version}}", module)
}

func commit() string {
	hash := output("git", "rev-parse", "--short=12", "HEAD")
	if changed := output("git", "status", "--porcelain", "--untracked-files=no"); changed != "" && changed != unknown {
		return hash + " with local changes"
	}
	return hash
}

const unknown = "unknown"

func output(name string, arguments ...string) string {
	text, err := exec.Command(name, arguments...).Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(text))
}
