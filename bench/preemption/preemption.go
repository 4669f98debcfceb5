// Package preemption measures what preemption destroys and how long it takes to decide, against the unmodified DefaultPreemption of
// the same version: both plugins run in kube-scheduler's own framework, on the same snapshots, with the same filters; only the
// eviction itself is noted down instead of being sent to an API server.
//
// Waste: a saturated cluster of 200 nodes of 8 GPUs. Jobs save their work every 10 min, 30 min, 1 h, 4 h, or never (a fifth each; those that
// never do say so), the last checkpoint's age is uniform within that and the running time, a restart takes 180 s. 100 preemptors of 1, 2, 4
// and 8 GPUs come one after the other. What counts is the work truly destroyed: Σ GPUs × (age of the last checkpoint, or running time if there
// is none, + 180 s), whatever the plugin believed.
package preemption

import (
	"context"
	"fmt"
	"path/filepath"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/gpubank/gpubank/bench/report"
)

// Options say how much to measure. The zero value is the full benchmark, without openb's sizes.
type Options struct {
	// Seeds of each case; 10 if 0.
	Seeds int
	// Nodes of the saturated cluster; 200 if 0. Preemptors; 100 if 0.
	Nodes, Preemptors int
	// DecisionNodes are the sizes at which one decision is timed; 1,000 and 5,000 if nil. Decisions of each; 15 if 0.
	DecisionNodes []int
	Decisions     int
	// OpenB is the folder of openb's traces; empty leaves its cases out, and says so.
	OpenB string
	// Progress hears what is being measured.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	def := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	def(&o.Seeds, 10)
	def(&o.Nodes, 200)
	def(&o.Preemptors, 100)
	def(&o.Decisions, 15)
	if o.DecisionNodes == nil {
		o.DecisionNodes = []int{1000, 5000}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Run measures and writes preemption.json into a folder.
func Run(ctx context.Context, folder string, o Options) error {
	figures, err := Measure(ctx, o)
	if err != nil {
		return err
	}
	return report.Write(filepath.Join(folder, "preemption.json"), nil, figures)
}

// Measure returns the figures.
func Measure(ctx context.Context, o Options) ([]report.Figure, error) {
	o = o.withDefaults()
	// Evictions are noted down in the scheduling cycle itself.
	if err := utilfeature.DefaultMutableFeatureGate.Set("SchedulerAsyncPreemption=false"); err != nil {
		return nil, err
	}
	mixes := []mix{evenMix}
	if o.OpenB == "" {
		o.Progress("waste_openb_1d and waste_openb_7d are left out: OPENB_DIR names no folder with openb's traces (openb_pod_list_default.csv)")
	} else {
		sizes, err := openBMix(o.OpenB)
		if err != nil {
			return nil, err
		}
		mixes = append(mixes, sizes)
	}
	var figures []report.Figure
	for _, sizes := range mixes {
		for _, days := range []int{1, 7} {
			for _, silent := range []bool{false, true} {
				figure, err := waste(ctx, o, sizes, days, silent)
				if err != nil {
					return nil, err
				}
				o.Progress(fmt.Sprintf("%-24s %12.0f GPU-s against %12.0f: %.3f (%.3f to %.3f)",
					figure.Name, figure.Value, figure.AgainstValue, figure.Ratio, figure.RatioLow, figure.RatioHigh))
				figures = append(figures, figure)
			}
		}
	}
	for _, nodes := range o.DecisionNodes {
		figure, err := decision(ctx, o, nodes)
		if err != nil {
			return nil, err
		}
		o.Progress(fmt.Sprintf("%-24s %9.2f ms against %9.2f ms: %.2f (%.2f to %.2f)",
			figure.Name, figure.Value, figure.AgainstValue, figure.Ratio, figure.RatioLow, figure.RatioHigh))
		figures = append(figures, figure)
	}
	return figures, nil
}
