package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// superuser is a session that no trigger stops.
func superuser(t testing.TB, f *fixture) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), clustertest.Postgres(t).AdminURL(databaseName(t, f.url)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "SET session_replication_role = replica"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// town is a company with two teams and a member whose workloads the first team pays for, all with a history of every kind of
// entry.
func town(f *fixture) {
	f.takeCharge()
	f.do(lt.Account("org", "", 0), lt.Rate())
	for _, team := range []string{"red", "blue"} {
		member := lt.Account(team+".member", team, 0)
		member.Policy.Funding = ledger.FundingAncestor
		refunding := lt.Account(team, "org", 0)
		refunding.Policy.Refunds.FailedPercent = 50
		refunding.Policy.Spending = ledger.SpendingLimit{Amount: 5_000 * ledger.Credit, Period: ledger.PeriodMonth}
		refunding.Policy.Refill = ledger.Refill{Amount: 100 * ledger.Credit, PeriodSeconds: 3_600, Cap: 100_000 * ledger.Credit}
		member.Policy.Refunds.FailedPercent = 10
		lot := lt.Grant(team+"-lot", team, 500)
		lot.ExpiresAt = f.clock.Now().Add(100 * time.Hour)
		f.do(refunding, member, lt.Grant(team, team, 10_000), lot,
			lt.Hold(team+"-job", team, 2, 100), lt.Allocate(team+"-pod", team+"-job", team, 1),
			lt.Interval(team+"-pod", 0, 0, 10, team+"-GPU"), lt.Interval(team+"-pod", 0, 10, 30, team+"-GPU"), lt.End(team+"-pod", 0, 60),
			ledger.Refund{Key: "refund:" + team, PodUID: team + "-pod", Cause: ledger.RefundFailed, Reason: "exit 1"},
			lt.Hold(team+"-task", team+".member", 1, 50), lt.Allocate(team+"-worker", team+"-task", team+".member", 1),
			lt.Interval(team+"-worker", 0, 0, 20, team+"-GPU-2"),
			ledger.Adjust{Key: "adjust:" + team, Account: team, Amount: -3, Reason: "rounding"})
	}
	f.do(ledger.Transfer{Key: "gift", From: "red", To: "blue", Amount: 50 * ledger.Credit, Reason: "help"})
}

// Each kind of tampering, by somebody whom no trigger stops, is found in the accounts that it concerns and in no others, and
// the first entry that differs is named.
func TestTampering(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	sealAll(t, f.store)
	conn := superuser(t, f)
	id := func(key string) (id int64) {
		if err := conn.QueryRow(t.Context(), "SELECT id FROM entry WHERE event_key LIKE $1 ORDER BY id", key).Scan(&id); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return id
	}
	const insert = "INSERT INTO entry (id, kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) OVERRIDING SYSTEM VALUE "
	charge := id("charge:red-pod:%")
	for _, c := range []struct {
		name, tamper string
		accounts     []string // frozen, in order
		entry        int64    // the first that differs, where an entry does
	}{
		{"an amount", "UPDATE entry SET amount = amount + 1 WHERE event_key = 'grant:red'", []string{"red"}, id("grant:red")},
		{"a reason", "UPDATE entry SET reason = 'a bribe' WHERE event_key = 'adjust:red'", []string{"red"}, id("adjust:red")},
		{"draws", fmt.Sprintf("UPDATE entry SET draws = '' WHERE id = %d", charge), []string{"red"}, charge},
		{"unreadable draws", fmt.Sprintf("UPDATE entry SET draws = '[{' WHERE id = %d", charge), []string{"red"}, charge},
		{"a spender", fmt.Sprintf("UPDATE entry SET spender = 'red.member' WHERE id = %d", charge), []string{"red", "red.member"}, charge},
		{"a payer", fmt.Sprintf("UPDATE entry SET debit = 'blue' WHERE id = %d", charge), []string{"blue", "red"}, charge},
		{"a time", "UPDATE entry SET recorded_at = recorded_at - interval '1h' WHERE event_key = 'grant:red-lot'", []string{"red"}, id("grant:red-lot")},
		{"an entry of a transfer", "UPDATE entry SET amount = amount - 1 WHERE event_key = 'gift'", []string{"blue", "red"}, id("gift")},
		{"a deletion", "DELETE FROM entry WHERE event_key = 'grant:red'", []string{"red"}, id("grant:red")},
		{"the last one deleted", "DELETE FROM entry WHERE event_key = 'gift'", []string{"blue", "red"}, id("gift")},
		{"an insertion in the past", insert + "VALUES (-5, 'Grant', 'forged', 'system:issuance', 'red', 7, now(), (SELECT recorded_at FROM entry WHERE event_key = 'grant:red'), '', '')",
			[]string{"red"}, -5},
		{"an insertion at the end", insert + "VALUES (999999, 'Grant', 'forged', 'system:issuance', 'red', 7, now(), now() + interval '1 year', '', '')",
			[]string{"red"}, 0},
		{"a wrong kind", "UPDATE entry SET kind = 'Refill' WHERE event_key = 'grant:red'", []string{"red"}, id("grant:red")},
		{"a balance", "UPDATE account SET balance = balance + 5 WHERE name = 'red'", []string{"red"}, 0},
		{"a member's charges", "UPDATE account SET charged = charged - 5 WHERE name = 'red.member'", []string{"red.member"}, 0},
		{"a sum above", "UPDATE account SET subtree_balance = subtree_balance + 5 WHERE name = 'org'", []string{"org"}, 0},
		{"a sum in between", "UPDATE account SET subtree_held = subtree_held + 5 WHERE name = 'red'", []string{"red"}, 0},
		{"what was spent", "UPDATE account SET subtree_spent = subtree_spent - 5 WHERE name = 'red'", []string{"red"}, 0},
		{"running jobs", "UPDATE account SET running = running + 1 WHERE name = 'red.member'", []string{"red.member"}, 0},
		{"a time of the last entry", "UPDATE account SET last_entry_at = last_entry_at - interval '1s' WHERE name = 'red'", []string{"red"}, 0},
		{"a policy", "UPDATE account SET policy = '{\"overdraft_limit_microcredits\":1000000}' WHERE name = 'red'", []string{"red"}, 0},
		{"an unreadable policy", "UPDATE account SET policy = '{' WHERE name = 'red'", []string{"red"}, 0},
		{"a policy's history", "DELETE FROM account_policy WHERE account = 'red'", []string{"red"}, 0},
		{"a lot", "UPDATE lot SET held = held - 1, free = free + 1 WHERE account = 'red'", []string{"red"}, 0},
		{"a lot's expiry count", "UPDATE lot SET held = held - 1, expired = expired + 1 WHERE account = 'red'", []string{"red"}, 0},
		{"a forged lot", "INSERT INTO lot VALUES ('grant:forged', 'red', 5, 5, 0, 0, now())", []string{"red"}, 0},
		{"a removed lot", "DELETE FROM lot WHERE account = 'blue' AND key LIKE 'transfer:%'", []string{"blue"}, 0},
		{"takes", "UPDATE reservation SET takes = '' WHERE uid = 'red-job'", []string{"red"}, 0},
		{"unreadable takes", "UPDATE reservation SET takes = 'x' WHERE uid = 'red-job'", []string{"red"}, 0},
		{"a day's spending", "UPDATE spending SET amount = amount - 1 WHERE account = 'red.member'", []string{"red.member"}, 0},
		{"a forged day", "INSERT INTO spending VALUES ('red.member', '2020-01-01Z', 5)", []string{"red.member"}, 0},
		{"a refund", "UPDATE allocation SET refunded = refunded - 1 WHERE pod_uid = 'red-pod'", []string{"red"}, 0},
		{"a refunding entry", "UPDATE entry SET amount = amount * 3 WHERE event_key = 'refund:red-pod'", []string{"red"}, id("refund:red-pod")},
		{"an allocation's account", "UPDATE allocation SET account = 'blue' WHERE pod_uid = 'red-worker'", []string{"blue", "red.member"}, 0},
		{"a correction of another's", fmt.Sprintf("UPDATE entry SET corrects = %d WHERE event_key = 'adjust:red'", id("grant:blue")), []string{"red"}, id("adjust:red")},
		{"a seal's hash", "UPDATE seal SET hash = sha256(hash) WHERE account = 'red' AND number = 1", []string{"red"}, -1},
		{"a seal's checks", "UPDATE seal SET checks = set_byte(checks, 0, 255 - get_byte(checks, 0)) WHERE account = 'red' AND number = 1", []string{"red"}, -1},
		{"a removed seal", "INSERT INTO seal SELECT account, 3, entries, first_entry, ids, checks, through, last_entry, last_recorded_at, hash, sealed_at FROM seal WHERE account = 'red' AND number = 1", []string{"red"}, -1},
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), c.tamper); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		audited, err := postgres.AuditIn(t.Context(), tx)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		report, err := postgres.VerifyIn(t.Context(), tx)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		var accounts []string
		var first int64
		for _, v := range append(report.Violations, audited...) {
			all.WriteString("\n  " + v.String())
			accounts = append(accounts, v.Accounts...)
			if v.Entry != 0 && first == 0 {
				first = v.Entry
			}
		}
		slices.Sort(accounts)
		if accounts = slices.Compact(accounts); !slices.Equal(accounts, c.accounts) {
			t.Errorf("%s: accounts %v, want %v; found:%s", c.name, accounts, c.accounts, all.String())
		}
		if c.entry != -1 && first != c.entry || c.entry == -1 && first == 0 {
			t.Errorf("%s: entry %d differs first, want %d; found:%s", c.name, first, c.entry, all.String())
		}
	}
}

// A violation has the same ID for as long as it lasts, whatever else happens, and another one has another.
func TestViolationsAreRecognised(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	sealAll(t, f.store)
	conn := superuser(t, f)
	spoil := func(statement string) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	ids := func() (ids []string) {
		violations, err := f.store.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range append(violations, verifyChains(t, f.store).Violations...) {
			ids = append(ids, v.ID())
		}
		slices.Sort(ids)
		return ids
	}
	spoil("UPDATE account SET balance = balance + 5 WHERE name = 'red'")
	spoil("UPDATE entry SET reason = 'changed' WHERE event_key = 'grant:blue'")
	before := ids()
	f.do(lt.Grant("more", "red", 1), lt.Grant("more-blue", "blue", 1), lt.Hold("other", "red", 1, 5))
	sealAll(t, f.store)
	if after := ids(); !slices.Equal(before, after) || len(before) < 2 {
		t.Errorf("before %v, after %v", before, after)
	}
	spoil("UPDATE account SET balance = balance + 1 WHERE name = 'red'")
	spoil("UPDATE entry SET reason = 'again' WHERE event_key = 'grant:blue'")
	after := ids()
	for _, id := range before {
		// The sum over the whole ledger changes too, with the account's.
		if slices.Contains(after, id) {
			t.Errorf("%s is found again after another change; before %v, after %v", id, before, after)
		}
	}
	spoil("UPDATE account SET balance = balance - 6 WHERE name = 'red'")
	spoil("UPDATE entry SET reason = 'test' WHERE event_key = 'grant:blue'")
	if left := ids(); len(left) > 0 {
		t.Errorf("after the repair: %v", left)
	}
}

// The same for tampering while writers run: exactly the account that was tampered with is named, and the others go on.
func TestTamperingWhileWritersRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	sealAll(t, f.store)
	conn := superuser(t, f)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(w)))
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := f.store.Submit(context.WithoutCancel(ctx), randomCommand(random, fmt.Sprintf("%d-%d", w, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var id int64
	if err := conn.QueryRow(t.Context(), "UPDATE entry SET amount = amount + 1 WHERE event_key = 'grant:red' RETURNING id").Scan(&id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		report := verifyChains(t, f.store)
		if len(report.Violations) != 1 || report.Violations[0].Entry != id || !slices.Equal(report.Violations[0].Accounts, []string{"red"}) {
			t.Errorf("found %v, want entry %d of red", report.Violations, id)
		}
		violations, err := f.store.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range violations {
			if len(v.Accounts) > 0 && !slices.Equal(v.Accounts, []string{"red"}) {
				t.Errorf("found %s of %v", v, v.Accounts)
			}
		}
		if _, err := f.store.Seal(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// What an audit does then: this account alone is stopped.
	f.do(ledger.FreezeAccount{Key: "freeze", Account: "red", Reason: "audit"})
	f.refused(lt.Hold("refused", "red.member", 1, 1), ledger.AccountFrozen)
	f.do(lt.Hold("goes-on", "blue.member", 1, 1), lt.Grant("goes-on", "org", 1))
	stop()
	writers.Wait()
	if _, err := conn.Exec(t.Context(), "UPDATE entry SET amount = amount - 1 WHERE event_key = 'grant:red'"); err != nil {
		t.Fatal(err)
	}
	sealAll(t, f.store)
	sound(t, f.store)
}

// Somebody with every right changes an entry and makes all seals anew: heads that were pinned outside tell.
func TestPinnedHeads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	sealAll(t, f.store)
	pins, err := f.store.ChainHeads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := superuser(t, f)
	if _, err := conn.Exec(t.Context(), "UPDATE entry SET reason = 'forged' WHERE event_key = 'grant:red'; DELETE FROM seal"); err != nil {
		t.Fatal(err)
	}
	if err := f.store.SealAfresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealAll(t, f.store)
	sound(t, f.store)
	report := verifyChains(t, f.store, pins...)
	if len(report.Violations) != 1 || !slices.Equal(report.Violations[0].Accounts, []string{"red"}) || !strings.Contains(report.Violations[0].Detail, "pinned") {
		t.Errorf("against the pinned heads: %v", report.Violations)
	}
	gone := ledger.NewChain("nobody").Extend(ledger.Entry{ID: 1})
	if report := verifyChains(t, f.store, gone); len(report.Violations) != 1 {
		t.Errorf("a pinned account that is gone: %v", report.Violations)
	}
}
