package turn

import (
	"container/heap"
	"time"
)

// Turn is the pod that is next.
type Turn struct {
	Pod  Pod
	Tier Tier
	// Share of the account directly below the root that won, by its weight: 1 is all GPUs of a class at weight 1.
	Share float64
}

// Next is whose turn it is; false if nobody is ready whom no limit holds back. It changes nothing but what Advance does.
func (q *Queue) Next(now time.Time) (Turn, bool) {
	q.Advance(now)
	if i := q.rest(); i != nil {
		return Turn{Pod: i.Pod, Tier: q.tierOf(i.leaf.parent, i), Share: q.shareOf(i.leaf.parent)}, true
	}
	var best *entrant
	for _, class := range q.classes {
		if first, some := q.root.contest(class).first(); some && (best == nil || goesFirst(first, best)) {
			best = first
		}
	}
	if best == nil {
		return Turn{}, false
	}
	return Turn{Pod: best.pod.Pod, Tier: best.tier, Share: best.node.share}, true
}

// rest is the first ready pod of the group that has begun: with others between them, a group's pods would hold GPUs and wait for each
// other. What the group takes counts from its first pod on, so it pays with later turns.
func (q *Queue) rest() *item {
	if q.begun == "" {
		return nil
	}
	var first *item
	for _, i := range q.items {
		if i.Group != q.begun || i.state != ready || first != nil && first.before(i) {
			continue
		}
		if held, _ := q.heldBy(i); held == nil {
			first = i
		}
	}
	if first == nil {
		q.begun = ""
	}
	return first
}

// shareOf is the share of the class that the node has most of, by its weight. A class without GPUs is taken for one GPU.
func (q *Queue) shareOf(n *node) float64 {
	most := 0.0
	for class, u := range n.uses {
		most = max(most, (u.average+float64(u.inUse))/float64(max(q.capacity[class], 1)))
	}
	return most / n.weight
}

// shareWith is what is compared: the share halfway between without the pod and with it. An account's GPUs go up and down by its pods'
// sizes; compared by the low points, one with large pods would hold half a pod more than its share on average.
func (q *Queue) shareWith(n *node, i *item) float64 {
	with := float64(i.GPUs) / 2
	if u := n.uses[i.Class]; u != nil {
		with += u.average + float64(u.inUse)
	}
	return max(n.share, with/float64(max(q.capacity[i.Class], 1))/n.weight)
}

// tierOf a node, if the pod is next below it.
func (q *Queue) tierOf(n *node, i *item) Tier {
	if i.leaf.leaf.within(&i.Pod) {
		return Protected
	}
	// An account's own pods have the account's guarantee only through the account.
	if limit, limited := n.limit(i.Class); limited && n.inUse(i.Class)+i.GPUs <= limit.Guaranteed {
		return Guaranteed
	}
	if wait := i.leaf.leaf.owner.MaxWait; wait > 0 && n.total == 0 && i.Created.Add(wait).Before(q.tick) {
		return Starved
	}
	return Fair
}

// choose is the pod of a leaf that would be next: within a floor first, then by its place; none that a limit holds back.
func (q *Queue) choose(own *node, class string) *item {
	var best *item
	protected := false
	for _, size := range own.leaf.lines[class] {
		first, some := size.first()
		if !some {
			continue
		}
		i := first.items.members[0]
		if held, _ := q.heldBy(i); held != nil {
			continue
		}
		within := own.leaf.within(&i.Pod)
		if best == nil || within && !protected || within == protected && i.before(best) {
			best, protected = i, within
		}
	}
	return best
}

// heldBy is the lowest account whose limit holds a pod back, and the pod that has waited longer for that limit, if that is why.
func (q *Queue) heldBy(i *item) (*node, *item) {
	for n := i.leaf.parent; n != nil; n = n.parent {
		if limit, limited := n.limit(i.Class); limited && n.inUse(i.Class)+i.GPUs > limit.Guaranteed+limit.Borrowable {
			return n, nil
		}
		if claim := n.claims[i.Class]; claim != nil && !claim.besides(i) && claim.heldLonger(i) {
			return n, claim
		}
	}
	return nil, nil
}

// besides reports whether two pods ask for the same within one account: their order is the account's own, and a claim of either holds
// room for both.
func (i *item) besides(other *item) bool {
	return i.leaf == other.leaf && i.GPUs == other.GPUs && i.Floor == other.Floor
}

// heldLonger orders pods by how long limits hold them back. Of two that wait for each other's limits, the first is never stopped by
// the second's claim, so that they cannot block each other.
func (i *item) heldLonger(other *item) bool {
	switch {
	case other.heldSince.IsZero():
		return true
	case !i.heldSince.Equal(other.heldSince):
		return i.heldSince.Before(other.heldSince)
	}
	return i.UID < other.UID
}

// climb takes over what has changed at a leaf into the contests above it.
func (q *Queue) climb(own *node, class string) {
	next := q.choose(own, class)
	for n := own; n != q.root; n = n.parent {
		e, contest := n.entrant(class), n.parent.contest(class)
		if next == nil {
			contest.drop(e)
			e.pod = nil
		} else {
			e.pod, e.tier, e.share = next, q.tierOf(n, next), q.shareWith(n, next)
			contest.put(e)
		}
		next = nil
		if first, some := contest.first(); some {
			next = first.pod
		}
	}
}

// reconsider lets all leaves below an account choose again.
func (q *Queue) reconsider(n *node, class string) {
	if n.leaf != nil {
		q.climb(n, class)
		return
	}
	for _, child := range n.children {
		q.reconsider(child, class)
	}
}

// refresh makes all contests anew: after a tick all shares have moved.
func (q *Queue) refresh() {
	for account, shapes := range q.buckets {
		for shape, b := range shapes {
			if b.items.Len() == 0 && !q.now.Before(b.blockedUntil) {
				q.leaves[account].leaf.sizes(shape).drop(b)
				delete(shapes, shape)
				continue
			}
			q.leaves[account].leaf.settle(b, q.now)
		}
	}
	for _, own := range q.leaves {
		for class := range own.leaf.lines {
			q.claim(own, class)
		}
	}
	q.each(func(n *node) {
		n.share = q.shareOf(n)
		for _, class := range q.classes {
			var next *item
			if n.leaf != nil {
				next = q.choose(n, class)
			} else if contest := q.gather(n, class); contest != nil {
				if first, some := contest.first(); some {
					next = first.pod
				}
			}
			if next == nil && n.entrants[class] == nil {
				continue
			}
			e := n.entrant(class)
			e.pod, e.index = next, -1
			if next != nil {
				e.tier, e.share = q.tierOf(n, next), q.shareWith(n, next)
			}
		}
	})
}

// gather makes the contest of a node's children from their entrants; nil if it has never had any.
func (q *Queue) gather(n *node, class string) *sorted[*entrant] {
	contest := n.contests[class]
	if contest != nil {
		contest.members = contest.members[:0]
	}
	for _, child := range n.children {
		e := child.entrants[class]
		if e == nil || e.pod == nil {
			continue
		}
		if contest == nil {
			contest = n.contest(class)
		}
		e.index = len(contest.members)
		contest.members = append(contest.members, e)
	}
	if contest != nil {
		heap.Init(contest)
	}
	return contest
}

// claim notes which pods of a leaf limits hold back, and lets those that have waited for Patience no longer be overtaken. A claim
// lasts until its pod is placed or found to fit nowhere, also while there is room for a moment.
func (q *Queue) claim(own *node, class string) {
	for _, size := range own.leaf.lines[class] {
		first, some := size.first()
		if !some {
			continue
		}
		i := first.items.members[0]
		for n := own.parent; n != nil; n = n.parent {
			limit, limited := n.limit(class)
			if !limited || n.inUse(class)+i.GPUs <= limit.Guaranteed+limit.Borrowable || i.GPUs > limit.Guaranteed+limit.Borrowable {
				continue // there is room, or there never will be
			}
			if i.heldSince.IsZero() {
				i.heldSince = q.now
			}
			if q.now.Sub(i.heldSince) < q.options.Patience {
				continue
			}
			if other := n.claims[class]; other == nil || other != i && i.heldLonger(other) {
				n.claims[class] = i
			}
		}
	}
}

// Wake is the time at which Next may answer otherwise although nothing has happened: when the next resting pod is ready.
func (q *Queue) Wake() (time.Time, bool) {
	if first, some := q.resting.first(); some {
		return first.until, true
	}
	return time.Time{}, false
}
