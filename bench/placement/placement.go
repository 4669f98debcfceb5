// Package placement measures how much of a cluster's GPU capacity gets allocated, on the public openb traces of a production
// cluster of 1,213 nodes and 6,212 GPUs, with the score that the plugin gpubestfit uses, against the published results of
// fragmentation gradient descent (FGD, USENIX ATC 2023, "Beware of Fragmentation").
//
// The protocol is the published one: every pod of a trace once, then pods drawn from it until 130 % of the cluster's GPU
// capacity are requested, shuffled by seed. Pods arrive one at a time and never leave; one that fits nowhere is dropped.
// Allocated capacity is read when 100 % and when 130 % have been requested. The score learns the mix of requests from the pods
// that have arrived, and from nothing else.
//
// The published Random and BestFit are replayed too: where they do not come out as published, the harness measures something
// else, and no figure is written.
package placement

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gpubank/gpubank/bench/report"
)

// Tolerance is how many points of allocated capacity a published policy may be off.
const Tolerance = 0.5

// Options adjust the measurement.
type Options struct {
	// Folder has the traces' files (OPENB_DIR).
	Folder string
	// Traces are names as default or multigpu50, separated by commas (OPENB_TRACES); all in the folder if empty.
	Traces string
	// Seeds is how many shuffles the mean is taken over; 10 if 0, which is how many the published means are of.
	Seeds int
	// Progress hears what was measured; nil for nobody.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	if o.Seeds == 0 {
		o.Seeds = 10
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// policies are what is replayed, by the names under which they are published; ours is the last.
var policies = []struct {
	name string
	// times is how many replays there are for each seed of Options.
	times  int
	newFor func(*Trace, *rand.Rand) Policy
}{
	{"Random", randomTimes, func(_ *Trace, source *rand.Rand) Policy { return &random{source: source} }},
	{"BestFit", 1, func(t *Trace, _ *rand.Rand) Policy { return &bestFit{t.MaxMilliCPU, t.MaxDevices} }},
	{ours, 1, func(t *Trace, _ *rand.Rand) Policy { return newScored(t) }},
}

const (
	// randomTimes is because Random differs most from seed to seed, by one point on multigpu50: the mean of ten is uncertain by a third of a point, which leaves
	// little of Tolerance for real differences.
	randomTimes = 4

	ours    = "gpubank"
	against = "FGD"
)

// Result is the mean over seeds of one policy on one trace.
type Result struct {
	Trace, Policy   string
	Mean, Low, High Outcome
	Seeds           int
	// Published is that policy's own published outcome, Against that of FGD; zero if there is none.
	Published, Against Outcome
}

// Run replays, prints a table and a chart, and writes placement.json and placement.svg into outDir.
func Run(ctx context.Context, outDir string, options Options) error {
	options = options.withDefaults()
	traces, err := Load(options.Folder, options.Traces)
	if err != nil {
		return err
	}
	published, err := readPublished(options.Folder)
	if err != nil {
		return err
	}
	results, err := measure(ctx, traces, published, options)
	if err != nil {
		return err
	}
	if err := writeDrawing(filepath.Join(outDir, "placement.svg"), results); err != nil {
		return err
	}
	return report.Write(filepath.Join(outDir, "placement.json"), nil, figures(results))
}

// measure replays all policies on all traces. It is an error if one does not come out as published.
func measure(ctx context.Context, traces []*Trace, published Published, options Options) ([]Result, error) {
	var results []Result
	var wrong error
	for _, trace := range traces {
		for _, policy := range policies {
			result, err := replaySeeds(ctx, trace, policy.name, policy.newFor, options.Seeds*policy.times)
			if err != nil {
				return nil, err
			}
			result.Published = published[trace.Name][policy.name]
			result.Against = published[trace.Name][against]
			results = append(results, result)
			options.Progress(result.String())
			if policy.name != ours {
				wrong = errors.Join(wrong, result.miscalibrated())
			}
		}
	}
	for line := range strings.Lines(table(results) + "\n" + chart(results)) {
		options.Progress(strings.TrimSuffix(line, "\n"))
	}
	if wrong != nil {
		return nil, fmt.Errorf("the harness does not reproduce published policies, so nothing is compared with it: %w", wrong)
	}
	return results, nil
}

// replaySeeds replays one policy for each seed, as many at a time as there are processors.
func replaySeeds(ctx context.Context, trace *Trace, name string, newFor func(*Trace, *rand.Rand) Policy, seeds int) (Result, error) {
	outcomes := make([]Outcome, seeds)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for seed := range seeds {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			// Arrivals and a policy's own luck come from different streams, so that all policies meet the same arrivals.
			arrivals, luck := rand.New(rand.NewPCG(uint64(seed)+1, 0)), rand.New(rand.NewPCG(uint64(seed)+1, 1))
			outcomes[seed], _ = Replay(trace, Submit(trace, arrivals), newFor(trace, luck))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, fmt.Errorf("replay %s with %s: %w", trace.Name, name, err)
	}
	result := Result{Trace: trace.Name, Policy: name, Seeds: seeds}
	for at := range Arrived {
		result.Low[at], result.High[at] = math.Inf(1), math.Inf(-1)
		for _, outcome := range outcomes {
			result.Mean[at] += outcome[at] / float64(seeds)
			result.Low[at] = min(result.Low[at], outcome[at])
			result.High[at] = max(result.High[at], outcome[at])
		}
	}
	return result, nil
}

// miscalibrated is an error if a published outcome is off by more than Tolerance.
func (r Result) miscalibrated() error {
	var all error
	for at, percent := range Arrived {
		if r.Published[at] != 0 && math.Abs(r.Mean[at]-r.Published[at]) > Tolerance {
			all = errors.Join(all, fmt.Errorf("%s on %s at %d %%: %.2f %% allocated, published %.2f %%", r.Policy, r.Trace, percent, r.Mean[at], r.Published[at]))
		}
	}
	return all
}

func (r Result) String() string {
	return fmt.Sprintf("%-10s %-8s %5.2f %% allocated at %d %% requested, %5.2f %% at %d %%, mean of %d seeds",
		r.Trace, r.Policy, r.Mean[0], Arrived[0], r.Mean[1], Arrived[1], r.Seeds)
}
