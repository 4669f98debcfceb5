package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// An audit finds what somebody with a superuser's rights breaks past all constraints, and names it.
func TestAuditFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(lt.Account("org", "", 0), lt.Account("team", "org", 0), lt.Rate(), lt.Grant("g", "team", 1_000),
		lt.Hold("job", "team", 2, 100), lt.Allocate("pod", "job", "team", 1), lt.Interval("pod", 0, 0, 5, "GPU-1"),
		lt.Interval("pod", 0, 10, 20, "GPU-1"), lt.End("pod", 0, 30), lt.Allocate("pod2", "job", "team", 1))
	conn, err := pgx.Connect(t.Context(), clustertest.Postgres(t).AdminURL(databaseName(t, f.url)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, c := range []struct{ name, breakIt, want string }{
		{"a balance", "UPDATE account SET balance = balance + 1 WHERE name = 'team'", "I2 account team"},
		{"a subtree", "UPDATE account SET subtree_reserved = 0 WHERE name = 'org'", "I2 account org"},
		{"a negative reserve", "ALTER TABLE account DROP CONSTRAINT account_reserves_nothing_negative; UPDATE account SET reserved = -5", "I1 team"},
		{"a hold's charges", "UPDATE reservation SET charged = 5 WHERE uid = 'job'", "I2 reservation job"},
		{"an interval's price", "ALTER TABLE metered_interval DISABLE TRIGGER interval_is_never_edited; UPDATE metered_interval SET charge = charge + 7", "I4 allocation pod"},
		{"a lost interval", "DELETE FROM metered_interval WHERE started_at > '2026-03-02 09:00:05Z'", "I4 allocation pod"},
		{"unbilled time", "DELETE FROM metered_interval WHERE started_at > '2026-03-02 09:00:05Z'", "I9 ledger"},
		{"an overlap", "ALTER TABLE metered_interval DISABLE TRIGGER ALL; UPDATE metered_interval SET ended_at = ended_at + interval '5s'", "I3 allocation pod"},
		{"an edited entry", "ALTER TABLE entry DISABLE TRIGGER ALL; UPDATE entry SET amount = amount + 1 WHERE kind = 'Grant'", "I10 ledger"},
		{"a disabled guard", "ALTER TABLE entry DISABLE TRIGGER ALL", "I8 entry_is_append_only"},
		{"a closed date", "ALTER TABLE reservation DROP CONSTRAINT reservation_is_closed_when_it_ends; UPDATE reservation SET closed_at = now() WHERE uid = 'job'", "I5 reservation job"},
		{"a leader that never was", "UPDATE allocation SET leader_epoch = 99", "I7 allocation pod"},
		{"a doubly used GPU", "INSERT INTO device_hold SELECT gpu_uuid, 'pod2', started_at, ended_at FROM device_hold", "I3 GPU GPU-1"},
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), c.breakIt); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		found, err := postgres.AuditIn(t.Context(), tx)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, v := range found {
			all.WriteString("\n" + v.String())
		}
		if !strings.Contains(all.String(), "\n"+c.want+":") {
			t.Errorf("%s: want a violation of %s, found:%s", c.name, c.want, all.String())
		}
	}
}

// I2: the projection can be rebuilt at any time to the same numbers; and from any numbers.
func TestRebuild(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.do(lt.Account("org", "", 0), lt.Account("team", "org", 0), lt.Rate(), lt.Grant("g", "team", 100),
		lt.Hold("job", "team", 1, 10), lt.Allocate("pod", "job", "team", 1), lt.End("pod", 0, 500)) // overspent
	before, err := f.store.AccountsSince(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, f, "UPDATE account SET balance = 7, reserved = 8, charged = 9, subtree_balance = 10, subtree_reserved = 11, subtree_overspent = 12")
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 2 {
		t.Fatalf("the rebuild changed %d accounts, %v", changed, err)
	}
	for _, want := range before {
		got, _, err := f.store.Account(t.Context(), want.Name)
		if err != nil || got.Revision <= want.Revision { // or readers would not notice
			t.Errorf("revision %d after %d, %v", got.Revision, want.Revision, err)
		}
		if got.Revision = want.Revision; got != want {
			t.Errorf("rebuilt %+v, want %+v", got, want)
		}
	}
}

// Lots and the spenders' days are rebuilt too.
func TestRebuildOfLotsAndDays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	conn := superuser(t, f)
	read := func() (all string) {
		if err := conn.QueryRow(t.Context(), "SELECT (SELECT string_agg(l::text, E'\n' ORDER BY key) FROM lot l) || (SELECT string_agg(s::text, E'\n' ORDER BY account, day) FROM spending s WHERE amount <> 0)").Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := read()
	for _, statement := range []string{
		"UPDATE lot SET free = 1, held = 2, expired = 3", "UPDATE spending SET amount = amount + 1 WHERE account = 'red'",
		"DELETE FROM spending WHERE account = 'blue'", "INSERT INTO spending VALUES ('org', '2026-01-01Z', 7)",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed < 6 { // three lots, three days
		t.Errorf("the rebuild changed %d rows, %v", changed, err)
	}
	if after := read(); after != before {
		t.Errorf("rebuilt\n%s\nwant\n%s", after, before)
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
		t.Errorf("a second rebuild changed %d rows, %v", changed, err)
	}
}

// A projection that another client spoiled makes commands on that account fail, and no others.
func TestSpoiledProjectionStopsItsAccountOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("spoiled", 100)
	f.do(lt.Account("fine", "", 0), lt.Grant("fine", "fine", 100), lt.Hold("job", "spoiled", 1, 10), lt.Hold("other", "fine", 1, 10))
	execute(t, f, "UPDATE account SET reserved = 0 WHERE name = 'spoiled'")
	bad, good := f.store.Start(lt.Close("job")), f.store.Start(lt.Close("other"))
	if v, err := good.Wait(t.Context()); err != nil || v.Refusal != nil {
		t.Errorf("the other account: %+v, %v", v.Refusal, err)
	}
	if _, err := bad.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "rebuild") {
		t.Errorf("the spoiled account: %v", err)
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 1 {
		t.Errorf("the rebuild changed %d accounts, %v", changed, err)
	}
	f.do(lt.Close("job"))
}

// What another client wrote behind the ledger's back surfaces as the constraint's own error, not as a refusal.
func TestConstraintError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 100)
	execute(t, f, "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) "+
		"VALUES ('Grant', 'grant:taken', 'system:issuance', 'team', 1, now(), now(), '', 'somebody else')")
	_, err := f.store.Submit(t.Context(), lt.Grant("taken", "team", 5))
	var broken *postgres.ConstraintError
	if !errors.As(err, &broken) || broken.Constraint != "entry_key_is_used_once" || broken.Invariant != "I6" {
		t.Errorf("got %v", err)
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 1 {
		t.Errorf("the rebuild changed %d accounts, %v", changed, err)
	}
}

// Every kind of entry in a sound ledger: the audit of the fixture knows all the system's accounts.
func TestAuditKnowsEveryKindOfEntry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	rich := lt.Account("rich", "", 0)
	rich.Policy.Refunds.FailedPercent = 50
	rich.Policy.Refill = ledger.Refill{Amount: ledger.Credit, PeriodSeconds: 60, Cap: 1_000 * ledger.Credit}
	lot := lt.Grant("lot", "rich", 100)
	lot.ExpiresAt = f.clock.Now().Add(time.Minute)
	f.do(rich, lt.Grant("g", "rich", 500), lot,
		ledger.Adjust{Key: "more", Account: "rich", Amount: 7, Reason: "test"}, ledger.Adjust{Key: "less", Account: "rich", Amount: -9, Reason: "test"},
		ledger.Transfer{Key: "lend", From: "team", To: "rich", Amount: 11},
		lt.Hold("job", "rich", 1, 10), lt.Allocate("pod", "job", "rich", 1), lt.End("pod", 0, 10), lt.Close("job"),
		ledger.Refund{Key: "refund", PodUID: "pod", Cause: ledger.RefundFailed})
	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	f.do(ledger.PostDue{Key: "due", Account: "rich"})
	statement, err := f.store.Statement(t.Context(), "rich", lt.At(0), lt.At(48*3600))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[ledger.EntryKind]bool)
	for _, line := range statement.Lines {
		seen[line.Kind] = true
	}
	for _, kind := range ledger.EntryKinds {
		if !seen[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
}
