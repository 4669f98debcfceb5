package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/test/cluster"
)

// CostOptions adjust Costs. The zero value of each means the usual one.
type CostOptions struct {
	// Runs is how often both are measured; 3 if 0.
	Runs int
	// Holds and Lives are how many a run carries out; 60,000 and 10,000 if 0.
	Holds, Lives int64
	// Callers is how many wait at once; 1,024 if 0.
	Callers int
	// Progress hears what was measured; nil for nobody.
	Progress func(line string)
}

// Costs measures what one hold and one life take of the processors, here and in PostgreSQL, and writes ledger-costs.json into
// outDir: processor time depends little on what else runs on the machine, which rates do. Beside it lie ledger-costs-holds.pprof
// and ledger-costs-lives.pprof, where this process's part goes; the slowest statements, by what PostgreSQL says that each took,
// are given to Progress.
func Costs(ctx context.Context, outDir string, options CostOptions) (err error) {
	options = options.withDefaults()
	pg, err := cluster.StartPostgres(ctx, cluster.PostgresOptions{Progress: options.Progress,
		Settings: map[string]string{"shared_preload_libraries": "pg_stat_statements"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	b := &bench{pg: pg, Options: Options{Progress: options.Progress}}
	var figures []report.Figure
	for _, series := range []struct {
		name  string
		count int64
		do    func(k *bank) func(ctx context.Context, n int64) error
	}{
		{"hold", options.Holds, func(k *bank) func(context.Context, int64) error {
			return func(ctx context.Context, n int64) error { return k.submit(ctx, k.hold(n)) }
		}},
		{"life", options.Lives, func(k *bank) func(context.Context, int64) error { return k.live }},
	} {
		var here, there, wall []float64
		for run := range options.Runs {
			profile := ""
			if run == options.Runs-1 {
				profile = filepath.Join(outDir, "ledger-costs-"+series.name+".pprof")
			}
			cost, err := b.cost(ctx, options.Callers, series.count, series.do, profile)
			if err != nil {
				return fmt.Errorf("%s, run %d: %w", series.name, run+1, err)
			}
			here, there, wall = append(here, cost.here), append(there, cost.there), append(wall, cost.wall)
			options.Progress(fmt.Sprintf("%s: %.1f µs here, %.1f µs in PostgreSQL, %.1f µs from one to the next", series.name, cost.here, cost.there, cost.wall))
		}
		figures = append(figures,
			report.Figure{Name: series.name + "_processor_here", Unit: "µs", Value: report.Median(here), Runs: len(here)},
			report.Figure{Name: series.name + "_processor_postgresql", Unit: "µs", Value: report.Median(there), Runs: len(there)},
			report.Figure{Name: series.name + "_wall", Unit: "µs", Value: report.Median(wall), Runs: len(wall)})
	}
	version, err := pg.Version(ctx)
	if err != nil {
		return err
	}
	return report.Write(filepath.Join(outDir, "ledger-costs.json"), map[string]string{"postgresql": version}, figures)
}

func (o CostOptions) withDefaults() CostOptions {
	if o.Runs == 0 {
		o.Runs = 3
	}
	if o.Holds == 0 {
		o.Holds, o.Lives = 60_000, 10_000
	}
	if o.Callers == 0 {
		o.Callers = 1_024
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// perCommand is in microseconds: processor time of this process and of PostgreSQL's, and time from one to the next.
type perCommand struct{ here, there, wall float64 }

// cost carries count out in a fresh database. profile is where this process's processor profile goes; empty for none, and no
// list of statements.
func (b *bench) cost(ctx context.Context, callers int, count int64, do func(*bank) func(context.Context, int64) error, profile string) (cost perCommand, err error) {
	k, err := b.open(ctx, smallTree)
	if err != nil {
		return cost, err
	}
	defer k.store.Close()
	admin, err := pgx.Connect(ctx, b.pg.AdminURL("postgres"))
	if err != nil {
		return cost, err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		return cost, err
	}
	if _, err := admin.Exec(ctx, "SELECT pg_stat_statements_reset()"); err != nil {
		return cost, err
	}
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return cost, err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return cost, err
		}
		defer pprof.StopCPUProfile()
	}
	thereBefore, err := processorTimeOfGroup(b.pg.PID())
	if err != nil {
		return cost, err
	}
	hereBefore, began := processorTime(), time.Now()
	if err := carryOut(ctx, callers, count, do(k)); err != nil {
		return cost, err
	}
	wall, here := time.Since(began), processorTime()-hereBefore
	there, err := processorTimeOfGroup(b.pg.PID())
	if err != nil {
		return cost, err
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(count) }
	cost = perCommand{here: per(here), there: per(there - thereBefore), wall: per(wall)}
	if profile != "" {
		err = errors.Join(b.listStatements(ctx, admin, count), b.listUpdates(ctx))
	}
	return cost, err
}

// carryOut lets callers do one thing after the other until count are done.
func carryOut(ctx context.Context, callers int, count int64, do func(ctx context.Context, n int64) error) error {
	_, err := measureUntil(ctx, callers, func(n int64, _ time.Duration) bool { return n > count }, do)
	return err
}

// listStatements tells where PostgreSQL's time went, by statement: what is above one per cent of all.
func (b *bench) listStatements(ctx context.Context, admin *pgx.Conn, count int64) error {
	rows, err := admin.Query(ctx, `SELECT query, calls, rows, 1000 * total_exec_time / $1, 100 * total_exec_time / sum(total_exec_time) OVER ()
		FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 30`, float64(count))
	if err != nil {
		return err
	}
	var text string
	var calls, touched int64
	var micro, percent float64
	_, err = pgx.ForEachRow(rows, []any{&text, &calls, &touched, &micro, &percent}, func() error {
		if percent >= 1 {
			b.Progress(fmt.Sprintf("  %6.2f µs %5.2f rows %6d calls  %.100s", micro, float64(touched)/float64(count), calls, inOneLine(text)))
		}
		return nil
	})
	return err
}

// listUpdates tells how many updates of each table stayed within their page (HOT), which spares every index.
func (b *bench) listUpdates(ctx context.Context) error {
	connection, err := pgx.Connect(ctx, b.pg.AdminURL(b.database()))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	rows, err := connection.Query(ctx, `SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE n_tup_upd > 0 ORDER BY 1`)
	if err != nil {
		return err
	}
	var table string
	var all, within int64
	_, err = pgx.ForEachRow(rows, []any{&table, &all, &within}, func() error {
		b.Progress(fmt.Sprintf("  %s: %d of %d updates within their page", table, within, all))
		return nil
	})
	return err
}

var spaces = regexp.MustCompile(`\s+`)

func inOneLine(text string) string { return spaces.ReplaceAllString(text, " ") }

// processorTime is this process's so far.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic("ledger: getrusage: " + err.Error()) // it has no reason to fail
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// clockTick is the unit of /proc/<pid>/stat, which Linux gives in hundredths of a second on every architecture that Go has.
const clockTick = 10 * time.Millisecond

// processorTimeOfGroup is that of a process, its children and those of them that are over. Linux only.
func processorTimeOfGroup(leader int) (sum time.Duration, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(all) == 0 {
		return 0, errors.New("the processor time of other processes can be read under Linux only")
	}
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended; its parent has its time
		}
		// The name, in parentheses, may contain anything; state, parent, group and so on follow it.
		fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
		pid := filepath.Base(filepath.Dir(path))
		const parent, user, system, userOfChildren, systemOfChildren = 1, 11, 12, 13, 14
		counted := []int{user, system}
		switch strconv.Itoa(leader) {
		case pid:
			counted = append(counted, userOfChildren, systemOfChildren)
		case fields[parent]:
		default:
			continue
		}
		for _, field := range counted {
			ticks, err := strconv.ParseInt(fields[field], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			sum += time.Duration(ticks) * clockTick
		}
	}
	return sum, nil
}
