package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// compactAll compacts everything that has ended, and says how many rows went.
func (f *fixture) compactAll(store *postgres.Store) (result ledger.CompactionResult) {
	f.t.Helper()
	var from ledger.CompactionCursor
	for {
		step, err := store.Compact(f.t.Context(), f.clock.Now().Add(100*365*24*time.Hour), from)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, why := range step.Unsound {
			f.t.Error(why)
		}
		result.Allocations, result.Intervals, result.Rows = result.Allocations+step.Allocations, result.Intervals+step.Intervals, result.Rows+step.Rows
		if !step.More {
			return result
		}
		from = step.Next
	}
}

// forgetAll forgets every answer that may be forgotten, and every GPU hold of what has ended.
func (f *fixture) forgetAll(store *postgres.Store) (commands, devices int64) {
	f.t.Helper()
	future := f.clock.Now().Add(100 * 365 * 24 * time.Hour)
	var from ledger.ForgetCursor
	for more := true; more; {
		step, err := store.ForgetCommands(f.t.Context(), future, from)
		if err != nil {
			f.t.Fatal(err)
		}
		commands, from, more = commands+step.Forgotten, step.Next, step.More
	}
	for more := true; more; {
		forgotten, again, err := store.ForgetDeviceHolds(f.t.Context(), future)
		if err != nil {
			f.t.Fatal(err)
		}
		devices, more = devices+forgotten, again
	}
	return commands, devices
}

const intervalRows = "SELECT pod_uid, started_at, ended_at, source, charge FROM metered_interval ORDER BY 1, 2"

// An hour by the minute becomes one row, and what no agent reported one of its own; the rest of the ledger does not change.
func TestCompact(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000_000)
	f.do(lt.Hold("job", "team", 3, 100_000), lt.Allocate("pod", "job", "team", 3), lt.Bound("pod"))
	f.do(lt.Interval("pod", 17.5, 17.5, 60))
	for minute := range 59 {
		f.do(lt.Interval("pod", 17.5, float64(60*(minute+1)), float64(60*(minute+2))))
	}
	f.do(lt.End("pod", 17.5, 3700), lt.Close("job"))
	f.do(lt.Hold("open", "team", 1, 1_000), lt.Allocate("open-1", "open", "team", 1), lt.Interval("open-1", 0, 0, 10), lt.Interval("open-1", 0, 10, 20))
	before := f.picture()
	got := f.compactAll(f.store)
	if got.Intervals != 61 || got.Rows != 2 || got.Allocations != 1 {
		t.Errorf("compacted %+v, want 61 intervals of one allocation into 2", got)
	}
	after := f.picture()
	if rows := after["intervals"]; len(rows) != 4 || !strings.Contains(rows[2], "Agent") && !strings.Contains(rows[3], "Agent") {
		t.Errorf("intervals: %v", rows)
	}
	delete(before, "intervals")
	delete(after, "intervals")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("compaction changed (-before +after):\n%s", diff)
	}
	if runs := f.rows("SELECT cardinality(starts), counts FROM compacted_time"); !cmp.Equal(runs, []string{"[3 [1 59 1]]"}) {
		t.Errorf("runs: %v", runs)
	}
	if again := f.compactAll(f.store); again.Allocations != 0 {
		t.Errorf("compacted again: %+v", again)
	}
}

// Late reports to a compacted allocation are answered as if it were not: the same piece is a success and moves nothing, another cut is
// an error that is kept, and what replaces derived time does so, whole pieces or parts of them. Also where the ledger has forgotten
// its first answer.
func TestLateReportsToCompactedTime(t *testing.T) {
	t.Parallel()
	for _, forget := range []bool{false, true} {
		t.Run(fmt.Sprintf("forgotten=%v", forget), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.teamWith("team", 100_000)
			f.do(lt.Hold("job", "team", 1, 1_000), lt.Allocate("pod", "job", "team", 1), lt.Bound("pod"))
			for minute := range 4 {
				f.do(lt.Interval("pod", 0, float64(60*minute), float64(60*(minute+1)), "GPU-a"))
			}
			f.do(lt.End("pod", 0, 600), lt.Close("job"))
			f.compactAll(f.store)
			if forget {
				if commands, _ := f.forgetAll(f.store); commands == 0 {
					t.Fatal("forgot nothing")
				}
			}
			f.figures("team", 100_000-600, 0, 600)
			piece := lt.Interval("pod", 0, 60, 120, "GPU-a")
			if v := f.do(piece)[0]; !v.Replayed {
				t.Errorf("a repetition is answered %+v", v)
			}
			other := lt.Interval("pod", 0, 30, 90, "GPU-a")
			f.refused(other, ledger.Conflict)
			if found := f.rows("SELECT kind FROM discrepancy"); !cmp.Equal(found, []string{"[IntervalConflict]"}) {
				t.Errorf("discrepancies: %v", found)
			}
			if rows := f.rows("SELECT 1 FROM metered_interval"); len(rows) != 2 {
				t.Errorf("%d rows: nothing has changed, and they are not compact any more", len(rows))
			}
			// The middle of the derived time was measured after all.
			if v := f.do(lt.Interval("pod", 0, 300, 360, "GPU-a"))[0]; v.Charged != 0 || v.Replayed {
				t.Errorf("late time is answered %+v", v)
			}
			if rows := f.rows("SELECT source, ended_at - started_at FROM metered_interval ORDER BY started_at"); len(rows) != 7 {
				t.Errorf("expanded: %v", rows)
			}
			f.figures("team", 100_000-600, 0, 600)
			f.audit()
			if got := f.compactAll(f.store); got.Intervals != 7 || got.Rows != 4 {
				t.Errorf("compacted again: %+v", got)
			}
			f.refused(lt.Interval("pod", 0, 300, 359, "GPU-a"), ledger.Conflict)
			f.figures("team", 100_000-600, 0, 600)
		})
	}
}

// An allocation whose intervals do not add up is left for the audit to name, and does not keep others from being compacted.
func TestCompactionCoversNothingUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	for _, pod := range []string{"bad", "good"} {
		f.do(lt.Hold(pod, "team", 1, 100), lt.Allocate(pod+"-1", pod, "team", 1), lt.Bound(pod+"-1"))
		f.do(lt.Interval(pod+"-1", 0, 0, 10), lt.Interval(pod+"-1", 0, 10, 20), lt.End(pod+"-1", 0, 20), lt.Close(pod))
	}
	execute(t, f, `ALTER TABLE metered_interval DISABLE TRIGGER interval_is_never_edited;
		UPDATE metered_interval SET charge = charge + 1 WHERE pod_uid = 'bad-1' AND started_at = '2026-03-02 09:00:10Z';
		ALTER TABLE metered_interval ENABLE TRIGGER interval_is_never_edited`)
	got, err := f.store.Compact(t.Context(), f.clock.Now(), ledger.CompactionCursor{})
	if err != nil || got.Allocations != 1 || got.Intervals != 2 || len(got.Unsound) != 1 || !strings.Contains(got.Unsound[0], "bad-1") {
		t.Errorf("%+v, %v", got, err)
	}
	if more, err := f.store.Compact(t.Context(), f.clock.Now(), got.Next); err != nil || more.Allocations != 0 || len(more.Unsound) != 0 {
		t.Errorf("the rest of the pass: %+v, %v", more, err)
	}
	execute(t, f, `ALTER TABLE metered_interval DISABLE TRIGGER interval_is_never_edited;
		UPDATE metered_interval SET charge = charge - 1 WHERE pod_uid = 'bad-1' AND started_at = '2026-03-02 09:00:10Z';
		ALTER TABLE metered_interval ENABLE TRIGGER interval_is_never_edited`)
	if got := f.compactAll(f.store); got.Allocations != 1 {
		t.Errorf("repaired: %+v", got)
	}
}

// A program that knows nothing of compaction cannot replace half of what was compacted, and charges nothing twice: its write fails.
func TestOlderProgramsLeaveCompactedTimeAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	f.do(lt.Hold("job", "team", 1, 100), lt.Allocate("pod", "job", "team", 1), lt.Bound("pod"))
	f.do(lt.Interval("pod", 0, 0, 10), lt.Interval("pod", 0, 10, 20), lt.End("pod", 0, 100), lt.Close("job"))
	f.compactAll(f.store)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	refuses(t, conn, []guard{
		// IntervalDelete and IntervalInsert, as they are in every release.
		{"interval_is_expanded_before_it_goes", "DELETE FROM metered_interval WHERE source = 'Derived'"},
		{"interval_overlaps_no_other_of_its_pod", "INSERT INTO metered_interval VALUES ('pod', '2026-03-02 09:00:05Z', '2026-03-02 09:00:10Z', 'Agent', 5000000, now())"},
		{"compacted_time_is_never_edited", "UPDATE compacted_time SET received_at = now()"},
		{"compacted_time_is_never_truncated", "TRUNCATE compacted_time"},
		{"compacted_time_names_its_allocation", "INSERT INTO compacted_time SELECT 'nobody', starts, microseconds, counts, derived, received_at, now() FROM compacted_time"},
		{"compacted_time_pkey", "INSERT INTO compacted_time SELECT * FROM compacted_time"},
		{"compacted_time_has_whole_runs", "INSERT INTO compacted_time VALUES ('pod', '{}', '{}', '{}', '{}', now(), now())"},
		{"compacted_time_has_whole_runs", "INSERT INTO compacted_time VALUES ('pod', ARRAY[now()], '{1}', '{1, 2}', '{f}', now(), now())"},
		{"compacted_time_takes_time", "INSERT INTO compacted_time VALUES ('pod', ARRAY[now()], '{0}', '{1}', '{f}', now(), now())"},
	})
}

// What is compacted and what is tampered with are two things, to an audit.
func TestAuditOfCompactedTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	f.do(lt.Hold("job", "team", 1, 1_000), lt.Allocate("pod", "job", "team", 1), lt.Bound("pod"))
	for minute := range 5 {
		f.do(lt.Interval("pod", 0, float64(60*minute), float64(60*(minute+1))))
	}
	f.do(lt.End("pod", 0, 310), lt.Close("job"))
	f.compactAll(f.store)
	f.audit()
	const unlocked = "ALTER TABLE compacted_time DISABLE TRIGGER ALL; ALTER TABLE metered_interval DISABLE TRIGGER ALL; "
	for _, c := range []struct{ what, statement, want string }{
		{"a shorter run", unlocked + "UPDATE compacted_time SET counts = '{4, 1}'", "I3 allocation pod"},
		{"other sources", unlocked + "UPDATE compacted_time SET derived = '{f, f}'", "I3 allocation pod"},
		{"another cut of the same time", unlocked + "UPDATE compacted_time SET microseconds = '{300000000, 10000000}', counts = '{1, 1}'", "I4 allocation pod"},
		{"a row less", unlocked + "DELETE FROM metered_interval WHERE source = 'Derived'", "I3 allocation pod"},
		{"rows without what they were", unlocked + "UPDATE allocation SET compacted = false", "I3 allocation pod"},
	} {
		t.Run(c.what, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), f.url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			if _, err := tx.Exec(t.Context(), c.statement); err != nil {
				t.Fatal(err)
			}
			found, err := postgres.AuditIn(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range found {
				if strings.HasPrefix(v.String(), c.want) {
					return
				}
			}
			t.Errorf("the audit found %v, want %s", found, c.want)
		})
	}
}

// Compaction leaves an allocation that somebody has locked, and waits for nobody; a step that would have to is not done.
func TestCompactionWaitsForNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	for _, pod := range []string{"one", "two"} {
		f.do(lt.Hold(pod, "team", 1, 100), lt.Allocate(pod+"-1", pod, "team", 1), lt.Bound(pod+"-1"))
		f.do(lt.Interval(pod+"-1", 0, 0, 10), lt.Interval(pod+"-1", 0, 10, 20), lt.End(pod+"-1", 0, 20), lt.Close(pod))
	}
	release := holdLock(t, f, "UPDATE allocation SET last_seen = now() WHERE pod_uid = 'one-1'")
	got, err := f.store.Compact(t.Context(), f.clock.Now(), ledger.CompactionCursor{})
	if err != nil || got.Allocations != 1 || got.Busy {
		t.Errorf("beside a locked allocation: %+v, %v", got, err)
	}
	release()
	release = holdLock(t, f, "DELETE FROM metered_interval WHERE pod_uid = 'one-1' AND started_at = '2026-03-02 09:00:10Z'")
	got, err = f.store.Compact(t.Context(), f.clock.Now(), ledger.CompactionCursor{})
	if err != nil || !got.Busy || got.Allocations != 0 {
		t.Errorf("beside a locked interval: %+v, %v", got, err)
	}
	release()
	if got := f.compactAll(f.store); got.Allocations != 1 {
		t.Errorf("afterwards: %+v", got)
	}
}

// A batch that has read intervals which are compacted before it writes is decided again.
func TestBatchOvertakenByCompaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	f.do(lt.Hold("job", "team", 1, 1_000), lt.Allocate("pod", "job", "team", 1), lt.Bound("pod"))
	f.do(lt.Interval("pod", 0, 0, 10), lt.Interval("pod", 0, 10, 20), lt.End("pod", 0, 500), lt.Close("job"))
	// The batch has read the derived interval and waits for its row's deletion by somebody who then gives up, or compacts.
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM allocation WHERE pod_uid = 'pod' FOR NO KEY UPDATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `DELETE FROM metered_interval;
		INSERT INTO metered_interval VALUES ('pod', '2026-03-02 09:00:00Z', '2026-03-02 09:00:20Z', 'Agent', 20000000, now()),
			('pod', '2026-03-02 09:00:20Z', '2026-03-02 09:08:20Z', 'Derived', 480000000, now());
		INSERT INTO compacted_time VALUES ('pod', '{2026-03-02 09:00:00Z, 2026-03-02 09:00:20Z}', '{10000000, 480000000}', '{2, 1}', '{f, t}', now(), now());
		UPDATE allocation SET compacted = true`); err != nil {
		t.Fatal(err)
	}
	late := f.store.Start(lt.Interval("pod", 0, 100, 160))
	awaitWaiting(t, conn)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, err := late.Wait(t.Context())
	if err != nil || v.Refusal != nil || v.Charged != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if rows := f.rows(intervalRows); len(rows) != 5 {
		t.Errorf("intervals: %v", rows)
	}
}

// awaitWaiting returns when another session of the database waits for a lock.
func awaitWaiting(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for {
		var waiting bool
		if err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting {
			return
		}
	}
}

// Only the controller compacts and forgets, and even it deletes no answer but by the rules.
func TestOnlyTheControllerKeepsTables(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	f.do(lt.Hold("job", "team", 1, 100), lt.Allocate("pod", "job", "team", 1), lt.Bound("pod"))
	f.do(lt.Interval("pod", 0, 0, 10), lt.Interval("pod", 0, 10, 20), lt.End("pod", 0, 20), lt.Close("job"))
	for _, role := range []string{"gpubank_webhook", "gpubank_scheduler", "gpubank_reader"} {
		store := f.as(role)
		// The scheduler may lock allocations, and sees none that has ended there.
		if got, err := store.Compact(t.Context(), f.clock.Now(), ledger.CompactionCursor{}); !denied(err) && got.Allocations != 0 {
			t.Errorf("%s compacted: %+v, %v", role, got, err)
		}
		if got, err := store.ForgetCommands(t.Context(), f.clock.Now().Add(time.Hour), ledger.ForgetCursor{}); !denied(err) {
			t.Errorf("%s forgot: %+v, %v", role, got, err)
		}
		if got, _, err := store.ForgetDeviceHolds(t.Context(), f.clock.Now().Add(time.Hour)); !denied(err) {
			t.Errorf("%s forgot GPU holds: %d, %v", role, got, err)
		}
		conn := f.connect(role)
		for _, statement := range []string{"DELETE FROM compacted_time", "UPDATE allocation SET compacted = true", "DELETE FROM device_hold", "DELETE FROM command"} {
			f.denied(conn, statement)
		}
		conn.Close(t.Context())
	}
	controller := f.as("gpubank_controller")
	conn := f.connect("gpubank_controller")
	for _, statement := range []string{"DELETE FROM command", "DELETE FROM device_hold", "UPDATE command SET forget = 'age'", "UPDATE compacted_time SET counts = counts"} {
		f.denied(conn, statement)
	}
	conn.Close(t.Context())
	if got := f.compactAll(controller); got.Intervals != 2 {
		t.Errorf("the controller compacted %+v", got)
	}
	if commands, _ := f.forgetAll(controller); commands == 0 {
		t.Error("the controller forgot nothing")
	}
}

func denied(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == insufficientPrivilege
}
