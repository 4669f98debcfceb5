package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest/slow"
)

// Random histories, compacted between their batches, are answered as the slow ledger answers them, and end with the same
// rows: expanded again by the migration that takes compaction back, also the same intervals.
func TestCompactionIsInvisible(t *testing.T) {
	t.Parallel()
	f := emptyDatabase(t)
	f.upToDate()
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	compacted := int64(0)
	between := func(random *rand.Rand, _ []ledger.Command, _ []ledger.Verdict) {
		if random.IntN(3) == 0 {
			compacted += f.compactAll(f.store).Intervals
		}
	}
	rows := make(map[string]slow.Rows)
	for seed := range 80 {
		prefix, want := historyBetween(t, f, conn, seed, between)
		rows[prefix] = want
	}
	compacted += f.compactAll(f.store).Intervals
	if compacted < 50 {
		t.Errorf("only %d intervals were compacted; the test compares nothing", compacted)
	}
	f.audit()
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
		t.Errorf("the rebuild changed %d rows, %v", changed, err)
	}
	f.migrateTo(beforeGrowth)
	for prefix, want := range rows {
		r := &rowReader{T: t, conn: conn, prefix: prefix + "%"}
		got := r.rows()
		if diff := cmp.Diff(withoutReceipt(want), withoutReceipt(got)); diff != "" {
			t.Errorf("history %s, intervals after the migration down: slow - database +: %s", prefix, diff)
		}
	}
	f.upToDate()
	f.audit()
}

// beforeGrowth is the last version without compaction.
const beforeGrowth = 12

func withoutReceipt(rows slow.Rows) map[string][]ledger.Interval {
	for _, pieces := range rows.Intervals {
		for i := range pieces {
			pieces[i].ReceivedAt = time.Time{}
		}
	}
	return rows.Intervals
}

// historyBetween plays a random history and compares answers and, but for intervals, rows after each batch; between the batches it
// is told what was asked and answered.
func historyBetween(t *testing.T, f *fixture, conn *pgx.Conn, seed int, between func(*rand.Rand, []ledger.Command, []ledger.Verdict)) (prefix string, last slow.Rows) {
	t.Helper()
	prefix = fmt.Sprintf("c%d-", seed)
	plain := slow.New(map[string]int64{lt.LeaderOf(prefix): 1}, map[string]int64{lt.NodesOf(prefix)[0]: 1, lt.NodesOf(prefix)[1]: 1})
	plain.Partial = true
	f.beginEpochsOf(prefix)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	r := &rowReader{T: t, conn: conn, prefix: prefix + "%"}
	history := lt.History(prefix).Example(seed)
	history[1].Commands = append(livesOf(prefix, random), history[1].Commands...)
	for n, batch := range history {
		batch.Commands = onGrid(batch.Commands)
		if n > 1 {
			batch.Commands = append(batch.Commands, lateFor(prefix, n, random)...)
		}
		f.clock.SetTime(batch.Now)
		commands := r.numbered(plain, batch.Commands)
		want := plain.Decide(batch.Now, batch.Commands...)
		got, err := f.store.SubmitAll(t.Context(), commands)
		if err != nil {
			t.Fatalf("seed %d, batch %d: %v", seed, n, err)
		}
		for i := range want {
			if diff := cmp.Diff(want[i], slow.Answer(got[i])); diff != "" {
				t.Fatalf("seed %d, batch %d, %#v: slow - database +: %s", seed, n, batch.Commands[i], diff)
			}
		}
		wantRows, gotRows := plain.Rows(), r.rows()
		for i := range min(len(wantRows.Entries), len(gotRows.Entries)) { // numbers are the database's
			gotRows.Entries[i].Corrects = wantRows.Entries[i].Corrects
		}
		last = wantRows
		gotRows.Intervals = wantRows.Intervals
		if diff := cmp.Diff(wantRows, gotRows); diff != "" {
			t.Fatalf("seed %d, after batch %d, %#v: slow - database +: %s", seed, n, batch.Commands, diff)
		}
		between(random, commands, got)
	}
	return prefix, last
}

// livesOf are pods of the history's names that are metered in pieces, with some left out, and mostly end: what the history says of
// them comes late.
func livesOf(prefix string, random *rand.Rand) (commands []ledger.Command) {
	for i := range 3 {
		uid, pod := fmt.Sprintf("%sw%d", prefix, i), fmt.Sprintf("%sp%d", prefix, i)
		account, class, node := prefix+"a0", prefix+"c0", lt.NodesOf(prefix)[i%2]
		commands = append(commands,
			ledger.PlaceHold{Key: "lives:hold:" + uid, UID: uid, Account: account, Class: class, MaxGPUs: 2, GPUSeconds: 100,
				Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: uid}},
			ledger.Allocate{Key: "lives:allocate:" + pod, PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "n", Name: pod},
				Reservation: uid, Account: account, Class: class, Node: node, GPUs: 1, Leader: lt.LeaderOf(prefix), LeaderEpoch: 1})
		for at := range 25 {
			if random.IntN(6) == 0 {
				continue
			}
			start := lt.At(float64(10 * at))
			commands = append(commands, ledger.RecordInterval{
				Key: fmt.Sprintf("%sinterval:%s:%d", prefix, pod, start.UnixMicro()), PodUID: pod, Node: node, OwnerEpoch: 1,
				PodStartedAt: lt.At(0), Start: start, End: start.Add(10 * time.Second), GPUUUIDs: []string{prefix + "GPU-0"},
			})
		}
		if random.IntN(4) > 0 {
			commands = append(commands, ledger.EndAllocation{Key: "lives:end:" + pod, PodUID: pod, StartedAt: lt.At(0), EndedAt: lt.At(255.5)})
		}
	}
	return commands
}

// lateFor are reports of these pods under keys that nobody remembers: pieces that are known, pieces that were left out, and some over
// two of them.
func lateFor(prefix string, n int, random *rand.Rand) (commands []ledger.Command) {
	for k := range 4 {
		i, start := random.IntN(3), lt.At(float64(10*random.IntN(26)))
		end := start.Add(10 * time.Second)
		if random.IntN(4) == 0 {
			end = end.Add(10 * time.Second)
		}
		pod := fmt.Sprintf("%sp%d", prefix, i)
		commands = append(commands, ledger.RecordInterval{
			Key: fmt.Sprintf("%slate:%d:%d", prefix, n, k), PodUID: pod, Node: lt.NodesOf(prefix)[i%2], OwnerEpoch: 1,
			PodStartedAt: lt.At(0), Start: start, End: end, GPUUUIDs: []string{prefix + "GPU-0"},
		})
	}
	return commands
}

// onGrid has intervals be cut as agents cut, so that they follow one another and come again as they were: the one that was said, and
// some of those beside it.
func onGrid(commands []ledger.Command) (all []ledger.Command) {
	const cell = 10 * time.Second
	for _, command := range commands {
		c, ok := command.(ledger.RecordInterval)
		if !ok || c.End.Sub(c.Start)%time.Second != 0 { // some stay as they are
			all = append(all, command)
			continue
		}
		prefix, _, _ := strings.Cut(c.Key, "interval:")
		for at := c.Start.Truncate(cell); at.Before(c.End.Add(cell)); at = at.Add(cell) {
			piece := c
			piece.Start, piece.End = at, at.Add(cell)
			piece.Key = fmt.Sprintf("%sinterval:%s:%d", prefix, c.PodUID, at.UnixMicro())
			all = append(all, piece)
		}
	}
	return all
}

func (f *fixture) beginEpochsOf(prefix string) {
	f.t.Helper()
	if _, err := f.store.AcquireLeadership(f.t.Context(), lt.LeaderOf(prefix), "test"); err != nil {
		f.t.Fatal(err)
	}
	for _, node := range lt.NodesOf(prefix) {
		if _, err := f.store.RegisterNodeAgent(f.t.Context(), node, "test"); err != nil {
			f.t.Fatal(err)
		}
	}
}
