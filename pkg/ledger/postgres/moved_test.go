package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// What a process remembers of the tree is only a guess: accounts that another process moves meanwhile are locked with those that
// are above them now. The audit at the end adds the sums of every subtree up.
func TestAccountsMovedByAnotherProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.open(postgres.Options{Clock: f.clock})
	f.takeCharge()
	f.do(lt.Rate())
	roots := []string{"east", "west", "north"}
	for _, root := range roots {
		f.do(lt.Account(root, "", 0), lt.Account(root+"-department", root, 0))
	}
	f.do(lt.Account("team", "east", 0), lt.Grant("first", "team", 5_000))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	move := func() {
		parent := roots[random.IntN(len(roots))]
		if random.IntN(2) == 0 {
			parent += "-department"
		}
		command := lt.Account("team", parent, 0)
		command.Key = fmt.Sprintf("move:%d", random.Uint64())
		v, err := other.Submit(t.Context(), command)
		if err != nil || v.Refusal != nil {
			t.Fatalf("move to %s: %+v, %v", parent, v.Refusal, err)
		}
	}
	for i := range 30 {
		job, pod := fmt.Sprintf("job-%d", i), fmt.Sprintf("pod-%d", i)
		for _, command := range []ledger.Command{
			lt.Grant(job, "team", 5), lt.Hold(job, "team", 1, 100), lt.Allocate(pod, job, "team", 1), lt.Interval(pod, 0, 0, 10), lt.Interval(pod, 0, 10, 20),
			lt.End(pod, 0, 30), lt.Close(job),
		} {
			f.do(command)
			if random.IntN(3) == 0 {
				move()
			}
		}
	}
	account, _, err := f.store.Account(t.Context(), "team")
	if err != nil || account.Charged != 30*30*ledger.Credit {
		t.Errorf("charged %d, %v", account.Charged, err)
	}
}
