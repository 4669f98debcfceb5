// Package ledger measures how many commands the ledger decides and makes durable per second, beside pgbench's own
// transaction on the same PostgreSQL with the same durability.
//
// All holds are under one root account with exact limits: the case in which every commit needs the same row. T is
// pgbench's TPC-B-like transactions per second at scale 20 with 16 clients.
//
//   - holds_64_callers_vs_tpcb, holds_1024_callers_vs_tpcb: holds per second by T, each caller waiting for its answer;
//   - holds_worst_step: over 1, 2, 4, … 2,048 callers, the least ratio of a step's holds per second to the best of all
//     smaller ones. 1 means that more callers never get less done;
//   - lives_1024_callers_vs_tpcb: whole lives per second by T: hold, allocation, three intervals, end and settlement;
//   - hold_p99_vs_pgbench_p99: the 99th percentile of one hold with one caller, by that of pgbench's transaction with one client;
//   - holds_100k_accounts_vs_10k: holds per second on ten times the accounts.
//
// Every series has a fresh database. Runs of both sides alternate, and a ratio is taken within a run.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/test/cluster"
)

// Options adjust the measurement. The zero value of each means the published one.
type Options struct {
	// Runs is how often everything is measured; 5 if 0.
	Runs int
	// Time is how long each series runs, Step how long each step of the callers' ladder; 8 s and 3 s if 0.
	Time, Step time.Duration
	// Scale is pgbench's; 20 if 0.
	Scale int
	// Accounts of the small and the large tree that are compared; 10,000 and 100,000 if 0.
	Accounts, ManyAccounts int
	// MostCallers is the last step of the ladder; 2,048 if 0.
	MostCallers int
	// Progress hears what was measured; nil for nobody.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	if o.Runs == 0 {
		o.Runs = 5
	}
	if o.Time == 0 {
		o.Time, o.Step = 8*time.Second, 3*time.Second
	}
	if o.Scale == 0 {
		o.Scale = 20
	}
	if o.Accounts == 0 {
		o.Accounts, o.ManyAccounts = 10_000, 100_000
	}
	if o.MostCallers == 0 {
		o.MostCallers = 2_048
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

const (
	tpcb      = "pgbench TPC-B, 16 clients"
	oneClient = "pgbench TPC-B, one client"
	smallTree = 110 // a root, 10 departments, 99 teams
)

// Run measures, and writes ledger.json into outDir.
func Run(ctx context.Context, outDir string, options Options) (err error) {
	options = options.withDefaults()
	pg, err := cluster.StartPostgres(ctx, cluster.PostgresOptions{Progress: options.Progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	b := &bench{Options: options, pg: pg}
	if err := b.preparePgbench(ctx); err != nil {
		return err
	}
	measured := make(map[string][]report.Pair)
	var worst []float64
	for i := range options.Runs {
		if err := b.run(ctx, measured); err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		step, err := b.ladder(ctx)
		if err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		worst = append(worst, step)
	}
	slices.Sort(worst)
	figures := []report.Figure{
		report.Compare("holds_64_callers_vs_tpcb", "1/s", b.tpcb(), measured["64"]),
		report.Compare("holds_1024_callers_vs_tpcb", "1/s", b.tpcb(), measured["1024"]),
		{Name: "holds_worst_step", Unit: "ratio", Against: "the best of fewer callers", Value: report.Median(worst),
			Ratio: report.Median(worst), RatioLow: worst[0], RatioHigh: worst[len(worst)-1], Runs: len(worst)},
		report.Compare("lives_1024_callers_vs_tpcb", "1/s", b.tpcb(), measured["lives"]),
		report.Compare("hold_p99_vs_pgbench_p99", "ms", fmt.Sprintf("%s, scale %d", oneClient, options.Scale), measured["p99"]),
		report.Compare("holds_100k_accounts_vs_10k", "1/s", fmt.Sprintf("%d accounts instead of %d", options.Accounts, options.ManyAccounts), measured["accounts"]),
	}
	version, err := pg.Version(ctx)
	if err != nil {
		return err
	}
	return report.Write(filepath.Join(outDir, "ledger.json"), map[string]string{"postgresql": version}, figures)
}

type bench struct {
	Options
	pg        *cluster.Postgres
	databases int
}

func (b *bench) tpcb() string { return fmt.Sprintf("%s, scale %d", tpcb, b.Scale) }

// run measures everything but the ladder once, T before and after what is compared with it.
func (b *bench) run(ctx context.Context, measured map[string][]report.Pair) error {
	before, err := b.pgbench(ctx, 16)
	if err != nil {
		return err
	}
	values := make(map[string]float64)
	for _, callers := range []int{64, 1024} {
		held, err := b.holds(ctx, smallTree, callers, b.Time)
		if err != nil {
			return err
		}
		values[fmt.Sprint(callers)] = held.perSecond
	}
	if values["lives"], err = b.lives(ctx, 1024, b.Time); err != nil {
		return err
	}
	after, err := b.pgbench(ctx, 16)
	if err != nil {
		return err
	}
	transactions := (before.perSecond + after.perSecond) / 2
	for _, name := range []string{"64", "1024", "lives"} {
		measured[name] = append(measured[name], report.Pair{Value: values[name], Against: transactions})
		b.Progress(fmt.Sprintf("%s: %.0f/s, %.1f times the %.0f/s of pgbench", name, values[name], values[name]/transactions, transactions))
	}
	single, err := b.pgbench(ctx, 1)
	if err != nil {
		return err
	}
	one, err := b.holds(ctx, smallTree, 1, b.Time)
	if err != nil {
		return err
	}
	measured["p99"] = append(measured["p99"], report.Pair{Value: one.p99(), Against: single.p99()})
	b.Progress(fmt.Sprintf("p99 of one caller: %.2f ms, of one pgbench client %.2f ms", one.p99(), single.p99()))

	few, err := b.holds(ctx, b.Accounts, 1024, b.Time)
	if err != nil {
		return err
	}
	many, err := b.holds(ctx, b.ManyAccounts, 1024, b.Time)
	if err != nil {
		return err
	}
	measured["accounts"] = append(measured["accounts"], report.Pair{Value: many.perSecond, Against: few.perSecond})
	b.Progress(fmt.Sprintf("%d accounts: %.0f/s; %d accounts: %.0f/s", b.Accounts, few.perSecond, b.ManyAccounts, many.perSecond))
	return nil
}

// ladder doubles the callers from step to step and returns the least ratio of a step to the best before it.
func (b *bench) ladder(ctx context.Context) (worst float64, err error) {
	worst = 1
	best := 0.0
	for callers := 1; callers <= b.MostCallers; callers *= 2 {
		held, err := b.holds(ctx, smallTree, callers, b.Step)
		if err != nil {
			return 0, err
		}
		if best > 0 {
			worst = min(worst, held.perSecond/best)
		}
		best = max(best, held.perSecond)
		b.Progress(fmt.Sprintf("%d callers: %.0f holds/s", callers, held.perSecond))
	}
	return worst, nil
}
