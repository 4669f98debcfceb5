// Package admission measures what gpubank's webhook adds to the creation of a GPU Job: the latency that a client sees, with
// and without it, at constant arrival rates.
//
// Both sides create the same Jobs on the same API server, with the same number of Jobs stored. With: in a namespace whose
// account pays, so that the webhook completes each Job and sets its credits aside, durably, in PostgreSQL. Without: in a
// namespace that is not enrolled, whose Jobs the API server never sends to the webhook.
//
//   - Arrivals are open-loop: requests are sent at their scheduled times, whether or not earlier ones have been answered, and a
//     latency counts from the scheduled time. A server that stalls cannot hide the requests that wait meanwhile.
//   - Runs of both sides alternate, and so does which of the two goes first; a ratio is taken within such a pair.
//   - etcd flushes to disk, as it does in production and as PostgreSQL does here. Without, the comparison would be between a
//     durable commit and one that is not.
//   - Only etcd, the API server, PostgreSQL and the webhook run meanwhile: no controller reacts to the Jobs.
//   - The processor time that these four use for a creation is reported beside its latency. Who else is on the machine changes
//     latencies by far, and it by little.
//
// All of it is done twice: with the manifests as shipped, and with their component mutating-policy, which leaves the webhook
// one call per Job instead of two.
package admission

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpubank/gpubank/bench/report"
)

// Options adjust the measurement. The zero value of each means the published one.
type Options struct {
	// Rates are creations per second; 50 and 200 if nil.
	Rates []int
	// Pairs is how many runs each side has at each rate; 5 if 0.
	Pairs int
	// Run is how long one run lasts, WarmUp how much of its beginning is not counted; 15 s and 2 s if 0.
	Run, WarmUp time.Duration
	// Progress hears what was measured; nil for nobody.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	if o.Rates == nil {
		o.Rates = []int{50, 200}
	}
	if o.Pairs == 0 {
		o.Pairs = 5
	}
	if o.Run == 0 {
		o.Run, o.WarmUp = 15*time.Second, 2*time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Run measures, and writes admission.json into outDir. A rate that this machine cannot sustain, so that a request fails, has no
// figures; the others are written, and then it is an error.
func Run(ctx context.Context, outDir string, options Options) error {
	options = options.withDefaults()
	var figures []report.Figure
	var version string
	var all error
	for _, installed := range []installation{asShipped, withPolicy} {
		more, postgresVersion, err := installed.measure(ctx, options)
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", installed.what, err))
		}
		figures, version = append(figures, more...), postgresVersion
	}
	if len(figures) == 0 {
		return all
	}
	return errors.Join(all, report.Write(filepath.Join(outDir, "admission.json"), map[string]string{"postgresql": version}, figures))
}

// installation is what of the manifests is installed.
type installation struct {
	infix  string // of its figures' names
	what   string
	policy bool // the component mutating-policy
}

var (
	asShipped  = installation{what: "manifests as shipped"}
	withPolicy = installation{infix: "_policy", what: "with the component mutating-policy", policy: true}
)

func (i installation) measure(ctx context.Context, options Options) (figures []report.Figure, postgresVersion string, err error) {
	options.Progress(i.what)
	r, err := newRig(ctx, i, options.Progress)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if postgresVersion, err = r.postgresVersion(ctx); err != nil {
		return nil, "", err
	}
	var all error
	for _, rate := range options.Rates {
		pairs, err := r.pairs(ctx, rate, options)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		figures = append(figures, i.compare(rate, pairs)...)
	}
	if all == nil { // of failed requests nobody knows whether they hold anything
		all = r.checkHolds(ctx)
	}
	for _, figure := range figures {
		options.Progress(fmt.Sprintf("%s: %.1f %s against %.1f %s, ratio %.2f (%.2f to %.2f)",
			figure.Name, figure.Value, figure.Unit, figure.AgainstValue, figure.Unit, figure.Ratio, figure.RatioLow, figure.RatioHigh))
	}
	return figures, postgresVersion, all
}

// pair is one run of each side, one right after the other.
type pair struct{ with, without measured }

func (r *rig) pairs(ctx context.Context, rate int, options Options) ([]pair, error) {
	var pairs []pair
	for i := range options.Pairs {
		var p pair
		sides := []struct {
			namespace string
			result    *measured
		}{{enrolled, &p.with}, {notEnrolled, &p.without}}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			var err error
			if *side.result, err = r.run(ctx, side.namespace, rate, options); err != nil {
				return nil, fmt.Errorf("create %d Jobs per second in namespace %s: %w", rate, side.namespace, err)
			}
		}
		options.Progress(fmt.Sprintf("%d/s, pair %d: with %s; without %s", rate, i+1, p.with, p.without))
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func (i installation) compare(rate int, pairs []pair) []report.Figure {
	figure := func(name, unit string, of func(measured) float64) report.Figure {
		var ratios []report.Pair
		for _, p := range pairs {
			ratios = append(ratios, report.Pair{Value: of(p.with), Against: of(p.without)})
		}
		return report.Compare(fmt.Sprintf("admission%s_%s_%d_vs_none", i.infix, name, rate), unit,
			fmt.Sprintf("the same GPU Jobs, %d per second, in a namespace that is not enrolled", rate), ratios)
	}
	quantile := func(q float64) report.Figure {
		return figure(fmt.Sprintf("p%.0f", 100*q), "ms", func(m measured) float64 { return m.quantile(q) })
	}
	return []report.Figure{quantile(.99), quantile(.50), figure("cpu", "µs", func(m measured) float64 {
		return float64(m.processors.total().Microseconds())
	})}
}
