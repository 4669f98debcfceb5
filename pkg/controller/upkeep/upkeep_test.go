package upkeep_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/controller/upkeep"
	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// tellingClock says each time that somebody begins to wait for it, and how long.
type tellingClock struct {
	*clocktesting.FakeClock
	waits chan time.Duration
}

func (c *tellingClock) After(d time.Duration) <-chan time.Time {
	fires := c.FakeClock.After(d)
	c.waits <- d
	return fires
}

const (
	interval     = 10 * time.Minute
	compactAfter = 24 * time.Hour
	remember     = 48 * time.Hour
	rememberGPUs = 72 * time.Hour
)

// kept is an upkeep at work under a clock that the test advances.
type kept struct {
	t        *testing.T
	clock    *tellingClock
	registry *prometheus.Registry
}

func keep(t *testing.T, store upkeep.Ledger, clock *tellingClock) *kept {
	t.Helper()
	k := &kept{t: t, clock: clock, registry: prometheus.NewRegistry()}
	u := upkeep.New(upkeep.Options{
		Ledger: store, CompactAfter: compactAfter, Remember: remember, RememberGPUs: rememberGPUs, Interval: interval,
		Clock: clock, Logger: testr.New(t), Registry: k.registry,
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := u.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	k.untilRests()
	return k
}

// untilRests waits for the end of a pass.
func (k *kept) untilRests() {
	k.t.Helper()
	for wait := range k.clock.waits {
		if wait == interval {
			return
		}
		k.clock.Step(wait)
	}
}

func (k *kept) pass(after time.Duration) {
	k.t.Helper()
	k.clock.Step(after)
	k.untilRests()
}

func (k *kept) metric(name string, want float64) {
	k.t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want {
				k.t.Errorf("%s is %v, want %v", name, got, want)
			}
			return
		}
	}
	k.t.Errorf("there is no metric %s", name)
}

// Pass by pass, each thing goes when it is old enough, and no sooner.
func TestUpkeepOfAnAgingLedger(t *testing.T) {
	t.Parallel()
	url := clustertest.Database(t)
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	clock := &tellingClock{FakeClock: clocktesting.NewFakeClock(lt.Start.Add(time.Hour)), waits: make(chan time.Duration, 1_000)}
	store, err := postgres.Open(t.Context(), url, postgres.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if _, err := store.AcquireLeadership(t.Context(), lt.Leader, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.RegisterNodeAgent(t.Context(), lt.Node, "test"); err != nil {
		t.Fatal(err)
	}
	verdicts, err := store.SubmitAll(t.Context(), []ledger.Command{
		lt.Account("team", "", 0), lt.Rate(), lt.Grant("team", "team", 1_000), lt.Hold("job", "team", 1, 100), lt.Allocate("pod", "job", "team", 1),
		lt.Interval("pod", 0, 0, 10, "GPU-a"), lt.Interval("pod", 0, 10, 20, "GPU-a"), lt.Interval("pod", 0, 20, 30, "GPU-a"), lt.End("pod", 0, 30), lt.Close("job"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		if v.Refusal != nil {
			t.Fatal(v.Refusal)
		}
	}
	k := keep(t, store, clock)
	figures := func(intervals, answers, gpus float64) {
		t.Helper()
		k.metric("gpubank_ledger_compacted_intervals_total", intervals)
		k.metric("gpubank_ledger_forgotten_answers_total", answers)
		k.metric("gpubank_ledger_forgotten_gpu_holds_total", gpus)
		k.metric("gpubank_ledger_uncompactable_allocations", 0)
		k.metric("gpubank_ledger_loose_allocations", 0)
	}
	figures(0, 0, 0)
	k.pass(compactAfter)
	figures(2, 0, 0)
	k.pass(remember - compactAfter + time.Minute)
	figures(2, 6, 0) // hold, three intervals, end and close; the leader that allocated is still the leader
	k.pass(rememberGPUs - remember)
	figures(2, 6, 1)
	if problems, err := testutil.GatherAndLint(k.registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	if found, err := store.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// scripted is a ledger that answers what it is told to.
type scripted struct {
	mu       sync.Mutex
	compacts []any // ledger.CompactionResult or error, in order; nothing to do afterwards
	asked    []ledger.CompactionCursor
}

func (s *scripted) Compact(_ context.Context, _ time.Time, from ledger.CompactionCursor) (ledger.CompactionResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, from)
	if len(s.compacts) == 0 {
		return ledger.CompactionResult{}, nil
	}
	answer := s.compacts[0]
	s.compacts = s.compacts[1:]
	if err, failed := answer.(error); failed {
		return ledger.CompactionResult{}, err
	}
	return answer.(ledger.CompactionResult), nil
}

func (s *scripted) LooseAllocations(context.Context, time.Time) (int64, error) { return 7, nil }

func (s *scripted) ForgetCommands(context.Context, time.Time, ledger.ForgetCursor) (ledger.ForgetResult, error) {
	return ledger.ForgetResult{}, nil
}

func (s *scripted) ForgetDeviceHolds(context.Context, time.Time) (int64, bool, error) {
	return 0, false, nil
}

// A pass goes on where its last step ended, gives way to writers, shows what does not add up, and survives a database that is away.
func TestUpkeepGoesOn(t *testing.T) {
	t.Parallel()
	at := ledger.CompactionCursor{EndedAt: lt.Start, PodUID: "a"}
	busy := ledger.CompactionResult{Busy: true}
	store := &scripted{compacts: []any{
		ledger.CompactionResult{Allocations: 2, Intervals: 10, Rows: 2, Next: at, More: true},
		busy, busy,
		ledger.CompactionResult{Allocations: 1, Intervals: 5, Rows: 1, Unsound: []string{"pod b does not add up"}},
		errors.New("the database is away"),
		busy, busy, busy, busy, // and no end
	}}
	clock := &tellingClock{FakeClock: clocktesting.NewFakeClock(lt.Start), waits: make(chan time.Duration, 1_000)}
	k := keep(t, store, clock)
	want := []ledger.CompactionCursor{{}, at, at, at}
	store.mu.Lock()
	for i, cursor := range want {
		if store.asked[i] != cursor {
			t.Errorf("step %d began at %+v, want %+v", i, store.asked[i], cursor)
		}
	}
	store.mu.Unlock()
	k.metric("gpubank_ledger_compacted_intervals_total", 12)
	k.metric("gpubank_ledger_uncompactable_allocations", 1)
	k.metric("gpubank_ledger_loose_allocations", 7)
	k.pass(interval) // fails
	k.pass(interval) // gives way
	k.metric("gpubank_ledger_uncompactable_allocations", 0)
	k.metric("gpubank_ledger_compacted_intervals_total", 12)
}
