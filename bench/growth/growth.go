// Package growth measures how large a ledger gets and what keeps it from growing: jobs live whole lives, by the minute, and then
// everything that may be is compacted and forgotten.
//
//   - growth_bytes_per_job: what a job leaves in the ledger, tables and indexes, afterwards and before;
//   - growth_bytes_per_interval: what of that is measured time and remembered answers, by interval: what compacting and forgetting are
//     about. The rest is entries, which stay;
//   - growth_compaction_intervals, growth_forgotten_answers: rows per second that compacting and forgetting take away;
//   - growth_rebuild_entries: entries per second of a rebuild of the projection, afterwards and before;
//   - growth_audit_entries: entries per second of an audit, likewise.
//
// Every run has a fresh database, and is an error unless statements are the same afterwards, byte by byte. Sizes are those of
// tables without free space (VACUUM FULL), since free space is used again.
package growth

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/test/cluster"
)

// Options adjust the measurement. The zero value of each means the default.
type Options struct {
	// Runs is how often everything is measured; 3 if 0.
	Runs int
	// Jobs is how many lives there are, Minutes how long each is, which is how many intervals it has; 400 and 120 if 0.
	Jobs, Minutes int
	// Progress hears what was measured; nil for nobody.
	Progress func(line string)
}

// FromEnvironment reads GROWTH_JOBS and GROWTH_MINUTES.
func FromEnvironment(lookup func(string) (string, bool)) (o Options, err error) {
	for name, field := range map[string]*int{"GROWTH_JOBS": &o.Jobs, "GROWTH_MINUTES": &o.Minutes} {
		text, set := lookup(name)
		if !set || text == "" {
			continue
		}
		if *field, err = strconv.Atoi(text); err != nil || *field < 1 {
			return o, fmt.Errorf("%s=%q: want a whole number, 1 or more", name, text)
		}
	}
	return o, nil
}

func (o Options) withDefaults() Options {
	if o.Runs == 0 {
		o.Runs = 3
	}
	if o.Jobs == 0 {
		o.Jobs = 400
	}
	if o.Minutes == 0 {
		o.Minutes = 120
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Run measures, and writes growth.json into outDir.
func Run(ctx context.Context, outDir string, options Options) (err error) {
	options = options.withDefaults()
	pg, err := cluster.StartPostgres(ctx, cluster.PostgresOptions{Progress: options.Progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	measured := make(map[string][]report.Pair)
	for i := range options.Runs {
		url, err := pg.CreateDatabase(ctx, "growth_"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		run := &run{Options: options, url: url, measured: measured}
		if err := run.all(ctx); err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		if err := pg.DropDatabase(ctx, "growth_"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	size := fmt.Sprintf("%d jobs of %d one-minute intervals", options.Jobs, options.Minutes)
	rate := func(name string) report.Figure {
		figure := report.Compare(name, "1/s", size, measured[name])
		figure.AgainstValue, figure.Ratio, figure.RatioLow, figure.RatioHigh = 0, 0, 0, 0 // there is nothing to compare with
		return figure
	}
	figures := []report.Figure{
		report.Compare("growth_bytes_per_job", "B", "before compacting and forgetting, "+size, measured["growth_bytes_per_job"]),
		report.Compare("growth_bytes_per_interval", "B", "before compacting and forgetting, "+size, measured["growth_bytes_per_interval"]),
		rate("growth_compaction_intervals"), rate("growth_forgotten_answers"),
		report.Compare("growth_rebuild_entries", "1/s", "before compacting and forgetting, "+size, measured["growth_rebuild_entries"]),
		report.Compare("growth_audit_entries", "1/s", "before compacting and forgetting, "+size, measured["growth_audit_entries"]),
	}
	version, err := pg.Version(ctx)
	if err != nil {
		return err
	}
	return report.Write(filepath.Join(outDir, "growth.json"), map[string]string{"postgresql": version}, figures)
}

// age is how long ago the jobs lived: older than what the database forgets at all.
const age = 40 * 24 * time.Hour
