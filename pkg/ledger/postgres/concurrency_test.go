package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// submitAtOnce submits each command from a goroutine of its own, alternating between stores, and returns the verdicts.
func submitAtOnce(t *testing.T, commands []ledger.Command, stores ...*postgres.Store) []ledger.Verdict {
	t.Helper()
	verdicts := make([]ledger.Verdict, len(commands))
	errs := make([]error, len(commands))
	var all sync.WaitGroup
	start := make(chan struct{})
	for i, command := range commands {
		all.Go(func() {
			<-start
			verdicts[i], errs[i] = stores[i%len(stores)].Submit(t.Context(), command)
		})
	}
	close(start)
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("%s: %v", commands[i].CommandKey(), err)
		}
	}
	return verdicts
}

func accepted(verdicts []ledger.Verdict) (count int) {
	for _, v := range verdicts {
		if v.Refusal == nil {
			count++
		}
	}
	return count
}

// Two Jobs that together exceed the balance: exactly one is admitted; a hundred: exactly those that the balance pays.
// Submitted by three processes at once.
func TestConcurrentHoldsNeverExceedTheBalance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		holds, seconds, credits int64
		want                    int
	}{{2, 600, 1_000, 1}, {100, 30, 1_000, 33}} {
		t.Run(fmt.Sprintf("%d holds", c.holds), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.teamWith("team", c.credits)
			var holds []ledger.Command
			for i := range c.holds {
				holds = append(holds, lt.Hold(fmt.Sprintf("job-%d", i), "team", 1, c.seconds))
			}
			verdicts := submitAtOnce(t, holds, f.store, f.open(postgres.Options{}), f.open(postgres.Options{}))
			if got := accepted(verdicts); got != c.want {
				t.Errorf("%d holds were accepted, want %d", got, c.want)
			}
			for _, v := range verdicts {
				if v.Refusal != nil && v.Refusal.Code != ledger.InsufficientCredits { // L15
					t.Errorf("refused with %s", v.Refusal)
				}
			}
			f.figures("team", c.credits, int64(c.want)*c.seconds, 0)
		})
	}
}

// L11, L12, I6: the same command from many processes at once is carried out once, and all get the same answer.
func TestConcurrentRepetitions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	other := f.open(postgres.Options{})
	f.do(lt.Hold("job", "team", 1, 100), lt.Allocate("pod", "job", "team", 1))
	for _, command := range []ledger.Command{
		lt.Account("new", "team", 0), // no row to lock yet
		ledger.SetRate{Key: "rate:new", Class: "new", Rate: 5},
		lt.Grant("again", "team", 50),
		lt.Hold("other", "team", 1, 100),
		lt.Interval("pod", 0, 0, 10),
		lt.End("pod", 0, 50),
		lt.Close("job"),
	} {
		commands := make([]ledger.Command, 40)
		for i := range commands {
			commands[i] = command
		}
		verdicts := submitAtOnce(t, commands, f.store, other)
		replayed := 0
		for _, v := range verdicts {
			if v.Refusal != nil {
				t.Errorf("%s: %s", command.CommandKey(), v.Refusal)
			}
			if v.Charged != verdicts[0].Charged {
				t.Errorf("%s: charged %d to one caller and %d to another", command.CommandKey(), v.Charged, verdicts[0].Charged)
			}
			if v.Replayed {
				replayed++
			}
		}
		if replayed != len(commands)-1 {
			t.Errorf("%s: %d of %d answers were repeats", command.CommandKey(), replayed, len(commands))
		}
	}
	f.figures("team", 1_000, 100, 50)
}

// L16: batches over the same accounts in every order, from several processes, each with parents in common. PostgreSQL
// counts the deadlocks.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	const accounts, rounds = 12, 40
	f.do(lt.Account("root", "", ledger.MaxAmount/4), lt.Rate())
	for i := range accounts {
		f.do(lt.Account(fmt.Sprintf("mid-%d", i%3), "root", ledger.MaxAmount/4),
			lt.Account(fmt.Sprintf("leaf-%d", i), fmt.Sprintf("mid-%d", i%3), ledger.MaxAmount/4))
	}
	stores := []*postgres.Store{f.store, f.open(postgres.Options{}), f.open(postgres.Options{}), f.open(postgres.Options{})}
	var all sync.WaitGroup
	for n, store := range stores {
		all.Go(func() {
			for round := range rounds {
				var batch []ledger.Command
				for i := range accounts {
					leaf := (i*(2*n+1) + round) % accounts // another order for each store
					batch = append(batch, lt.Hold(fmt.Sprintf("job-%d-%d-%d", n, round, i), fmt.Sprintf("leaf-%d", leaf), 1, 10))
				}
				// Moving a leaf under another parent changes the ancestors while others lock them.
				batch = append(batch, ledger.SetAccount{
					Key: fmt.Sprintf("move:%d:%d", n, round), Account: fmt.Sprintf("leaf-%d", n), Parent: fmt.Sprintf("mid-%d", round%3),
					Policy: ledger.Policy{OverdraftLimit: ledger.MaxAmount / 4},
				})
				verdicts, err := store.SubmitAll(t.Context(), batch)
				if err != nil || accepted(verdicts) != len(batch) {
					t.Errorf("store %d, round %d: %d of %d accepted, %v", n, round, accepted(verdicts), len(batch), err)
					return
				}
			}
		})
	}
	all.Wait()
	root, _, err := f.store.Account(t.Context(), "root")
	if want := ledger.Microcredits(len(stores)*rounds*accounts*10) * ledger.Credit; err != nil || root.SubtreeReserved != want {
		t.Errorf("the root's subtree reserves %d, want %d, %v", root.SubtreeReserved, want, err)
	}
}

// I7: of two schedulers alive at once, the stale one writes nothing, and no pod gets two allocations.
func TestStaleLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	f.do(lt.Hold("job", "team", 10, 10))
	f.do(lt.Allocate("before", "job", "team", 1))
	epoch, err := f.store.AcquireLeadership(t.Context(), lt.Leader, "second")
	if err != nil || epoch != 2 {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	f.refused(lt.Allocate("pod", "job", "team", 1), ledger.StaleEpoch)
	f.refused(lt.Allocate("before", "job", "team", 1), ledger.StaleEpoch) // not even a repetition: it would be acted upon
	if _, found, err := f.store.Allocation(t.Context(), "pod"); found || err != nil {
		t.Errorf("the stale leader's allocation exists: %v, %v", found, err)
	}
	fresh := lt.Allocate("pod", "job", "team", 1)
	fresh.Key, fresh.LeaderEpoch, fresh.Node = "allocate:pod:2:1", 2, "node-2"
	f.do(fresh)
	f.refused(lt.Allocate("pod", "job", "team", 1), ledger.StaleEpoch)

	// While leaderships change hands all the time, each allocation is written under the epoch that was current.
	other := f.open(postgres.Options{})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			for range 10 {
				mine, err := other.AcquireLeadership(t.Context(), lt.Leader, "racer")
				if err != nil {
					t.Error(err)
					return
				}
				c := lt.Allocate("contended", "job", "team", 1)
				c.Key, c.LeaderEpoch, c.Node = fmt.Sprintf("allocate:contended:%d:1", mine), mine, fmt.Sprintf("node-%d", mine)
				if v, err := f.store.Submit(t.Context(), c); err != nil || (v.Refusal != nil && v.Refusal.Code != ledger.StaleEpoch) {
					t.Errorf("%+v, %v", v.Refusal, err)
				}
			}
		})
	}
	all.Wait()
	if a, found, err := f.store.Allocation(t.Context(), "contended"); err != nil || (found && a.Node != fmt.Sprintf("node-%d", a.LeaderEpoch)) {
		t.Errorf("allocation of epoch %d is on %s, %v", a.LeaderEpoch, a.Node, err)
	}
}

// L33: two pods of unrelated accounts metered on one GPU by batches that run at the same time: always noticed.
func TestGPUChargedTwiceIsNoticedAcrossProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	other := f.open(postgres.Options{})
	f.do(lt.Rate())
	const pairs = 20
	var intervals []ledger.Command
	for i := range pairs {
		for _, side := range []string{"x", "y"} {
			name := fmt.Sprintf("%s%d", side, i)
			f.do(lt.Account(name, "", 0), lt.Grant(name, name, 100), lt.Hold(name, name, 1, 100), lt.Allocate("pod-"+name, name, name, 1))
			intervals = append(intervals, lt.Interval("pod-"+name, 0, 0, 60, fmt.Sprintf("GPU-%d", i)))
		}
	}
	submitAtOnce(t, intervals, f.store, other)
	found, err := f.store.Discrepancies(t.Context())
	if err != nil || len(found) != pairs {
		t.Errorf("%d of %d GPUs charged twice were noticed, %v", len(found), pairs, err)
	}
}

// A reader that always asks for what changed after the highest revision it has seen ends with every account as it is.
func TestAccountsSinceSkipsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(lt.Rate())
	const accounts, rounds = 8, 30
	stores := []*postgres.Store{f.store, f.open(postgres.Options{}), f.open(postgres.Options{})}
	for i := range accounts {
		f.do(lt.Account(fmt.Sprintf("team-%d", i), "", 0))
	}
	done := make(chan struct{})
	var writers sync.WaitGroup
	for n, store := range stores {
		writers.Go(func() {
			for round := range rounds {
				account := fmt.Sprintf("team-%d", (round*(n+1))%accounts)
				if _, err := store.Submit(t.Context(), lt.Grant(fmt.Sprintf("%d:%d", n, round), account, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { writers.Wait(); close(done) }()

	seen, cursor := make(map[string]ledger.Account), int64(0)
	poll := func() {
		changed, err := f.store.AccountsSince(t.Context(), cursor)
		if err != nil {
			t.Error(err)
		}
		for _, a := range changed {
			if a.Revision <= cursor {
				t.Errorf("revision %d after %d", a.Revision, cursor)
			}
			if before := seen[a.Name]; before.Revision >= a.Revision {
				t.Errorf("account %s went from revision %d to %d", a.Name, before.Revision, a.Revision)
			}
			seen[a.Name] = a
		}
		if len(changed) > 0 {
			cursor = changed[len(changed)-1].Revision
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		poll()
	}
	// Transactions of other tests' databases may still hold the newest rows back for a while.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if stale := staleAccounts(t, f, seen); stale == "" {
			return
		}
		poll()
	}
	t.Errorf("the reader never saw the last state of %s", staleAccounts(t, f, seen))
}

func staleAccounts(t *testing.T, f *fixture, seen map[string]ledger.Account) string {
	for name, have := range seen {
		if now, _, err := f.store.Account(t.Context(), name); err != nil || now != have {
			return fmt.Sprintf("%s: have %+v, is %+v, %v", name, have, now, err)
		}
	}
	return ""
}

// The last change before everything falls silent is shown too, although no later transaction moves the bound on.
func TestAccountsSinceShowsTheLastChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(lt.Account("team", "", 0))
	var commands []ledger.Command
	for n := range 100 { // in one transaction
		commands = append(commands, lt.Grant(fmt.Sprint(n), "team", 1))
	}
	if _, err := f.store.SubmitAll(t.Context(), commands); err != nil {
		t.Fatal(err)
	}
	want, _, err := f.store.Account(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	// Other tests' transactions on the same server may hold it back for as long as they take.
	var got []ledger.Account
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got, err = f.store.AccountsSince(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if len(got) == 1 && got[0] == want {
			return
		}
	}
	t.Errorf("readers see %+v, the account is %+v", got, want)
}
