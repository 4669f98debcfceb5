package turn

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var testOptions = Options{HalfLife: 7 * 24 * time.Hour, Patience: 10 * time.Minute, ShapeRetry: time.Minute}

func newTestQueue(gpus int64, accounts ...Account) *Queue {
	q := New(testOptions)
	q.SetAccounts(modelStart, accounts)
	q.SetCapacity(modelStart, map[string]int64{"h100": gpus})
	return q
}

func testPod(account, uid string, gpus int64) Pod {
	return Pod{UID: uid, Account: account, Class: "h100", GPUs: gpus, Created: modelStart}
}

// order takes pods until nobody is next, and returns their UIDs.
func order(q *Queue, now time.Time) string {
	var uids []string
	for {
		next, some := q.Next(now)
		if !some {
			return strings.Join(uids, " ")
		}
		q.Take(now, next.Pod)
		uids = append(uids, next.Pod.UID)
	}
}

func TestSharesAreExactAtEveryPick(t *testing.T) {
	q := newTestQueue(100, Account{Name: "a", Weight: 1}, Account{Name: "b", Weight: 2})
	for i := range 6 {
		q.Add(modelStart, testPod("a", fmt.Sprint("a", i), 4))
		q.Add(modelStart, testPod("b", fmt.Sprint("b", i), 4))
	}
	if got, want := order(q, modelStart), "b0 a0 b1 b2 a1 b3 b4 a2 b5 a3 a4 a5"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
}

// A priority counts within its account; it never buys another account's guaranteed share.
func TestPriorityStaysWithinItsAccount(t *testing.T) {
	q := newTestQueue(100,
		Account{Name: "loud", Aging: 24 * time.Hour},
		Account{Name: "owner", Limits: map[string]Limit{"h100": {Guaranteed: 8, Borrowable: 100}}})
	q.Take(modelStart, testPod("owner", "running", 4))
	for i := range 3 {
		p := testPod("loud", fmt.Sprint("loud", i), 1)
		p.Priority = int32(i) * 1_000_000
		q.Add(modelStart, p)
		q.Add(modelStart, testPod("owner", fmt.Sprint("owner", i), 4))
	}
	// owner has more, and still goes first up to 8; then the smaller share does.
	if got, want := order(q, modelStart), "owner0 loud2 loud1 loud0 owner1 owner2"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
}

func TestHeadStart(t *testing.T) {
	const day = 24 * time.Hour
	for priority, want := range map[int32]time.Duration{0: 12 * time.Hour, math.MaxInt32: day, 1000: 15*time.Hour + 51*time.Minute, -1000: 8*time.Hour + 8*time.Minute} {
		if got := HeadStart(priority, day); (got - want).Abs() > time.Minute {
			t.Errorf("head start of %d is %v, want about %v", priority, got, want)
		}
	}
	if HeadStart(math.MinInt32, day) < 0 {
		t.Error("the least priority has a negative head start")
	}
}

// No pod goes before another of its account, class and kind that was created more than the difference of their head starts, so at
// most Aging, before it: that is the bound on waiting for the account's own order.
func TestNobodyIsOvertakenForLongerThanAging(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		aging := time.Duration(rapid.IntRange(0, 48).Draw(t, "hours")) * time.Hour
		q := newTestQueue(1, Account{Name: "a", Aging: aging})
		waiting := map[string]Pod{}
		now := modelStart
		for i := range rapid.IntRange(1, 60).Draw(t, "pods") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3*3600).Draw(t, "pause")) * time.Second)
			p := Pod{UID: fmt.Sprint(i), Account: "a", Class: "h100", GPUs: 1, Created: now, Priority: rapid.Int32().Draw(t, "priority")}
			q.Add(now, p)
			waiting[p.UID] = p
			if !rapid.Bool().Draw(t, "placed") {
				continue
			}
			next, _ := q.Next(now)
			q.Take(now, next.Pod)
			q.Free(now, next.Pod.UID)
			delete(waiting, next.Pod.UID)
			for _, other := range waiting {
				most := min(aging, HeadStart(next.Pod.Priority, aging)-HeadStart(other.Priority, aging))
				if ahead := next.Pod.Created.Sub(other.Created); ahead > max(most, 0) {
					t.Fatalf("%+v goes before %+v, which is %v older; the bound is %v", next.Pod, other, ahead, most)
				}
			}
		}
	})
}

// D22: what waits does not starve others, and is not starved: small pods overtake a large one that a limit holds back, but not for
// longer than Patience.
func TestLargePodIsNotStarvedBehindALimit(t *testing.T) {
	limits := map[string]Limit{"h100": {Guaranteed: 8}}
	q := newTestQueue(100, Account{Name: "org", Limits: limits}, Account{Name: "large", Parent: "org"}, Account{Name: "small", Parent: "org"})
	now := modelStart
	q.Take(now, testPod("small", "s0", 1))
	q.Add(now, testPod("large", "large", 8))
	running := []string{"s0"}
	for i := 1; ; i++ {
		q.Add(now, testPod("small", fmt.Sprint("s", i), 1))
		next, some := q.Next(now)
		if some && next.Pod.UID == "large" {
			break
		}
		if some {
			q.Take(now, next.Pod)
			running = append(running, next.Pod.UID)
		}
		if i%4 == 0 && len(running) > 0 {
			q.Free(now, running[0])
			running = running[1:]
		}
		if now = now.Add(10 * time.Second); now.Sub(modelStart) > testOptions.Patience+8*40*time.Second+time.Minute {
			t.Fatalf("the large pod still waits: %s", q.Explain("large"))
		}
	}
	if waited := now.Sub(modelStart); waited < testOptions.Patience {
		t.Errorf("small pods could not overtake: the large one was placed after %v", waited)
	}
}

// An account that once used everything waits behind newcomers with nothing running for MaxWait, then has one pod placed at a time.
func TestAccountIsNotStarvedForItsPast(t *testing.T) {
	q := newTestQueue(8, Account{Name: "past", MaxWait: 24 * time.Hour}, Account{Name: "new"})
	q.SetPast(modelStart, []Past{{Account: "past", Class: "h100", HalfLife: testOptions.HalfLife, Average: 800}})
	for i := range 40 {
		q.Add(modelStart, testPod("past", fmt.Sprint("p", i), 1))
		q.Add(modelStart, testPod("new", fmt.Sprint("n", i), 1))
	}
	if next, _ := q.Next(modelStart); next.Pod.Account != "new" {
		t.Fatalf("next is %+v", next)
	}
	later := modelStart.Add(24*time.Hour + 2*Tick)
	next, _ := q.Next(later)
	if next.Pod.Account != "past" || next.Tier != Starved {
		t.Fatalf("after a day next is %+v", next)
	}
	q.Take(later, next.Pod)
	if next, _ = q.Next(later); next.Pod.Account != "new" {
		t.Errorf("with one running next is %+v", next)
	}
}

// Batch pods use an idle floor; what becomes free goes to the floor first, whatever the shares.
func TestFloorIsLentAndReturns(t *testing.T) {
	q := newTestQueue(8,
		Account{Name: "serve", Floors: []Floor{{Name: "inference", Class: "h100", GPUs: 2}}},
		Account{Name: "batch", Limits: map[string]Limit{"h100": {Guaranteed: 8}}})
	for i := range 10 {
		q.Add(modelStart, testPod("batch", fmt.Sprint("b", i), 1))
	}
	for i := range 8 {
		next, _ := q.Next(modelStart)
		if want := fmt.Sprint("b", i); next.Pod.UID != want {
			t.Fatalf("next is %s, want %s: an idle floor is lent", next.Pod.UID, want)
		}
		q.Take(modelStart, next.Pod)
	}
	for i := range 3 {
		p := testPod("serve", fmt.Sprint("f", i), 1)
		p.Floor = "inference"
		q.Add(modelStart, p)
	}
	q.Add(modelStart, testPod("serve", "plain", 1))
	q.SetPast(modelStart, []Past{{Account: "serve", Class: "h100", HalfLife: testOptions.HalfLife, Average: 80}})
	for i := range 4 {
		q.Free(modelStart, fmt.Sprint("b", i))
	}
	if got, want := order(q, modelStart), "f0 f1 b8 b9 f2 plain"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
}

// A pod that fits nowhere stands for those that look alike, and for no others.
func TestOneOfManyAlikeIsTried(t *testing.T) {
	q := newTestQueue(8, Account{Name: "a"}, Account{Name: "b"})
	for i := range 3 {
		q.Add(modelStart, testPod("a", fmt.Sprint("a", i), 8))
	}
	q.Add(modelStart, testPod("a", "small", 1))
	q.Add(modelStart, testPod("b", "b", 8))
	q.Fail(modelStart, "a0", true, 0)
	if text := q.Explain("a1"); !strings.HasPrefix(text, "Turn: another pod of account a") {
		t.Errorf("a1 waits for %q", text)
	}
	if got, want := order(q, modelStart), "small b"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
	q.Ready(modelStart, "a0")
	if next, some := q.Next(modelStart); some {
		t.Errorf("%+v is next, before its pause is over", next)
	}
	q.Free(modelStart, "b") // GPUs that become free end it, whichever comes first
	if next, _ := q.Next(modelStart); next.Pod.UID != "a0" {
		t.Errorf("next is %+v", next)
	}
	q.Fail(modelStart, "a0", true, 0)
	later := modelStart.Add(testOptions.ShapeRetry + Tick)
	if next, _ := q.Next(later); next.Pod.UID != "a1" {
		t.Errorf("after a while next is %+v", next)
	}
}

// A group that has begun goes on until all of it that is ready is placed, or one of it fails.
func TestGroupIsNotInterrupted(t *testing.T) {
	q := newTestQueue(80, Account{Name: "a"}, Account{Name: "b"})
	for i := range 4 {
		p := testPod("a", fmt.Sprint("a", i), 8)
		p.Group = "gang"
		q.Add(modelStart, p)
		q.Add(modelStart, testPod("b", fmt.Sprint("b", i), 1))
	}
	q.Take(modelStart, testPod("b", "running", 16))
	if got, want := order(q, modelStart), "a0 a1 a2 a3 b0 b1 b2 b3"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
	for i := range 2 {
		q.Free(modelStart, fmt.Sprint("a", i))
		p := testPod("a", fmt.Sprint("again", i), 8)
		p.Group = "gang"
		q.Add(modelStart, p)
	}
	next, _ := q.Next(modelStart)
	q.Take(modelStart, next.Pod)
	q.Fail(modelStart, "again1", false, 0)
	q.Add(modelStart, testPod("b", "b4", 1))
	if next, _ = q.Next(modelStart); next.Pod.UID != "b4" {
		t.Errorf("after a failure next is %+v", next)
	}
}

// E27: what quota says is never what placement says, and a limit says its numbers.
func TestExplainsLimitsAndShares(t *testing.T) {
	q := newTestQueue(80,
		Account{Name: "org", Limits: map[string]Limit{"h100": {Guaranteed: 8, Borrowable: 4}}},
		Account{Name: "team", Parent: "org"}, Account{Name: "rival"})
	q.Take(modelStart, testPod("team", "running", 10))
	q.Add(modelStart, testPod("team", "held", 4))
	q.Add(modelStart, testPod("team", "huge", 16))
	q.Add(modelStart, testPod("team", "small", 1))
	q.Add(modelStart, testPod("rival", "rival", 1))
	for uid, want := range map[string]string{
		"held":  "Quota: needs 4 GPUs of class h100, account org may use 12 at once (8 guaranteed and 4 borrowable) and 10 are in use; it goes on when others of the account end, or the limit is raised",
		"huge":  "Quota: needs 16 GPUs of class h100, account org may use 12 at once (8 guaranteed and 4 borrowable) and 10 are in use; it can never run under this limit, ask for fewer or have the limit raised",
		"small": "Turn: account org has a share of 12.5 % (10 of 80 h100 in use and 0.0 on average lately, weight 1), account rival goes first, whose share is smaller: 0.0 % (0 h100 in use, weight 1)",
		"none":  "",
	} {
		if got := q.Explain(uid); got != want {
			t.Errorf("%s: %q, want %q", uid, got, want)
		}
	}
	q.Fail(modelStart, "small", true, 0)
	if got := q.Explain("small"); got != "" {
		t.Errorf("a pod that fits nowhere is told %q by the queue", got)
	}
}

// Everything equal, names and times decide, so that two schedulers would decide alike.
func TestTiesAreStable(t *testing.T) {
	q := newTestQueue(8, Account{Name: "b"}, Account{Name: "a"})
	older := testPod("b", "b-older", 1)
	older.Created = modelStart.Add(-time.Second)
	q.Add(modelStart, testPod("b", "b1", 1))
	q.Add(modelStart, testPod("a", "a2", 1))
	q.Add(modelStart, testPod("a", "a1", 1))
	q.Add(modelStart, older)
	if got, want := order(q, modelStart), "b-older a1 a2 b1"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
}

func TestBrokenTreesAreTakenApart(t *testing.T) {
	q := newTestQueue(8, Account{Name: "a", Parent: "b"}, Account{Name: "b", Parent: "a"}, Account{Name: "c", Parent: "nobody"}, Account{Name: "d", Parent: "d"})
	for _, account := range []string{"a", "b", "c", "d"} {
		if !q.Add(modelStart, testPod(account, account, 1)) {
			t.Errorf("account %s is not there", account)
		}
	}
	if got, want := order(q, modelStart), "a b c d"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
	if orphans := q.SetAccounts(modelStart, nil); len(orphans) != 0 {
		t.Errorf("pods that hold GPUs are orphans: %v", orphans)
	}
	if q.Add(modelStart, testPod("a", "late", 1)) {
		t.Error("a pod without an account is in the queue")
	}
}

// The time of a pick grows with the logarithm of the accounts.
func BenchmarkPick(b *testing.B) {
	for _, accounts := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprint(accounts), func(b *testing.B) {
			q := New(testOptions)
			var all []Account
			for i := range accounts {
				all = append(all, Account{Name: fmt.Sprintf("team-%05d", i), Parent: fmt.Sprintf("org-%02d", i%10), Weight: int64(1 + i%3)})
			}
			for i := range 10 {
				all = append(all, Account{Name: fmt.Sprintf("org-%02d", i)})
			}
			q.SetAccounts(modelStart, all)
			q.SetCapacity(modelStart, map[string]int64{"h100": 8000})
			for i := range accounts * 4 {
				q.Add(modelStart, testPod(fmt.Sprintf("team-%05d", i%accounts), fmt.Sprint(i), 1))
			}
			b.ResetTimer()
			for range b.N {
				next, _ := q.Next(modelStart)
				q.Take(modelStart, next.Pod)
				q.Free(modelStart, next.Pod.UID)
				q.Add(modelStart, next.Pod)
			}
		})
	}
}

func BenchmarkTick(b *testing.B) {
	q := New(testOptions)
	var all []Account
	for i := range 1000 {
		all = append(all, Account{Name: fmt.Sprintf("team-%05d", i)})
	}
	q.SetAccounts(modelStart, all)
	for i := range 10000 {
		q.Add(modelStart, testPod(fmt.Sprintf("team-%05d", i%1000), fmt.Sprint(i), 1))
	}
	now := modelStart
	for b.Loop() {
		now = now.Add(Tick)
		q.Advance(now)
	}
}
