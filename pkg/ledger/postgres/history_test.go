package postgres_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// The same random histories through the database and through Decide over a state that is kept whole: every verdict must
// be the same, so what a batch loads is all it needs, and what it saves is all it decided. Then the audits, as always,
// and a rebuild that finds nothing to do.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for seed := range 60 {
		prefix := fmt.Sprintf("s%d-", seed)
		memory := lt.NewMemory()
		memory.State.LeaderEpochs[lt.LeaderOf(prefix)] = 1
		if _, err := f.store.AcquireLeadership(t.Context(), lt.LeaderOf(prefix), "test"); err != nil {
			t.Fatal(err)
		}
		for _, node := range lt.NodesOf(prefix) {
			memory.State.NodeEpochs[node] = 1
			if _, err := f.store.RegisterNodeAgent(t.Context(), node, "test"); err != nil {
				t.Fatal(err)
			}
		}
		for n, batch := range lt.History(prefix).Example(seed) {
			f.clock.SetTime(batch.Now)
			want := memory.Decide(batch.Now, batch.Commands...)
			got, err := f.store.SubmitAll(t.Context(), batch.Commands)
			if err != nil {
				t.Fatalf("seed %d, batch %d: %v", seed, n, err)
			}
			for i := range want {
				if diff := cmp.Diff(withoutRevision(want[i]), withoutRevision(got[i])); diff != "" {
					t.Fatalf("seed %d, batch %d, %#v: memory - database +: %s", seed, n, batch.Commands[i], diff)
				}
			}
		}
		memory.State.Accounts.All(func(name string, want *ledger.Account) {
			got, found, err := f.store.Account(t.Context(), name)
			want.Revision, got.Revision = 0, 0
			if err != nil || !found || got != *want {
				t.Errorf("seed %d: account is %+v, want %+v (%v)", seed, got, *want, err)
			}
		})
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
		t.Errorf("the rebuild changed %d accounts, %v", changed, err)
	}
}

// withoutRevision leaves out what the database alone decides.
func withoutRevision(v ledger.Verdict) ledger.Verdict {
	if v.Account != nil {
		account := *v.Account
		account.Revision = 0
		v.Account = &account
	}
	return v
}
