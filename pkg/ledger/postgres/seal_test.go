package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
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
