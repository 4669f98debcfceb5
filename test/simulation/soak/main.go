// Command soak simulates one seed after the other, each a ledger of its own under faults, for as long as it is told to. It
// says what it does every ten seconds and how to repeat what failed, and ends with the counts of everything; with exit code
// 1 if anything failed. An interrupt ends it in order, with the same summary.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/simulation"
)

// progressEvery is how often a line says how far it is.
const progressEvery = 10 * time.Second

func main() {
	simulation.ServeChild() // does not return in a process that was started as a writer
	duration := flag.Duration("duration", time.Hour, "begin no seed after this")
	first := flag.Uint64("seed", 0, "the first seed; 0 for a random one. The next ones count up")
	commands := flag.Int("commands", 50_000, "commands of each seed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *first == 0 {
		*first = rand.Uint64N(1_000_000_000) + 1
	}
	failed, err := soak(ctx, *first, *commands, *duration)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || failed {
		stop()
		os.Exit(1)
	}
}

func soak(ctx context.Context, seed uint64, commands int, duration time.Duration) (failed bool, err error) {
	// PostgreSQL outlives an interrupt: it is stopped in order.
	pg, err := cluster.StartPostgres(context.WithoutCancel(ctx), cluster.PostgresOptions{})
	if err != nil {
		return false, err
	}
	defer func() {
		if closeErr := pg.Close(); err == nil {
			err = closeErr
		}
	}()
	s := &summary{began: time.Now(), first: seed}
	defer s.print()
	fmt.Printf("soaking for %s from seed %d, %d commands each; interrupt to end\n", duration, seed, commands)
	for ; time.Since(s.began) < duration && ctx.Err() == nil; seed++ {
		plan := simulation.NewPlan(seed, commands)
		report, err := simulation.Run(ctx, plan, simulation.Options{Postgres: pg, Counts: func(c simulation.Counts) { s.progress(seed, c) }})
		s.add(seed, report, ctx.Err() == nil && err == nil)
		for _, v := range report.Violations {
			fmt.Printf("seed %d: VIOLATION %s\n", seed, v)
		}
		if len(report.Violations) > 0 {
			fmt.Printf("seed %d: to repeat: %s\n", seed, plan.Reproduce())
		}
		if err != nil && ctx.Err() == nil {
			return true, fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return len(s.failed) > 0, nil
}

// summary adds seeds up.
type summary struct {
	began    time.Time
	told     time.Time
	first    uint64
	done     int
	failed   []uint64
	entries  int
	finished simulation.Counts
}

func (s *summary) add(seed uint64, report simulation.Report, complete bool) {
	s.finished.Add(report.Counts)
	s.entries += report.Entries
	if len(report.Violations) > 0 {
		s.failed = append(s.failed, seed)
	}
	if complete {
		s.done++
		fmt.Printf("seed %d: %d violations; %d entries; %s; %s under faults, %s to check\n", seed, len(report.Violations), report.Entries,
			report.Counts, report.Took.Round(time.Millisecond), report.Checked.Round(time.Millisecond))
	}
}

func (s *summary) progress(seed uint64, current simulation.Counts) {
	if time.Since(s.told) < progressEvery {
		return
	}
	s.told = time.Now()
	var all simulation.Counts
	all.Add(s.finished)
	all.Add(current)
	fmt.Printf("%s: %d seeds done, %d failed, at seed %d; %s\n", time.Since(s.began).Round(time.Second), s.done, len(s.failed), seed, all)
}

func (s *summary) print() {
	fmt.Printf("soaked for %s: %d seeds from %d, %d of them failed %v; %d entries; %s\n", time.Since(s.began).Round(time.Second),
		s.done, s.first, len(s.failed), s.failed, s.entries, s.finished)
}
