package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// sealAll seals until there is nothing left, and returns how many entries were sealed.
func sealAll(t testing.TB, store *postgres.Store) (sealed int64) {
	t.Helper()
	for {
		result, err := store.Seal(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		sealed += result.Entries
		if waiting, err := store.UnsealedEntries(context.Background()); err != nil {
			t.Fatal(err)
		} else if waiting == 0 && !result.More && !result.Busy {
			return sealed
		}
	}
}

func verifyChains(t testing.TB, store *postgres.Store, pins ...ledger.ChainHead) ledger.ChainReport {
	t.Helper()
	report, err := store.VerifyChains(context.Background(), pins)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// sound asserts that neither the audit nor the chains find anything.
func sound(t testing.TB, store *postgres.Store, pins ...ledger.ChainHead) ledger.ChainReport {
	t.Helper()
	violations, err := store.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	report := verifyChains(t, store, pins...)
	for _, v := range append(violations, report.Violations...) {
		t.Errorf("found %s", v)
	}
	return report
}

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

func TestSealAndVerify(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	if sealed := sealAll(t, f.store); sealed < 20 {
		t.Errorf("sealed %d entries", sealed)
	}
	if sealed := sealAll(t, f.store); sealed != 0 {
		t.Errorf("sealed %d more, and nothing had happened", sealed)
	}
	heads, err := f.store.ChainHeads(t.Context())
	if err != nil || len(heads) != 4 { // red, blue and their members; org itself has no entries
		t.Fatalf("heads %+v, %v", heads, err)
	}
	before := sound(t, f.store, heads...)
	if before.Unsealed != 0 || before.Sealed == 0 {
		t.Errorf("report %+v", before)
	}
	f.do(lt.Grant("more", "red", 1), lt.Interval("blue-worker", 0, 20, 30))
	if report := sound(t, f.store, heads...); report.Unsealed != 3 || report.UnsealedSince.IsZero() { // red, blue and its member
		t.Errorf("report %+v", report)
	}
	if sealed := sealAll(t, f.store); sealed != 3 {
		t.Errorf("sealed %d, want 3", sealed)
	}
	sound(t, f.store, heads...)

	// Nothing that is sealed is sealed again, also when every account is looked at.
	if err := f.store.SealAfresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sealed := sealAll(t, f.store); sealed != 0 {
		t.Errorf("sealed %d once more", sealed)
	}
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

// dyingTx is a transaction whose server process is killed before the statement that is still allowed runs out.
type dyingTx struct {
	pgx.Tx
	left int
	kill func()
}

func (d *dyingTx) step() {
	if d.left == 0 {
		d.kill()
	}
	d.left--
}

func (d *dyingTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	d.step()
	return d.Tx.Exec(ctx, sql, args...)
}

func (d *dyingTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	d.step()
	return d.Tx.Query(ctx, sql, args...)
}

func (d *dyingTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	d.step()
	return d.Tx.QueryRow(ctx, sql, args...)
}

func (d *dyingTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	d.step()
	return d.Tx.SendBatch(ctx, b)
}

// The sealer dies before each of its steps, the commit included: the next one does it all, and once.
func TestSealerKilledBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	admin := superuser(t, f)
	survived := false
	for left := 0; !survived; left++ {
		f.do(lt.Grant(fmt.Sprintf("round-%d", left), "red", 1))
		conn, err := pgx.Connect(t.Context(), f.url)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kill := func() {
			var gone bool
			if err := admin.QueryRow(t.Context(), "SELECT pg_terminate_backend($1, 5000)", conn.PgConn().PID()).Scan(&gone); err != nil || !gone {
				t.Fatalf("killed %v, %v", gone, err)
			}
		}
		dying := &dyingTx{Tx: tx, left: left, kill: kill}
		_, err = postgres.SealIn(f.store, t.Context(), dying)
		if err == nil { // every step was made: now it dies before the commit
			kill()
			survived = true
			if err := tx.Commit(t.Context()); err == nil {
				t.Error("committed by a dead process")
			}
		}
		_ = conn.Close(t.Context())
		if report := verifyChains(t, f.store); report.Sealed != 0 {
			t.Fatalf("after %d steps something was sealed: %+v", left, report)
		}
		if left > 20 {
			t.Fatal("the sealer has no end")
		}
	}
	sealAll(t, f.store)
	if report := sound(t, f.store); report.Unsealed != 0 || report.Sealed == 0 {
		t.Errorf("report %+v", report)
	}
}

// Two sealers at once do not seal anything twice or in two ways; one waits for its turn without waiting.
func TestSealersRace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.SealIn(f.store, t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if result, err := f.store.Seal(t.Context()); err != nil || !result.Busy || result.Entries != 0 {
		t.Errorf("while another one seals: %+v, %v", result, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	stores := []*postgres.Store{f.store, f.open(postgres.Options{}), f.open(postgres.Options{})}
	var all sync.WaitGroup
	for i := range 60 {
		f.do(lt.Grant(fmt.Sprintf("g-%d", i), "blue", 1))
		all.Go(func() {
			if _, err := stores[i%3].Seal(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	sealAll(t, f.store)
	sound(t, f.store)
}

// Ten thousand random commands from three processes, while one seals, one audits and one verifies: no false alarm, ever.
func TestNoFalseAlarmWhileWritersRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	commands := 10_000
	if testing.Short() {
		commands = 1_000
	}
	stores := []*postgres.Store{f.store, f.open(postgres.Options{Clock: f.clock}), f.open(postgres.Options{Clock: f.clock})}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, stop := context.WithCancel(t.Context())
	var watchers, writers sync.WaitGroup
	var pins []ledger.ChainHead
	watchers.Go(func() {
		for ctx.Err() == nil {
			if _, err := stores[1].Seal(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	rounds := 0
	watchers.Go(func() {
		for ctx.Err() == nil {
			sound(t, stores[2], pins...)
			var err error
			if pins, err = f.store.ChainHeads(context.WithoutCancel(ctx)); err != nil || t.Failed() {
				t.Errorf("heads: %v", err)
				return
			}
			rounds++
		}
	})
	for w := range 9 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := 0; i < commands/9 && !t.Failed(); i += 10 {
				var batch []ledger.Command
				for j := range 10 {
					batch = append(batch, randomCommand(random, fmt.Sprintf("%d-%d", w, i+j)))
				}
				if _, err := stores[w%3].SubmitAll(t.Context(), batch); err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
			}
		})
	}
	writers.Wait()
	stop()
	watchers.Wait()
	sealAll(t, f.store)
	report := sound(t, f.store, pins...)
	if report.Unsealed != 0 {
		t.Errorf("left unsealed: %+v", report)
	}
	t.Logf("%d rounds of audits, %d entries sealed", rounds, report.Sealed)
}

// randomCommand moves money between the accounts of town; many are refused.
func randomCommand(random *rand.Rand, key string) ledger.Command {
	accounts := []string{"org", "red", "blue", "red.member", "blue.member"}
	account := accounts[random.IntN(len(accounts))]
	work := fmt.Sprintf("w-%d", random.IntN(40))
	pod := fmt.Sprintf("p-%d", random.IntN(60))
	from := float64(random.IntN(300))
	switch random.IntN(12) {
	case 0:
		c := lt.Grant(key, account, 1+random.Int64N(100))
		if random.IntN(2) == 0 {
			c.ExpiresAt = lt.At(86_400 + 3_600*float64(1+random.IntN(500)))
		}
		return c
	case 1, 2:
		c := lt.Hold(work, account, 2, 1+random.Int64N(60))
		c.Key = key
		return c
	case 3, 4:
		c := lt.Allocate(pod, work, account, 1)
		c.Key = key
		return c
	case 5, 6, 7:
		c := lt.Interval(pod, 0, from, from+1+float64(random.IntN(30)))
		c.Key = key
		return c
	case 8:
		c := lt.End(pod, 0, 330)
		c.Key = key
		return c
	case 9:
		c := lt.Close(work)
		c.Key = key
		return c
	case 10:
		return ledger.Transfer{Key: key, From: account, To: accounts[random.IntN(len(accounts))], Amount: ledger.Microcredits(1 + random.Int64N(50_000_000)), Reason: "r"}
	}
	if random.IntN(2) == 0 {
		return ledger.Refund{Key: key, PodUID: pod, Cause: ledger.RefundFailed}
	}
	return ledger.Adjust{Key: key, Account: account, Amount: ledger.Microcredits(1 - random.Int64N(1_000)), Reason: "r"}
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

// Another client with the ledger's own rights cannot change a seal.
func TestSealsAreAppendOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	town(f)
	sealAll(t, f.store)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for constraint, statement := range map[string]string{
		"seal_is_append_only":            "UPDATE seal SET hash = hash",
		"seal_is_never_truncated":        "TRUNCATE seal",
		"seal_follows_the_one_before":    "INSERT INTO seal SELECT * FROM seal",
		"seal_hash_is_sha256":            "INSERT INTO seal SELECT account, 99, entries, first_entry, ids, checks, through, last_entry, last_recorded_at, '', sealed_at FROM seal",
		"seal_progress_is_never_deleted": "DELETE FROM seal_progress",
		"seal_progress_is_one_row":       "INSERT INTO seal_progress VALUES (false, 0, '', 0)",
	} {
		_, err := conn.Exec(t.Context(), statement)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.ConstraintName != constraint {
			t.Errorf("%s: want the refusal of %s, got %v", statement, constraint, err)
		}
	}
	if _, err := conn.Exec(t.Context(), "DELETE FROM seal"); err == nil {
		t.Error("seals were deleted")
	}
}

// More than fits into one transaction, or one page, is sealed and verified in several.
func TestManyEntriesOfOneAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1)
	var grants []ledger.Command
	for i := range 45_000 {
		grants = append(grants, lt.Grant(fmt.Sprint(i), "team", 1))
	}
	for batch := range slices.Chunk(grants, 1_000) {
		f.do(batch...)
	}
	if waiting, err := f.store.UnsealedEntries(t.Context()); err != nil || waiting != 45_001 {
		t.Errorf("%d wait, %v", waiting, err)
	}
	if sealed := sealAll(t, f.store); sealed != 45_001 {
		t.Errorf("sealed %d", sealed)
	}
	if report := sound(t, f.store); report.Sealed != 45_001 || report.Unsealed != 0 {
		t.Errorf("report %+v", report)
	}
	conn := superuser(t, f)
	var size, id int64
	if err := conn.QueryRow(t.Context(), "SELECT sum(pg_column_size(s.*)) FROM seal s").Scan(&size); err != nil {
		t.Fatal(err)
	}
	if perEntry := float64(size) / 45_001; perEntry > 12 {
		t.Errorf("seals take %.1f bytes per entry", perEntry)
	}
	if err := conn.QueryRow(t.Context(), "UPDATE entry SET actor = 'x' WHERE event_key = 'grant:40000' RETURNING id").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if report := verifyChains(t, f.store); len(report.Violations) != 1 || report.Violations[0].Entry != id {
		t.Errorf("found %v, want entry %d", report.Violations, id)
	}
}
