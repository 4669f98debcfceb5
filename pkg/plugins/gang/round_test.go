package gang

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func member(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
}

// allocator is the cluster of a random history: nodes' GPUs, and what each gang's members hold in memory.
type allocator struct {
	*rapid.T
	rs   *rounds
	now  time.Time
	free int
	// held is what members of collecting rounds hold, by gang; placed what admitted ones do.
	held, placed map[string]int
	gangs        []Group
	rounds       map[string]*Round
	made         int
}

// attempt is one scheduling cycle of a member of a gang: what PreFilter, Reserve and Permit do with one GPU each.
func (a *allocator) attempt(g Group) {
	r := a.rs.running(g.Key)
	if r == nil {
		scarce := []corev1.ResourceName{gpu}
		if a.rs.hindrance(g, scarce, a.now, int64(a.made)) != "" {
			return
		}
		if a.free < g.Min {
			a.rs.refuse(g, "does not fit", Waiting{Together: g.Min}, a.now, int64(a.made))
			return
		}
		r = &Round{gang: g, needed: g.Min, shapes: []shape{{}}, scarce: scarce}
		a.rs.open(r, a.now, 10*time.Second)
		a.rounds[g.Key] = r
	}
	if a.free == 0 { // somebody was faster: PostFilter
		a.abandon(r)
		return
	}
	a.made++
	if !a.rs.join(r, member(fmt.Sprintf("%s-%d", g.Key, a.made))) {
		a.Fatalf("a running round of %s lets nobody join", g.Key)
	}
	a.free--
	a.held[g.Key]++
	if _, closed := a.rs.admit(r, a.now); closed {
		if a.held[g.Key] != g.Min || len(r.Members()) != g.Min {
			a.Fatalf("%d of %d members of %s go, %d have a node", len(r.Members()), g.Min, g.Key, a.held[g.Key])
		}
		a.placed[g.Key] += a.held[g.Key]
		a.held[g.Key] = 0
		delete(a.rounds, g.Key)
	}
}

func (a *allocator) abandon(r *Round) {
	members, gaveUp := a.rs.abandon(r, a.now, "given up")
	if !gaveUp {
		a.Fatalf("a collecting round of %s cannot be given up", r.gang.Key)
	}
	if len(members) != a.held[r.gang.Key] || r.Members() != nil {
		a.Fatalf("%d members give back, %d hold, %v go", len(members), a.held[r.gang.Key], r.Members())
	}
	a.free += len(members)
	a.held[r.gang.Key] = 0
	delete(a.rounds, r.gang.Key)
}

// check: all or none, and nobody waits for whom somebody else holds.
func (a *allocator) check() {
	holders := 0
	for _, g := range a.gangs {
		if a.held[g.Key] > 0 {
			holders++
		}
		if a.placed[g.Key]%g.Min != 0 {
			a.Fatalf("%d of gangs of %d of %s are placed", a.placed[g.Key], g.Min, g.Key)
		}
		if a.rounds[g.Key] == nil && a.held[g.Key] > 0 {
			a.Fatalf("%s holds %d without a round", g.Key, a.held[g.Key])
		}
	}
	if holders > 1 {
		a.Fatalf("%d gangs hold a part each: %v", holders, a.held)
	}
}

// Random interleavings of members, of pods of others, of members that leave and of time. Whatever happens, at most one gang holds a part
// of what it needs; and once the others leave them alone, every gang that fits is placed: no deadlock, and no starvation by each other.
func TestNoTwoGangsHoldAPartEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &allocator{T: t, rs: newRounds(), now: start, held: map[string]int{}, placed: map[string]int{}, rounds: map[string]*Round{}}
		a.free = rapid.IntRange(4, 16).Draw(t, "GPUs")
		for i := range rapid.IntRange(2, 4).Draw(t, "gangs") {
			a.gangs = append(a.gangs, Group{Key: fmt.Sprintf("g%d", i), Min: rapid.IntRange(1, min(8, a.free)).Draw(t, "members")})
		}
		others := 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			g := rapid.SampledFrom(a.gangs).Draw(t, "gang")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0: // a pod of somebody else, that no shield stopped
				if a.free > 0 {
					a.free--
					others++
				}
			case 1:
				a.free += others
				others = 0
			case 2:
				if r := a.rounds[g.Key]; r != nil && len(r.reserved) > 0 { // a member is deleted
					left, gaveUp := a.rs.leave(r, r.reserved[0].UID, a.now, "deleted")
					if !gaveUp || len(left) != a.held[g.Key] {
						t.Fatalf("%d give back", len(left))
					}
					a.free += len(left)
					a.held[g.Key] = 0
					delete(a.rounds, g.Key)
				}
			case 3:
				a.now = a.now.Add(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second)
				for _, r := range a.rs.overdue(a.now) {
					a.abandon(r)
				}
			case 4: // a placed gang ends
				a.free += a.placed[g.Key]
				a.placed[g.Key] = 0
			default:
				a.attempt(g)
			}
			a.check()
		}
		a.free += others
		for _, g := range a.gangs {
			a.free += a.placed[g.Key]
			a.placed[g.Key] = 0
		}
		// Everybody tries in turn, and time passes: each is placed, one after the other where two do not fit.
		for _, want := range a.gangs {
			for round := 0; a.placed[want.Key] == 0; round++ {
				if round > 1000 {
					t.Fatalf("%s of %d never runs; %d GPUs are free, %v held", want.Key, want.Min, a.free, a.held)
				}
				for _, g := range a.gangs {
					a.attempt(g)
					a.check()
				}
				a.now = a.now.Add(time.Second)
				for _, r := range a.rs.overdue(a.now) {
					a.abandon(r)
				}
				for _, g := range a.gangs {
					if g.Key != want.Key && a.placed[g.Key] > 0 {
						a.free += a.placed[g.Key]
						a.placed[g.Key] = 0
					}
				}
			}
			a.free += a.placed[want.Key]
		}
	})
}

// A gang that failed rests, twice as long each time, and not longer than mostRest.
func TestRestDoubles(t *testing.T) {
	rs, g, now := newRounds(), Group{Key: "g", Title: "Job team/g", Min: 2}, start
	for failure, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		if why := rs.hindrance(g, nil, now, 0); why != "" {
			t.Fatalf("after %d failures: %s", failure, why)
		}
		r := &Round{gang: g, needed: 2, shapes: []shape{{}}}
		rs.open(r, now, time.Minute)
		rs.abandon(r, now, "no node")
		if rs.hindrance(g, nil, now.Add(want-time.Millisecond), 0) != "no node" {
			t.Errorf("after %d failures it rests less than %v", failure+1, want)
		}
		now = now.Add(want)
		if !rs.rested("g", now) || rs.rested("g", now) {
			t.Errorf("the end of rest %d is not told once", failure+1)
		}
	}
}

// What a look found is believed until an event, or a second.
func TestALookIsBelievedForASecond(t *testing.T) {
	rs, g := newRounds(), Group{Key: "g", Title: "Job team/g", Min: 2}
	rs.hindrance(g, nil, start, 7)
	rs.refuse(g, "too large", Waiting{Key: "g", Together: 2}, start, 7)
	for _, each := range []struct {
		after   time.Duration
		changes int64
		want    string
	}{{0, 7, "too large"}, {999 * time.Millisecond, 7, "too large"}, {0, 8, ""}, {time.Second, 7, ""}} {
		if got := rs.hindrance(g, nil, start.Add(each.after), each.changes); got != each.want {
			t.Errorf("after %v and %d changes: %q", each.after, each.changes-7, got)
		}
	}
	if waiting := rs.waiting(); len(waiting) != 1 || !waiting[0].Since.Equal(start) {
		t.Errorf("waiting are %+v", waiting)
	}
}

// Gangs that ask for other resources do not wait for each other, those without any extended ones do.
func TestTurns(t *testing.T) {
	rs := newRounds()
	first := Group{Key: "a", Title: "Job team/a", Min: 2}
	r := &Round{gang: first, needed: 2, shapes: []shape{{}}, scarce: []corev1.ResourceName{gpu}}
	rs.open(r, start, time.Minute)
	rs.join(r, member("a-0"))
	other := Group{Key: "b", Title: "Job team/b", Min: 2}
	if got, want := rs.hindrance(other, []corev1.ResourceName{gpu}, start, 0), "Gang: Job team/b waits its turn while Job team/a takes its nodes (1 of 2 pods have one)"; got != want {
		t.Errorf("%q", got)
	}
	for _, scarce := range [][]corev1.ResourceName{nil, {"amd.com/gpu"}} {
		if got := rs.hindrance(Group{Key: "c", Min: 2}, scarce, start, 0); got != "" {
			t.Errorf("%v: %q", scarce, got)
		}
	}
	rs.join(r, member("a-1"))
	if _, closed := rs.admit(r, start); !closed {
		t.Fatal("a full round is not closed")
	}
	if keys, _ := rs.unblock(r); len(keys) != 1 || keys[0] != "b" {
		t.Errorf("woken are %v", keys)
	}
	if got := rs.hindrance(other, []corev1.ResourceName{gpu}, start, 0); got != "" {
		t.Errorf("after its turn: %q", got)
	}
}
