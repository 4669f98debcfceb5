package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// What is known of random trees completes a batch to exactly the accounts that a walk over the tree finds; one thing that is not
// known leaves it to the database.
func TestKnownLocks(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var state ledger.State
		parents := make(map[string]string)
		for i := range 1 + random.IntN(30) {
			name := "account-" + strconv.Itoa(i)
			if i > 0 && random.IntN(4) > 0 {
				parents[name] = "account-" + strconv.Itoa(random.IntN(i))
			}
			state.Accounts.Load(name, ledger.Account{Name: name, Parent: parents[name]})
		}
		anyAccount := func() string { return "account-" + strconv.Itoa(random.IntN(30)) }
		want := make(set)
		need := func(name string) {
			for ; name != ""; name = parents[name] {
				want.add(name)
			}
		}
		known := &known{}
		f := footprintOf(nil, false, false)
		missing := false
		touch := func(name string) bool {
			if state.Accounts.Get(name) == nil {
				missing = true
				return false
			}
			need(name)
			return true
		}
		for i := range random.IntN(10) {
			uid := fmt.Sprintf("job-%d", i)
			r := ledger.Reservation{UID: uid, Account: anyAccount(), Payer: anyAccount()}
			state.Reservations.Load(uid, r)
			state.LoadAllocation(ledger.Allocation{PodUID: "pod-of-" + uid, Reservation: uid})
			if random.IntN(2) == 0 {
				f.pod("pod-of-" + uid)
			} else {
				f.existing(uid)
			}
			touch(r.Account)
			touch(r.Payer)
		}
		for range random.IntN(5) {
			name := anyAccount()
			f.accounts.add(name)
			touch(name)
		}
		known.learn(&state)
		got := known.locks(&f)
		if got.complete != !missing {
			t.Fatalf("complete is %t although an account is missing: %t", got.complete, missing)
		}
		if !missing && !slices.Equal(got.accounts, want.list()) {
			t.Fatalf("locks %v, want %v", got.accounts, want.list())
		}
		f.pod("new")
		f.existing("other")
		if got := known.locks(&f); got.complete || !slices.Equal(got.pods, []string{"new"}) || !slices.Equal(got.reservations, []string{"other"}) {
			t.Fatalf("of what is not known, %+v is left to the database", got)
		}
	}
}

// A new hold and a new allocation name their account themselves, so that a batch of them needs no search.
func TestNewRowsNeedNoSearch(t *testing.T) {
	t.Parallel()
	var state ledger.State
	state.Accounts.Load("team", ledger.Account{Name: "team"})
	known := &known{}
	known.learn(&state)
	commands := []ledger.Prepared{ledger.Prepare(lt.Hold("job", "team", 1, 10)), ledger.Prepare(lt.Allocate("pod", "job", "team", 1))}
	for _, thorough := range []bool{false, true} {
		f := footprintOf(commands, thorough, false)
		if got := known.locks(&f); got.complete == thorough || !slices.Equal(got.accounts, []string{"team"}) {
			t.Errorf("thorough %t: %+v", thorough, got)
		}
	}
}

func TestGenerationsForgetWhatIsNotUsed(t *testing.T) {
	t.Parallel()
	var g generations[int]
	for i := range 5 * generationSize {
		g.put(strconv.Itoa(i), i)
		if value, ok := g.get("0"); !ok || value != 0 {
			t.Fatalf("what is asked for all the time was forgotten after %d", i)
		}
		if size := len(g.young) + len(g.old); size > 2*generationSize {
			t.Fatalf("%d entries are kept, at most %d should be", size, 2*generationSize)
		}
	}
	if _, ok := g.get("1"); ok {
		t.Error("nothing was forgotten")
	}
}
