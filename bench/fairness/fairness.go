// Package fairness measures, on a virtual clock, how closely the GPU-seconds that accounts get follow their shares, how a team
// that was short is made up for, and how long pods wait. It runs the code that decides in the scheduler, package turn.
package fairness

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

const (
	halfLife = 7 * 24 * time.Hour
	aging    = 24 * time.Hour
	maxWait  = 24 * time.Hour
	// goal is how far delivered GPU-seconds may be from the ideal share, in percent.
	goal = 2.0
)

// Options say how much is simulated.
type Options struct {
	// Seeds are the runs of each scenario; the median is reported. 3 if 0.
	Seeds int
	// Span is how long accounts contend; a week if 0.
	Span time.Duration
	// Progress hears of each scenario; nil for nobody.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	if o.Seeds == 0 {
		o.Seeds = 3
	}
	if o.Span == 0 {
		o.Span = 7 * 24 * time.Hour
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Run measures everything and writes fairness.json into a folder.
func Run(ctx context.Context, folder string, options Options) error {
	figures, err := Measure(ctx, options)
	if err != nil {
		return err
	}
	return report.Write(filepath.Join(folder, "fairness.json"), nil, figures)
}

// Measure returns the figures.
func Measure(ctx context.Context, options Options) ([]report.Figure, error) {
	options = options.withDefaults()
	var figures []report.Figure
	for _, s := range scenarios() {
		pairs := make(map[string][]report.Pair)
		var order []measured
		for seed := range options.Seeds {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			order = s.run(uint64(seed), options.Span)
			for _, m := range order {
				pairs[m.name] = append(pairs[m.name], report.Pair{Value: m.value, Against: m.against})
			}
		}
		for _, m := range order {
			figure := report.Compare(m.name, m.unit, m.says, pairs[m.name])
			figures = append(figures, figure)
			options.Progress(fmt.Sprintf("%s: %.3g %s, %s %.3g", figure.Name, figure.Value, figure.Unit, figure.Against, figure.AgainstValue))
		}
	}
	return figures, nil
}

// measured is one number of one run.
type measured struct {
	name, unit, says string
	value, against   float64
}

// scenario is simulated from a seed.
type scenario struct {
	run func(seed uint64, span time.Duration) []measured
}

func scenarios() []scenario {
	return []scenario{
		{contention("fair_2_equal", 256, []int64{1, 1}, nil, true)},
		{contention("fair_2_unequal", 256, []int64{1, 3}, nil, true)},
		{contention("fair_50_equal", 2000, repeat(50, 1), nil, true)},
		{contention("fair_50_unequal", 2000, repeat(50, 1, 2, 3, 4, 5), nil, true)},
		{contention("fair_50_in_10_groups", 2000, repeat(50, 1, 2, 3, 4, 5), repeat(10, 1, 2), true)},
		{contention("fair_50_equal_nothing_gathered", 2000, repeat(50, 1), nil, false)},
		{catchUp},
		{waits},
		{starvation},
	}
}

func repeat(n int, weights ...int64) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = weights[i%len(weights)]
	}
	return all
}

// contention has every account want more than it gets, all the time: pods of 1, 2, 4 or 8 GPUs of ten minutes to six hours, of which each
// account draws by itself and each prefers one size. With groups, accounts are spread over parents of those weights. Measured is the largest deviation
// of an account's GPU-seconds from its ideal share of what was delivered.
func contention(name string, gpus int64, weights, groups []int64, gathers bool) func(uint64, time.Duration) []measured {
	return func(seed uint64, span time.Duration) []measured {
		var accounts []turn.Account
		ideal := map[string]float64{}
		inGroup := map[int]int64{}
		for i, weight := range weights {
			inGroup[i%max(len(groups), 1)] += weight
		}
		groupWeights := int64(0)
		for i, weight := range groups {
			accounts = append(accounts, turn.Account{Name: fmt.Sprint("group-", i), Weight: weight})
			groupWeights += weight
		}
		for i, weight := range weights {
			a := turn.Account{Name: fmt.Sprint("team-", i), Weight: weight, MaxWait: maxWait, Aging: aging}
			group := i % max(len(groups), 1)
			ideal[a.Name] = float64(weight) / float64(inGroup[group])
			if len(groups) > 0 {
				a.Parent = fmt.Sprint("group-", group)
				ideal[a.Name] *= float64(groups[group]) / float64(groupWeights)
			}
			accounts = append(accounts, a)
		}
		c := newCluster(gpus, halfLife, seed, accounts...)
		c.gathers = gathers
		c.refill = func(account string) (pod, bool) { return c.draw(account), true }
		for _, a := range accounts {
			if _, leaf := ideal[a.Name]; leaf {
				for range 20 {
					c.submit(c.draw(a.Name))
				}
			}
		}
		c.until(start.Add(span))
		total, worst := 0.0, 0.0
		delivered := c.deliveredNow()
		for _, got := range delivered {
			total += got
		}
		for account, share := range ideal {
			worst = max(worst, math.Abs(delivered[account]/total/share-1))
		}
		used := 100 * total / (float64(gpus) * span.Seconds())
		return []measured{
			{name + "_deviation", "% of the ideal share, furthest account", "goal", 100 * worst, goal},
			{name + "_used", "% of all GPU-seconds", "all", used, 100},
		}
	}
}

// draw makes a pod of one of four sizes. Each account prefers one of them, so that accounts differ.
func (c *cluster) draw(account string) pod {
	sizes := []int64{1, 2, 4, 8}
	size := sizes[c.random.IntN(4)]
	if c.random.IntN(2) == 0 {
		size = sizes[int(account[len(account)-1])%4]
	}
	return pod{turn.Pod{Account: account, GPUs: size}, lasting(c.random, 10*time.Minute, 6*time.Hour)}
}

// catchUp has one team use everything for a span while the other wants nothing; then both want all they can get. The gap of their averages
// should close as 2^(-2t/h): it halves in half a half-life.
func catchUp(seed uint64, span time.Duration) []measured {
	const gpus = 512
	c := newCluster(gpus, halfLife, seed, turn.Account{Name: "over"}, turn.Account{Name: "short"})
	want := map[string]bool{"over": true}
	c.refill = func(account string) (pod, bool) {
		return pod{turn.Pod{Account: account, GPUs: 1}, lasting(c.random, 10*time.Minute, 2*time.Hour)}, want[account]
	}
	fill := func(account string) {
		for range gpus {
			p, _ := c.refill(account)
			c.submit(p)
		}
	}
	fill("over")
	c.until(start.Add(span))
	want["short"] = true
	fill("short")
	begin := c.now
	gap := func() float64 { return c.average("over") - c.average("short") }
	first := gap()
	var half time.Duration
	worst := 0.0
	for c.now.Sub(begin) < 2*halfLife {
		c.until(c.now.Add(time.Hour))
		elapsed := c.now.Sub(begin)
		if half == 0 && gap() <= first/2 {
			half = elapsed
		}
		worst = max(worst, math.Abs(gap()-first*math.Exp2(-2*float64(elapsed)/float64(halfLife)))/first)
	}
	return []measured{
		{"catch_up_half", "h until half of the gap is made up", "half of a half-life of 168 h", half.Hours(), halfLife.Hours() / 2},
		{"catch_up_error", "% of the gap, furthest from 2^(-2t/h) in two half-lives", "goal", 100 * worst, 5},
	}
}
