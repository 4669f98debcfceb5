package growth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

const (
	leader = "bench"
	class  = "h100"
	nodes  = 64
	teams  = 100
)

// run is one measurement on a database of its own.
type run struct {
	Options
	url      string
	measured map[string][]report.Pair
	clock    *clocktesting.FakePassiveClock
	store    *postgres.Store
	begin    time.Time
}

func (r *run) all(ctx context.Context) (err error) {
	if err := postgres.Migrate(ctx, r.url); err != nil {
		return err
	}
	r.begin = ledger.Instant(time.Now().Add(-age)).Truncate(time.Minute)
	r.clock = clocktesting.NewFakePassiveClock(r.begin.Add(time.Minute))
	if r.store, err = postgres.Open(ctx, r.url, postgres.Options{Clock: r.clock}); err != nil {
		return err
	}
	defer r.store.Close()
	began := time.Now()
	if err := r.live(ctx); err != nil {
		return err
	}
	entries := float64(r.Jobs * r.Minutes)
	r.Progress(fmt.Sprintf("%.0f intervals charged, %.0f/s", entries, entries/time.Since(began).Seconds()))
	before, err := r.look(ctx)
	if err != nil {
		return err
	}
	if err := r.keep(ctx); err != nil {
		return err
	}
	after, err := r.look(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(before.statements, after.statements) {
		return errors.New("statements are not what they were before compacting and forgetting")
	}
	r.add("growth_bytes_per_job", after.bytes()/float64(r.Jobs), before.bytes()/float64(r.Jobs))
	r.add("growth_bytes_per_interval", after.bytes(hot...)/entries, before.bytes(hot...)/entries)
	r.add("growth_rebuild_entries", entries/after.rebuild.Seconds(), entries/before.rebuild.Seconds())
	r.add("growth_audit_entries", entries/after.audit.Seconds(), entries/before.audit.Seconds())
	for _, table := range slices.Sorted(maps.Keys(before.tables)) {
		r.Progress(fmt.Sprintf("%-17s %10.1f B per job before, %10.1f after", table, before.tables[table]/float64(r.Jobs), after.tables[table]/float64(r.Jobs)))
	}
	return nil
}

// hot are the tables that compacting and forgetting are about.
var hot = []string{"metered_interval", "compacted_time", "command", "device_hold"}

func (r *run) add(name string, value, against float64) {
	r.measured[name] = append(r.measured[name], report.Pair{Value: value, Against: against})
	r.Progress(fmt.Sprintf("%s: %.1f after, %.1f before", name, value, against))
}

// live lets every job live: all of them at once, minute by minute, as a cluster does.
func (r *run) live(ctx context.Context) error {
	commands := []ledger.Command{
		ledger.SetRate{Key: "rate", Class: class, Rate: ledger.Rate(ledger.Credit)},
		ledger.SetAccount{Key: "account:root", Account: "root"},
		ledger.PostGrant{Key: "grant", Account: "root", Amount: ledger.MaxAmount / 2},
	}
	for i := range teams {
		commands = append(commands, ledger.SetAccount{Key: "account:" + team(i), Account: team(i), Parent: "root", Policy: ledger.Policy{Funding: ledger.FundingAncestor}})
	}
	if err := r.submit(ctx, commands); err != nil {
		return err
	}
	if _, err := r.store.AcquireLeadership(ctx, leader, "bench"); err != nil {
		return err
	}
	for i := range nodes {
		if _, err := r.store.RegisterNodeAgent(ctx, node(i), "bench"); err != nil {
			return err
		}
	}
	if err := r.each(ctx, func(n int) []ledger.Command {
		return []ledger.Command{
			ledger.PlaceHold{Key: "hold:" + uid(n, "a"), UID: uid(n, "a"), Account: team(n), Class: class, MaxGPUs: 1, GPUSeconds: int64(r.Minutes)*60 + 600,
				Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "team-namespace", Name: fmt.Sprintf("train-%d", n)}},
			ledger.Allocate{Key: "allocate:" + uid(n, "b") + ":1:1", PodUID: uid(n, "b"), Reservation: uid(n, "a"), Account: team(n), Node: node(n), Class: class,
				Pod:  ledger.WorkloadRef{Kind: "Pod", Namespace: "team-namespace", Name: fmt.Sprintf("train-%d-x", n)},
				GPUs: 1, Leader: leader, LeaderEpoch: 1},
			ledger.ConfirmBound{Key: "bound:" + uid(n, "b") + ":" + node(n), PodUID: uid(n, "b"), Node: node(n)},
			ledger.RecordStart{Key: "start:" + uid(n, "b"), PodUID: uid(n, "b"), StartedAt: r.startOf(n)},
		}
	}); err != nil {
		return err
	}
	for minute := range r.Minutes {
		r.clock.SetTime(r.begin.Add(time.Duration(minute+2) * time.Minute))
		if err := r.each(ctx, func(n int) []ledger.Command {
			from, to := r.begin.Add(time.Duration(minute)*time.Minute), r.begin.Add(time.Duration(minute+1)*time.Minute)
			if minute == 0 {
				from = r.startOf(n)
			}
			return []ledger.Command{ledger.RecordInterval{
				Key: fmt.Sprintf("interval:%s:%d:%d", uid(n, "b"), from.UnixMicro(), to.UnixMicro()), PodUID: uid(n, "b"), Node: node(n), OwnerEpoch: 1,
				PodStartedAt: r.startOf(n), Start: from, End: to, GPUUUIDs: []string{"GPU-" + uid(n%8_000, "c")},
			}}
		}); err != nil {
			return err
		}
	}
	end := r.begin.Add(time.Duration(r.Minutes) * time.Minute)
	return r.each(ctx, func(n int) []ledger.Command {
		return []ledger.Command{
			ledger.EndAllocation{Key: "end:" + uid(n, "b"), PodUID: uid(n, "b"), StartedAt: r.startOf(n), EndedAt: end},
			ledger.CloseReservation{Key: "close:" + uid(n, "a"), UID: uid(n, "a"), Outcome: ledger.Settled},
		}
	})
}

// startOf is within the first minute, so that the first interval is not a whole one.
func (r *run) startOf(n int) time.Time { return r.begin.Add(time.Duration(n%60) * time.Second) }

func team(n int) string { return fmt.Sprintf("team-%d", n%teams) }
func node(n int) string { return fmt.Sprintf("node-%d", n%nodes) }

// uid looks like a Kubernetes UID: random order, so that no index is filled from one end.
func uid(n int, kind string) string {
	mixed := uint64(n+1) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%s%011x", mixed>>32, mixed>>16&0xffff, mixed>>4&0xfff, mixed&0xfff, kind, n)
}

// each submits what every job has to say, many at a time.
func (r *run) each(ctx context.Context, say func(n int) []ledger.Command) error {
	var commands []ledger.Command
	for n := range r.Jobs {
		commands = append(commands, say(n)...)
		if len(commands) >= 1_000 || n == r.Jobs-1 {
			if err := r.submit(ctx, commands); err != nil {
				return err
			}
			commands = nil
		}
	}
	return nil
}

// submit is an error also when a command is refused: then something else would be measured.
func (r *run) submit(ctx context.Context, commands []ledger.Command) error {
	verdicts, err := r.store.SubmitAll(ctx, commands)
	if err != nil {
		return err
	}
	for i, verdict := range verdicts {
		if verdict.Refusal != nil {
			return fmt.Errorf("%s: %w", commands[i].CommandKey(), verdict.Refusal)
		}
	}
	return nil
}

// keep compacts and forgets everything, as the controller does, without its rests.
func (r *run) keep(ctx context.Context) error {
	r.clock.SetTime(r.begin.Add(age))
	if _, err := r.store.AcquireLeadership(ctx, leader, "restarted"); err != nil {
		return err
	}
	before := time.Now().Add(-time.Duration(1.5 * 24 * float64(time.Hour)))
	intervals, answers := int64(0), int64(0)
	began := time.Now()
	var compact ledger.CompactionCursor
	for more := true; more; {
		step, err := r.store.Compact(ctx, before, compact)
		if err != nil {
			return err
		}
		if step.Busy || len(step.Unsound) > 0 {
			return fmt.Errorf("compaction was disturbed: %+v", step)
		}
		intervals, compact, more = intervals+step.Intervals, step.Next, step.More
	}
	r.rate("growth_compaction_intervals", intervals, began)
	began = time.Now()
	var forget ledger.ForgetCursor
	for more := true; more; {
		step, err := r.store.ForgetCommands(ctx, before, forget)
		if err != nil {
			return err
		}
		answers, forget, more = answers+step.Forgotten, step.Next, step.More
	}
	r.rate("growth_forgotten_answers", answers, began)
	for more := true; more; {
		var err error
		if _, more, err = r.store.ForgetDeviceHolds(ctx, before); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) rate(name string, rows int64, since time.Time) {
	perSecond := float64(rows) / time.Since(since).Seconds()
	r.measured[name] = append(r.measured[name], report.Pair{Value: perSecond, Against: 1})
	r.Progress(fmt.Sprintf("%s: %d, %.0f/s", name, rows, perSecond))
}

// view is what a ledger looks like.
type view struct {
	tables         map[string]float64 // bytes with indexes
	statements     []string
	rebuild, audit time.Duration
}

// bytes of the named tables, or of all.
func (v view) bytes(tables ...string) (sum float64) {
	for table, size := range v.tables {
		if len(tables) == 0 || slices.Contains(tables, table) {
			sum += size
		}
	}
	return sum
}

func (r *run) look(ctx context.Context) (v view, err error) {
	for more := true; more; {
		sealed, err := r.store.Seal(ctx)
		if err != nil {
			return v, err
		}
		more = sealed.More
	}
	if v.tables, err = r.sizes(ctx); err != nil {
		return v, err
	}
	began := time.Now()
	if changed, err := r.store.Rebuild(ctx); err != nil || changed != 0 {
		return v, fmt.Errorf("the rebuild changed %d rows: %w", changed, err)
	}
	v.rebuild = time.Since(began)
	began = time.Now()
	if found, err := r.store.Audit(ctx); err != nil || len(found) > 0 {
		return v, fmt.Errorf("the audit found %v: %w", found, err)
	}
	v.audit = time.Since(began)
	at := r.clock.Now()
	r.clock.SetTime(r.begin.Add(age)) // statements say when they were made
	defer r.clock.SetTime(at)
	for _, account := range []string{"root", team(0), team(1)} {
		asked := ledger.StatementQuery{Account: account, From: r.begin.Add(-time.Hour), To: r.begin.Add(age)}
		var csv, json bytes.Buffer
		if err := errors.Join(r.store.StreamStatement(ctx, asked, ledger.CSVStatement(&csv)), r.store.StreamStatement(ctx, asked, ledger.JSONStatement(&json))); err != nil {
			return v, err
		}
		v.statements = append(v.statements, csv.String(), json.String())
	}
	return v, nil
}

// sizes are the bytes of each table with its indexes, without free space.
func (r *run) sizes(ctx context.Context) (map[string]float64, error) {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "VACUUM (FULL, ANALYZE)"); err != nil {
		return nil, fmt.Errorf("vacuum: %w", err)
	}
	rows, err := conn.Query(ctx, `SELECT relname, pg_total_relation_size(oid)::float8 FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`)
	if err != nil {
		return nil, fmt.Errorf("read the tables' sizes: %w", err)
	}
	sizes := make(map[string]float64)
	var table string
	var size float64
	_, err = pgx.ForEachRow(rows, []any{&table, &size}, func() error {
		if !strings.HasPrefix(table, "goose") {
			sizes[table] = size
		}
		return nil
	})
	return sizes, err
}
