package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// poolWithHold is an account with nothing but an overdraft, which pays for a hold of a team that has moved away since.
func poolWithHold(f *fixture) {
	f.t.Helper()
	f.takeCharge()
	team := lt.Account("team", "pool", 0)
	team.Policy.Funding = ledger.FundingAncestor
	f.do(lt.Rate(), lt.Account("pool", "", 1_000*ledger.Credit), team, lt.Hold("job", "team", 1, 600))
	team.Key, team.Parent = "moved", ""
	f.do(team)
}

// What pays for a hold stays, although it has neither entries nor children nor workloads of its own.
func TestPayerIsNotRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	poolWithHold(f)
	f.refused(ledger.RemoveAccount{Key: "remove", Account: "pool"}, ledger.AccountInUse)
	f.do(lt.Allocate("pod", "job", "team", 1), lt.End("pod", 0, 60), lt.Close("job"))
	f.figures("pool", -60, 0, 0)
	f.refused(ledger.RemoveAccount{Key: "remove", Account: "pool"}, ledger.AccountInUse)
}

// The same when hold and removal are decided in one commit.
func TestPayerIsNotRemovedInOneBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	team := lt.Account("team", "pool", 0)
	team.Policy.Funding = ledger.FundingAncestor
	moved := team
	moved.Key, moved.Parent = "moved", ""
	verdicts, err := f.store.SubmitAll(t.Context(), []ledger.Command{
		lt.Rate(), lt.Account("pool", "", 1_000*ledger.Credit), team, lt.Hold("job", "team", 1, 600), moved,
		ledger.RemoveAccount{Key: "remove", Account: "pool"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := verdicts[5].Refusal; last == nil || last.Code != ledger.AccountInUse {
		t.Errorf("the removal: %v", last)
	}
}

// Rows that refer to an account which is not there fail the commands that need them, and nobody else's.
func TestMissingAccountDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	poolWithHold(f)
	f.do(lt.Account("other", "", 0))
	execute(t, f, `ALTER TABLE account DISABLE TRIGGER account_that_pays_stays; DELETE FROM account WHERE name = 'pool'`)
	defer execute(t, f, `INSERT INTO account (name, balance, reserved, charged, subtree_balance, subtree_reserved, subtree_overspent, revision, policy)
		SELECT 'pool', 0, amount, 0, 0, amount, 0, 1, '{"overdraft_limit_microcredits":1000000000}' FROM reservation;
		ALTER TABLE account ENABLE TRIGGER account_that_pays_stays`)

	stuck := f.store.Start(lt.Allocate("pod", "job", "team", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if v, err := f.store.Submit(ctx, lt.Grant("1", "other", 1)); err != nil || v.Refusal != nil {
		t.Errorf("behind a command that cannot be decided: %+v, %v", v.Refusal, err)
	}
	var unavailable *postgres.UnavailableError
	if _, err := stuck.Wait(ctx); !errors.As(err, &unavailable) {
		t.Errorf("the command that cannot be decided: %v", err)
	}
}
