package kueue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// world is a Job in a queue, a Kueue that does as it likes, a controller that is killed and replaced, and a ledger.
type world struct {
	*rapid.T
	now    time.Time
	books  *ledgertest.Memory
	job    *batchv1.Job
	size   int32 // the Job's own parallelism; Kueue may run it smaller
	quota  admission
	pods   map[string]time.Time // those that run, and since when
	number int
	// late are plans that a controller decided and has not carried out: it may wake up at any time.
	late []plan
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: start, books: ledgertest.NewMemory(), job: queued(), pods: map[string]time.Time{}}
	w.size = *w.job.Spec.Parallelism
	w.quota = admission{name: "wl", uid: "wl-uid", checks: []check{{name: "credits", state: kueuev1beta2.CheckStatePending}}}
	w.books.Decide(w.now, ledgertest.Account("team", "", 0), ledgertest.Grant("first", "team", rapid.Int64Range(1, 5000).Draw(t, "credits")))
	w.price("h100", 1)
	w.price("a100", 1)
	return w
}

func (w *world) key(what string) string {
	w.number++
	return fmt.Sprintf("%s:%d", what, w.number)
}

func (w *world) price(class string, credits int64) {
	w.books.Decide(w.now, ledger.SetRate{Key: w.key("rate"), Class: class, Rate: ledger.Rate(credits * int64(ledger.Credit))})
}

func (w *world) facts() facts {
	f := facts{
		now: w.now, job: w.job, workloads: []admission{w.quota}, account: "team", claimed: "team", classes: gpuClasses,
		holdAt: ledger.HoldAtAdmission, inUse: len(w.pods) > 0,
	}
	f.workloads[0].checks = append([]check(nil), w.quota.checks...)
	if r := w.reservation(); r != nil {
		row := *r
		f.reservation = &row
	}
	return f
}

func (w *world) reservation() *ledger.Reservation { return w.books.State.Reservations.Get("job-uid") }

func (w *world) state() *kueuev1beta2.CheckState { return &w.quota.checks[0].state }

// Submit implements submission.Ledger.
func (w *world) Submit(_ context.Context, command ledger.Command) (ledger.Verdict, error) {
	return w.books.Decide(w.now, command)[0], nil
}

// controller carries a plan out, as reconciler.apply does, up to a step at which it is killed. It reports whether it got to the end.
func (w *world) controller(f facts, p plan, steps int) bool {
	step := func() bool { steps--; return steps >= 0 }
	write := func(answers []answer) {
		for _, a := range answers {
			if state := w.state(); *state == kueuev1beta2.CheckStatePending || *state == kueuev1beta2.CheckStateReady {
				*state = a.state
			}
		}
	}
	if len(p.before) > 0 {
		if !step() {
			return false
		}
		write(p.before)
	}
	if p.pause != nil {
		if !step() {
			return false
		}
		if verdict, _ := submitPause(w.Context(), w, w.now, *p.pause); verdict.Refusal != nil {
			return false
		}
	}
	if p.hold != nil {
		if !step() {
			return false
		}
		verdict, _ := submitHold(w.Context(), w, w.now, *p.hold)
		p.after = conclude(f, p, verdict).after
	}
	if len(p.after) > 0 {
		if !step() {
			return false
		}
		write(p.after)
	}
	return true
}

// settle lets the controller come to rest.
func (w *world) settle() {
	for range 5 {
		f := w.facts()
		p := decide(f)
		if !p.changes() {
			return
		}
		if w.controller(f, p, 10) && *w.state() == kueuev1beta2.CheckStatePending && w.quota.active() {
			return // waits for credits
		}
	}
	w.Fatalf("the controller does not come to rest: %s", describe(decide(w.facts())))
}

// started checks what must hold when Kueue starts the Job on the word of the check: everything it may use from now on is set aside.
func (w *world) started() {
	want, _, err := wanted(w.facts(), w.quota.podSets[0])
	if err != nil {
		w.Fatal(err)
	}
	r := w.reservation()
	if r == nil || !r.Open() || r.Class != want.Class || r.MaxGPUs < want.MaxGPUs || r.Remaining() < ledger.Microcredits(int64(r.Rate)*want.GPUSeconds) {
		w.Fatalf("the Job starts, and needs %+v; set aside is %+v", want, r)
	}
}

func (w *world) endPods() {
	for pod, began := range w.pods {
		w.books.Decide(w.now, ledger.EndAllocation{Key: "end:" + pod, PodUID: pod, StartedAt: began, EndedAt: w.now, Reason: "test"})
		delete(w.pods, pod)
	}
}

func (w *world) allocate() {
	pod := w.key("pod")
	verdict := w.books.Decide(w.now, ledger.Allocate{
		Key: pod, PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "ns", Name: pod}, Reservation: "job-uid", Account: "team",
		Node: ledgertest.Node, Class: w.quota.podSets[0].nodeSelector["gpu"], GPUs: 2, Leader: ledgertest.Leader, LeaderEpoch: 1,
	})[0]
	if verdict.Refusal == nil {
		w.pods[pod] = w.now
	}
}

// step is one thing that happens.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(w.T, "ms")) * time.Millisecond)
	started := !suspended(w.job)
	switch rapid.IntRange(0, 11).Draw(w.T, "step") {
	case 0, 1: // quota
		if !w.quota.reserved && *w.state() == kueuev1beta2.CheckStatePending {
			class := rapid.SampledFrom([]string{"h100", "h100", "a100"}).Draw(w.T, "flavor")
			w.quota.reserved, w.quota.reservedSince = true, w.now.Truncate(time.Second)
			w.quota.podSets = onClass(class, int64(rapid.Int32Range(1, w.size).Draw(w.T, "count")))
		}
	case 2, 3: // Kueue starts it
		if w.quota.active() && w.quota.allReady() && !started {
			w.started()
			w.job.Spec.Suspend, w.job.Spec.Parallelism = ptr.To(false), ptr.To(int32(w.quota.podSets[0].count))
		}
	case 4: // Kueue evicts it
		if w.quota.reserved && !w.quota.evicted {
			w.quota.evicted, *w.state() = true, kueuev1beta2.CheckStatePending
			w.quota.evictions++
		}
	case 5: // Kueue stops it, then takes its quota; the ledger may hear of the last pods later
		switch {
		case w.quota.evicted && started:
			w.job.Spec.Suspend, w.job.Spec.Parallelism = ptr.To(true), ptr.To(w.size)
		case w.quota.evicted:
			w.quota.evicted, w.quota.reserved, w.quota.podSets = false, false, nil
		}
	case 6, 7:
		if started && w.quota.reserved {
			w.allocate()
		}
	case 8:
		w.endPods()
	case 9: // credits, or another price
		if rapid.Bool().Draw(w.T, "price") {
			w.price("h100", rapid.Int64Range(1, 3).Draw(w.T, "rate"))
		} else {
			w.books.Decide(w.now, ledgertest.Grant(w.key("more"), "team", 1000))
		}
	case 10: // a controller that is killed half way, or falls asleep
		f := w.facts()
		p := decide(f)
		if w.controller(f, p, rapid.IntRange(0, 3).Draw(w.T, "killed after")); len(w.late) < 3 {
			w.late = append(w.late, p)
		}
	case 11: // one that slept wakes up: its patches would conflict, its commands reach the ledger
		if len(w.late) > 0 {
			p := w.late[0]
			w.late = w.late[1:]
			p.before, p.after, p.waiting = nil, nil, nil
			w.controller(w.facts(), p, 10)
		}
	}
}

// Whatever Kueue does, and wherever controllers are killed: what starts is held for in full, what has lost its admission holds nothing, and the
// ledger is in order.
func TestEveryAdmissionIsHeldForAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step()
			if rapid.IntRange(0, 2).Draw(t, "lag") > 0 {
				w.settle()
			}
		}
		w.settle()
		w.endPods()
		w.settle()
		idle := !w.quota.reserved && suspended(w.job)
		if r := w.reservation(); idle && r != nil && r.Remaining() != 0 {
			t.Fatalf("nothing is admitted, and %d are set aside: %+v", r.Remaining(), r)
		}
		w.books.Decide(w.now, ledgertest.Close("job-uid"))
		if account := w.books.State.Accounts.Get("team"); account.Reserved != 0 || account.Held != 0 {
			t.Fatalf("the Job is over, and its account is %+v", account)
		}
		if violations := w.books.Audit(); len(violations) > 0 {
			var lines []string
			for _, each := range violations {
				lines = append(lines, each.String())
			}
			t.Fatal(strings.Join(lines, "\n"))
		}
	})
}
