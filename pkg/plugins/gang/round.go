package gang

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Round is one try to place a gang.
type Round struct {
	gang Group
	// needed is how many members close it.
	needed int
	opened time.Time
	// until is when it is given up.
	until time.Time
	// shapes are those of the pending members, the shape of each by its pod's UID; nil where kube-scheduler itself places the gang.
	shapes  []shape
	shapeOf map[types.UID]int
	nodes   map[string]int // indices into shapes' may, by name
	scarce  []corev1.ResourceName

	decided chan struct{} // closed when members is final

	// Those below belong to rounds.mu until decided is closed.
	state    roundState
	reserved []*corev1.Pod
	members  []types.UID
	// kept are pods of others that were kept off a node for it.
	kept map[types.UID]*corev1.Pod
}

type roundState int

const (
	collecting roundState = iota
	admitted
	givenUp
)

// Decided is closed when it is known who goes together, or that nobody does.
func (r *Round) Decided() <-chan struct{} { return r.decided }

// Members are the pods that go together, in the order in which they got their nodes; none if the round was given up. It
// may be called once Decided is closed.
func (r *Round) Members() []types.UID { return r.members }

// rounds are all gangs' affairs. Its methods decide; the plugin carries out what they return.
type rounds struct {
	mu     sync.Mutex
	byGang map[string]*affair
}

// affair is what is remembered of one gang.
type affair struct {
	round *Round // collecting; nil if none is
	// flying were admitted and are not yet seen bound.
	flying map[types.UID]bool
	// waitsSince is when it was first refused or tried, zero once it is whole.
	waitsSince time.Time
	asks       Waiting
	// failures are rounds given up in a row; no new one is opened before restUntil.
	failures  int
	restUntil time.Time
	// blockedBy is the gang whose round kept it from opening one; empty if none did.
	blockedBy string
	// why is the latest refusal; it was true of the cluster when changes had this number.
	why      string
	whyAt    time.Time
	whyAfter int64
	// told: members may say how many exist; see PreEnqueue.
	told map[types.UID]bool
	// asked are the members that were asked to say so, when there were askedCount.
	asked      map[types.UID]bool
	askedCount int
	// hushed: members wait outside the queue until enough exist. kube-scheduler has no event for a pod that is made, unless its own gang
	// scheduling is on.
	hushed bool
}

// A gang that failed is left alone for a while: what it found free went to somebody else, or a filter that looks at pods together
// (anti-affinity, spreading) lets fewer of them go than the resources do. Doubling lets others have their turn; the most is what a person
// who looks at it does not mind.
const (
	firstRest = time.Second
	mostRest  = 30 * time.Second
)

func newRounds() *rounds { return &rounds{byGang: map[string]*affair{}} }

// of returns a gang's affair; mu is held.
func (rs *rounds) of(key string) *affair {
	a := rs.byGang[key]
	if a == nil {
		a = &affair{flying: map[types.UID]bool{}}
		rs.byGang[key] = a
	}
	return a
}

// underWay are the members of admitted rounds that are not yet seen bound, as a new map.
func (rs *rounds) underWay(key string) map[types.UID]bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	flying := map[types.UID]bool{}
	if a := rs.byGang[key]; a != nil {
		for uid := range a.flying {
			flying[uid] = true
		}
	}
	return flying
}

// running is the gang's open round, nil if it has none.
func (rs *rounds) running(key string) *Round {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a := rs.byGang[key]; a != nil {
		return a.round
	}
	return nil
}

// hindrance is why a gang may not open a round now, without a look at the nodes; empty if it may.
func (rs *rounds) hindrance(g Group, scarce []corev1.ResourceName, now time.Time, changes int64) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.of(g.Key)
	if a.waitsSince.IsZero() {
		a.waitsSince = now
	}
	if now.Before(a.restUntil) {
		return a.why
	}
	if other := rs.collecting(g.Key, scarce); other != nil {
		a.blockedBy = other.gang.Key
		a.why, a.whyAt, a.whyAfter = fmt.Sprintf("Gang: %s waits its turn while %s takes its nodes (%d of %d pods have one)",
			g.Title, other.gang.Title, len(other.reserved), other.needed), time.Time{}, changes
		return a.why
	}
	if a.why != "" && a.whyAfter == changes && now.Before(a.whyAt.Add(staleAfter)) {
		return a.why // its other members just heard the same
	}
	return ""
}

// staleAfter is how long a look at all nodes is believed while no event says that they have changed: a second's sweep finds what no
// event told.
const staleAfter = time.Second

// collecting is an open round of another gang that asks for any of the same scarce resources, or like this one for none.
func (rs *rounds) collecting(except string, scarce []corev1.ResourceName) *Round {
	for key, a := range rs.byGang {
		if key == except || a.round == nil || a.round.shapes == nil {
			continue
		}
		if len(scarce) == 0 && len(a.round.scarce) == 0 || slices.ContainsFunc(scarce, func(name corev1.ResourceName) bool { return slices.Contains(a.round.scarce, name) }) {
			return a.round
		}
	}
	return nil
}

// refuse remembers why a gang that was looked at does not fit.
func (rs *rounds) refuse(g Group, why string, asks Waiting, now time.Time, changes int64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.of(g.Key)
	a.why, a.whyAt, a.whyAfter, a.blockedBy = why, now, changes, ""
	asks.Since = a.waitsSince
	a.asks = asks
}

// open begins a round.
func (rs *rounds) open(r *Round, now time.Time, timeout time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.opened, r.until, r.decided, r.kept = now, now.Add(timeout), make(chan struct{}), map[types.UID]*corev1.Pod{}
	a := rs.of(r.gang.Key)
	if a.waitsSince.IsZero() {
		a.waitsSince = now
	}
	a.round, a.why, a.blockedBy = r, "", ""
}

// join counts a member that has a node; false if the round is over.
func (rs *rounds) join(r *Round, pod *corev1.Pod) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.state != collecting {
		return false
	}
	r.reserved = append(r.reserved, pod)
	return true
}

// admit closes a round whose members all have a node, and returns how long the gang waited; false if it is not that far.
func (rs *rounds) admit(r *Round, now time.Time) (waited time.Duration, closed bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.state != collecting || len(r.reserved) < r.needed {
		return 0, r.state == admitted
	}
	a := rs.of(r.gang.Key)
	for _, pod := range r.reserved {
		r.members = append(r.members, pod.UID)
		a.flying[pod.UID] = true
	}
	waited = now.Sub(a.waitsSince)
	r.state, a.round, a.failures, a.waitsSince, a.asks, a.askedCount = admitted, nil, 0, time.Time{}, Waiting{}, 0
	close(r.decided)
	return waited, true
}

// leave is a member that gives its node back. If the round still collects it is given up; the others are returned.
func (rs *rounds) leave(r *Round, uid types.UID, now time.Time, why string) (others []*corev1.Pod, gaveUp bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a := rs.byGang[r.gang.Key]; a != nil {
		delete(a.flying, uid)
	}
	if r.state != collecting {
		return nil, false
	}
	return rs.giveUp(r, now, why), true
}

// abandon gives a round up that still collects, and returns who has a node in it.
func (rs *rounds) abandon(r *Round, now time.Time, why string) (members []*corev1.Pod, gaveUp bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.state != collecting {
		return nil, false
	}
	return rs.giveUp(r, now, why), true
}

func (rs *rounds) giveUp(r *Round, now time.Time, why string) []*corev1.Pod {
	a := rs.of(r.gang.Key)
	r.state = givenUp
	close(r.decided)
	if a.round == r {
		a.round = nil
	}
	a.why, a.whyAt = why, now
	if r.shapes != nil { // else kube-scheduler's own queue lets it rest
		a.restUntil = now.Add(min(mostRest, firstRest<<min(a.failures, 10)))
		a.failures++
	}
	return r.reserved
}

// overdue are the rounds whose time is over.
func (rs *rounds) overdue(now time.Time) (late []*Round) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, a := range rs.byGang {
		if a.round != nil && !now.Before(a.round.until) {
			late = append(late, a.round)
		}
	}
	return late
}

// has is how many members have a node in the round.
func (rs *rounds) has(r *Round) int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(r.reserved)
}

// Waiting is a gang that does not fit now.
type Waiting struct {
	Key, Title string
	// Together is how many pods it has to place at once, Each what one of them asks for at most (CPU in thousandths).
	Together int
	Each     map[corev1.ResourceName]int64
	// Priority is its pods' highest, Since when it first asked.
	Priority int32
	Since    time.Time
}

// waiting are the gangs that were looked at and do not fit.
func (rs *rounds) waiting() (all []Waiting) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, a := range rs.byGang {
		if a.asks.Together > 0 && a.round == nil {
			all = append(all, a.asks)
		}
	}
	slices.SortFunc(all, func(a, b Waiting) int { return a.Since.Compare(b.Since) })
	return all
}

// Waiting are the gangs that do not fit now, the longest waiting first: for whoever keeps room for them.
func (gs *Groups) Waiting() []Waiting { return gs.rounds.waiting() }
