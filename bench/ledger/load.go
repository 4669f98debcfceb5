package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// rates is what one series measured.
type rates struct {
	perSecond float64
	durations []time.Duration
}

// p99 in milliseconds.
func (r rates) p99() float64 {
	sorted := slices.Sorted(slices.Values(r.durations))
	return float64(sorted[len(sorted)*99/100]) / float64(time.Millisecond)
}

const (
	leader = "bench"
	class  = "h100"
	nodes  = 64
	// department is how many teams one department has.
	department = 10
)

// bank is a fresh ledger with a tree of three levels: a root with all credits, departments, and teams that spend the
// root's and have a limit of their own.
type bank struct {
	store *postgres.Store
	teams []string
}

// database is the name of the one that was opened last.
func (b *bench) database() string { return "ledger_" + strconv.Itoa(b.databases) }

func (b *bench) open(ctx context.Context, accounts int) (*bank, error) {
	b.databases++
	url, err := b.pg.CreateDatabase(ctx, b.database())
	if err != nil {
		return nil, err
	}
	if err := postgres.Migrate(ctx, url); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return nil, err
	}
	k := &bank{store: store}
	// As autovacuum would have done long before a tree of that size had grown.
	if err := errors.Join(k.fill(ctx, accounts), b.pg.Analyze(ctx, url, "account")); err != nil {
		store.Close()
		return nil, err
	}
	return k, nil
}

func (k *bank) fill(ctx context.Context, accounts int) error {
	limit := ledger.Policy{Spending: ledger.SpendingLimit{Amount: ledger.MaxAmount / 2, Period: ledger.PeriodMonth}}
	inherits := limit
	inherits.Funding = ledger.FundingAncestor
	commands := []ledger.Command{
		ledger.SetRate{Key: "rate", Class: class, Rate: ledger.Rate(ledger.Credit)},
		ledger.SetAccount{Key: "account:root", Account: "root", Policy: limit},
		ledger.PostGrant{Key: "grant", Account: "root", Amount: ledger.MaxAmount / 2},
	}
	departments := max(1, accounts/(department+1))
	for i := range departments {
		above := fmt.Sprintf("department-%d", i)
		commands = append(commands, ledger.SetAccount{Key: "account:" + above, Account: above, Parent: "root", Policy: inherits})
		for j := range department {
			team := fmt.Sprintf("team-%d-%d", i, j)
			k.teams = append(k.teams, team)
			commands = append(commands, ledger.SetAccount{Key: "account:" + team, Account: team, Parent: above, Policy: inherits})
		}
	}
	for chunk := range slices.Chunk(commands, 1_000) {
		if err := k.submit(ctx, chunk...); err != nil {
			return err
		}
	}
	if _, err := k.store.AcquireLeadership(ctx, leader, "bench"); err != nil {
		return err
	}
	for i := range nodes {
		if _, err := k.store.RegisterNodeAgent(ctx, nodeName(i), "bench"); err != nil {
			return err
		}
	}
	return nil
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// submit is an error also when a command is refused: then the series would measure something else.
func (k *bank) submit(ctx context.Context, commands ...ledger.Command) error {
	verdicts, err := k.store.SubmitAll(ctx, commands)
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

func (k *bank) hold(n int64) ledger.PlaceHold {
	uid := uidOf(n)
	return ledger.PlaceHold{
		Key: "hold:" + uid, UID: uid, Account: k.teams[n%int64(len(k.teams))], Class: class, MaxGPUs: 4, GPUSeconds: 2_400,
		Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "team-namespace", Name: "train-" + strconv.FormatInt(n, 10)},
	}
}

// uidOf looks like a Kubernetes UID: random order, so that no index is filled from one end.
func uidOf(n int64) string {
	mixed := uint64(n) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", mixed>>32, mixed>>16&0xffff, mixed>>4&0xfff, mixed&0xfff, n)
}

// holds measures holds per second by the number of callers.
func (b *bench) holds(ctx context.Context, accounts, callers int, duration time.Duration) (rates, error) {
	k, err := b.open(ctx, accounts)
	if err != nil {
		return rates{}, err
	}
	defer k.store.Close()
	return measure(ctx, callers, duration, func(ctx context.Context, n int64) error { return k.submit(ctx, k.hold(n)) })
}

// lives measures whole lives per second.
func (b *bench) lives(ctx context.Context, callers int, duration time.Duration) (float64, error) {
	k, err := b.open(ctx, smallTree)
	if err != nil {
		return 0, err
	}
	defer k.store.Close()
	measured, err := measure(ctx, callers, duration, k.live)
	return measured.perSecond, err
}

// live is the life of a Job of one pod with four GPUs for seven minutes of a past hour.
func (k *bank) live(ctx context.Context, n int64) error {
	hold := k.hold(n)
	pod, node := "pod-"+hold.UID, nodeName(int(n%nodes))
	start := ledger.Instant(time.Now().Add(-time.Hour))
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	interval := func(from, to int) ledger.RecordInterval {
		return ledger.RecordInterval{
			Key: fmt.Sprintf("interval:%s:%d", pod, from), PodUID: pod, Node: node, OwnerEpoch: 1,
			PodStartedAt: start, Start: at(from), End: at(to),
		}
	}
	for _, commands := range [][]ledger.Command{
		{hold},
		{ledger.Allocate{
			Key: "allocate:" + pod, PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "team-namespace", Name: "train-" + strconv.FormatInt(n, 10) + "-x"},
			Reservation: hold.UID, Account: hold.Account, Node: node, Class: class, GPUs: 4, Leader: leader, LeaderEpoch: 1,
		}},
		{interval(0, 2)}, {interval(2, 5)}, {interval(5, 7)},
		{
			ledger.EndAllocation{Key: "end:" + pod, PodUID: pod, StartedAt: start, EndedAt: at(7)},
			ledger.CloseReservation{Key: "close:" + hold.UID, UID: hold.UID, Outcome: ledger.Settled},
		},
	} {
		if err := k.submit(ctx, commands...); err != nil {
			return err
		}
	}
	return nil
}

// measure lets callers do one thing after the other for a while.
func measure(ctx context.Context, callers int, duration time.Duration, do func(ctx context.Context, n int64) error) (rates, error) {
	return measureUntil(ctx, callers, func(_ int64, elapsed time.Duration) bool { return elapsed >= duration }, do)
}

// measureUntil lets callers do one thing after the other until enough says so of the next one, which is the nth, or one fails.
func measureUntil(ctx context.Context, callers int, enough func(n int64, elapsed time.Duration) bool, do func(ctx context.Context, n int64) error) (rates, error) {
	var next, over atomic.Int64
	var mu sync.Mutex
	var measured rates
	var failed error
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			var own []time.Duration
			var err error
			for err == nil {
				start, n := time.Now(), next.Add(1)
				if enough(n, start.Sub(began)) {
					break
				}
				err = do(ctx, n)
				own = append(own, time.Since(start))
			}
			over.Add(int64(len(own)))
			mu.Lock()
			defer mu.Unlock()
			measured.durations, failed = append(measured.durations, own...), errors.Join(failed, err)
		})
	}
	all.Wait()
	measured.perSecond = float64(over.Load()) / time.Since(began).Seconds()
	return measured, failed
}
