package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// Every command that was ever answered for good comes again after everything that may be forgotten was: no row of the ledger changes,
// while workloads are open and once they are over. What is remembered for good is answered as before.
func TestForgottenCommandsDoNoHarm(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var said []ledger.Command
	var prefixes []string
	remember := func(_ *rand.Rand, commands []ledger.Command, verdicts []ledger.Verdict) {
		for i, v := range verdicts {
			if v.Refusal == nil || !v.Refusal.Code.Retryable() {
				said = append(said, commands[i])
			}
		}
	}
	for seed := range 40 {
		prefix, _ := historyBetween(t, f, conn, 1_000+seed, remember)
		prefixes = append(prefixes, prefix)
	}
	forgottenOpen := f.repeatAllForgotten(said)
	f.endEverything(prefixes)
	for range 2 { // histories speak of two epochs
		for _, prefix := range prefixes {
			if _, err := f.store.AcquireLeadership(t.Context(), lt.LeaderOf(prefix), "another"); err != nil {
				t.Fatal(err)
			}
		}
	}
	forgottenClosed := f.repeatAllForgotten(said)
	left := f.rows("SELECT forget, count(*) FROM command GROUP BY 1")
	t.Logf("of %d commands %d were forgotten while workloads were open, %d afterwards; left: %v", len(said), forgottenOpen, forgottenClosed, left)
	if forgottenOpen < 200 || forgottenClosed < 200 {
		t.Error("hardly anything was forgotten; the test shows nothing")
	}
	f.forgetAll(f.store)
	if kept := f.rows("SELECT key FROM command WHERE forget LIKE 'leader/%' OR forget LIKE 'workload/%' OR forget = 'age'"); len(kept) > 0 {
		t.Errorf("not forgotten although everything is over: %v", kept)
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
		t.Errorf("the rebuild changed %d rows, %v", changed, err)
	}
}

// repeatAllForgotten forgets what may be forgotten, asks everything again, and compares all rows.
func (f *fixture) repeatAllForgotten(said []ledger.Command) (forgotten int64) {
	f.t.Helper()
	var touch []ledger.Command // so that what has fallen due is posted before, not by the repetitions
	for _, name := range f.rows("SELECT name FROM account") {
		name = name[1 : len(name)-1]
		touch = append(touch, ledger.PostDue{Key: "touch:" + name, Account: name})
	}
	f.do(touch...)
	f.compactAll(f.store)
	forgotten, _ = f.forgetAll(f.store)
	before := f.picture()
	for batch := range slices.Chunk(said, 500) {
		verdicts, err := f.store.SubmitAll(f.t.Context(), batch)
		if err != nil {
			f.t.Fatal(err)
		}
		for i, v := range verdicts {
			if v.Refusal == nil && !v.Replayed && (v.Charged != 0 || v.Refunded != 0) {
				f.t.Errorf("%#v moved money again: %+v", batch[i], v)
			}
		}
	}
	after := f.picture()
	delete(before, "commands") // they are remembered again
	delete(after, "commands")
	if diff := cmp.Diff(before, after); diff != "" {
		f.t.Errorf("asking everything again changed (-before +after):\n%s", diff)
	}
	return forgotten
}

// endEverything ends what the histories left open.
func (f *fixture) endEverything(prefixes []string) {
	f.t.Helper()
	var commands []ledger.Command
	for _, prefix := range prefixes {
		for i := range 5 {
			pod := fmt.Sprintf("%sp%d", prefix, i)
			commands = append(commands, ledger.ReleaseAllocation{Key: "last-release:" + pod, PodUID: pod},
				ledger.EndAllocation{Key: "last-end:" + pod, PodUID: pod, StartedAt: lt.At(0), EndedAt: lt.At(300)})
		}
		for i := range 4 {
			uid := fmt.Sprintf("%sw%d", prefix, i)
			commands = append(commands, ledger.CloseReservation{Key: "last-close:" + uid, UID: uid, Outcome: ledger.Released})
		}
	}
	if _, err := f.store.SubmitAll(f.t.Context(), commands); err != nil {
		f.t.Fatal(err)
	}
	if open, err := f.store.OpenReservations(f.t.Context()); err != nil || len(open) > 0 {
		f.t.Fatalf("still open: %v, %v", open, err)
	}
}

// A hold that was renewed is asked for again under its own key while it is open: the answer is remembered for as long as it is, however
// old. Once it is closed it says so.
func TestRenewedHoldIsRememberedWhileItIsOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	hold := lt.Hold("job", "team", 1, 100)
	f.do(hold, ledger.RenewHold{Key: "renew:job:100", UID: "job", GPUSeconds: 50})
	f.forgetAll(f.store)
	if v := f.do(hold)[0]; !v.Replayed || v.Reservation.GPUSeconds != 150 {
		t.Errorf("asked again: %+v", v)
	}
	if v := f.do(ledger.RenewHold{Key: "renew:job:100", UID: "job", GPUSeconds: 50})[0]; !v.Replayed || v.Reservation.GPUSeconds != 150 {
		t.Errorf("renewed again: %+v", v)
	}
	f.do(lt.Close("job"))
	if commands, _ := f.forgetAll(f.store); commands != 3 {
		t.Errorf("forgot %d answers, want those of hold, renewal and close", commands)
	}
	f.refused(ledger.RenewHold{Key: "renew:job:100", UID: "job", GPUSeconds: 50}, ledger.ReservationClosed)
	f.refused(hold, ledger.TermsDiffer)
	f.refused(lt.Close("job"), ledger.ReservationClosed)
	f.figures("team", 10_000, 0, 0)
}

// What was decided within the last day is not forgotten, whatever the caller says; the pass goes on behind what it has seen.
func TestForgettingKeepsWhatIsYoung(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.clock.SetTime(time.Now())
	f.teamWith("team", 1_000)
	f.do(lt.Hold("job", "team", 1, 100), lt.Close("job"))
	if commands, _ := f.forgetAll(f.store); commands != 0 {
		t.Errorf("forgot %d answers that are not a day old", commands)
	}
	execute(t, f, `INSERT INTO command (key, content_hash, verdict, lasting, forget, decided_at)
		SELECT 'old:' || n, sha256('x'), '', false, CASE n % 2 WHEN 0 THEN 'age' ELSE 'workload/nobody' END, now() - interval '40 days' + n * interval '1 second'
		FROM generate_series(1, 12000) n`)
	step, err := f.store.ForgetCommands(t.Context(), time.Now().Add(-30*24*time.Hour), ledger.ForgetCursor{})
	if err != nil || step.Examined != 5_000 || step.Forgotten != 2_500 || !step.More {
		t.Errorf("the first step: %+v, %v", step, err)
	}
	if commands, _ := f.forgetAll(f.store); commands != 3_500 {
		t.Errorf("the rest: %d", commands)
	}
	if left := f.rows("SELECT 1 FROM command WHERE key LIKE 'old:%'"); len(left) != 6_000 {
		t.Errorf("%d are left, want those whose workload is unknown", len(left))
	}
}

// Answers of programs that knew no rules: intervals go by their age, everything else stays.
func TestForgettingWhatOlderProgramsAnswered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	execute(t, f, `INSERT INTO command (key, content_hash, verdict, lasting, decided_at) VALUES
		('interval:pod:1:2', sha256('x'), '', false, now() - interval '40 days'), ('account:team', sha256('x'), '', false, now() - interval '40 days'),
		('interval:lasting', sha256('x'), '', true, now() - interval '40 days')`)
	if commands, _ := f.forgetAll(f.store); commands != 1 {
		t.Errorf("forgot %d", commands)
	}
	if left := f.rows("SELECT key FROM command ORDER BY key"); !cmp.Equal(left, []string{"[account:team]", "[interval:lasting]"}) {
		t.Errorf("left: %v", left)
	}
}

// The GPUs of a pod are remembered while it is open; afterwards as long as the caller says. What was found stays found.
func TestForgetDeviceHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	for _, pod := range []string{"over", "beside", "open"} {
		f.do(lt.Hold(pod, "team", 1, 200), lt.Allocate(pod+"-1", pod, "team", 1), lt.Bound(pod+"-1"))
	}
	f.do(lt.Interval("over-1", 0, 0, 60, "GPU-a"), lt.Interval("beside-1", 0, 30, 90, "GPU-a"), lt.Interval("open-1", 0, 0, 60, "GPU-b"))
	f.do(lt.End("over-1", 0, 60), lt.End("beside-1", 0, 90))
	forgotten, more, err := f.store.ForgetDeviceHolds(t.Context(), lt.At(70))
	if err != nil || forgotten != 1 || more {
		t.Errorf("forgot %d, %v, %v", forgotten, more, err)
	}
	if _, devices := f.forgetAll(f.store); devices != 1 {
		t.Errorf("forgot %d, want the one of the other pod that has ended", devices)
	}
	if left := f.rows("SELECT gpu_uuid, pod_uid FROM device_hold"); !cmp.Equal(left, []string{"[GPU-b open-1]"}) {
		t.Errorf("left: %v", left)
	}
	if found := f.rows("SELECT key FROM discrepancy WHERE kind = 'GPUChargedTwice'"); len(found) != 1 {
		t.Errorf("discrepancies: %v", found)
	}
	// A late repetition of what was forgotten changes nothing.
	if v := f.do(lt.Interval("over-1", 0, 0, 60, "GPU-a"))[0]; !v.Replayed {
		t.Errorf("%+v", v)
	}
}
