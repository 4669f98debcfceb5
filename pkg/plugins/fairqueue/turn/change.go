package turn

import (
	"slices"
	"time"
)

// Limits on trying again a pod that fitted nowhere; they are kube-scheduler's own. GPUs of its class that become free end the pause.
const (
	firstPause = time.Second
	maxPause   = 10 * time.Second
)

// pause after so many failures in a row.
func pause(failures int) time.Duration {
	return min(maxPause, firstPause<<min(max(failures-1, 0), 10))
}

// Add puts a pod into the queue, ready, or takes over its new state. It reports whether there is such an account; if not, the
// pod is not in the queue.
func (q *Queue) Add(now time.Time, p Pod) bool {
	q.Advance(now)
	own := q.leaves[p.Account]
	old := q.items[p.UID]
	if old != nil && own != nil && old.Pod == p {
		return true
	}
	unfit := old != nil && old.unfit
	if old != nil {
		q.leave(old)
		q.forget(old)
	}
	if own == nil {
		return false
	}
	i := &item{Pod: p, place: placeOf(&p, own.leaf.owner), leaf: own, index: -1, restingIndex: -1}
	if old != nil {
		i.state, i.failures, i.failedAt = old.state, old.failures, old.failedAt
		if i.state == resting {
			i.state = parked
		}
		i.room = old.room
		q.markUnfit(i, unfit)
	}
	q.items[p.UID] = i
	if q.sizes[p.Class] == nil {
		q.sizes[p.Class] = map[int64]int{}
	}
	q.sizes[p.Class][p.GPUs]++
	q.know(p.Class)
	if i.state == ready {
		q.enqueue(i)
		q.climb(own, p.Class)
	}
	return true
}

// Remove takes a pod out of the queue; what it holds stays. One that is not there is nothing.
func (q *Queue) Remove(now time.Time, uid string) {
	q.Advance(now)
	if i := q.items[uid]; i != nil {
		q.leave(i)
		q.forget(i)
	}
}

// Has reports whether the pod is in the queue.
func (q *Queue) Has(uid string) bool { return q.items[uid] != nil }

// Park keeps a pod from being next until Ready.
func (q *Queue) Park(now time.Time, uid string) {
	q.Advance(now)
	if i := q.items[uid]; i != nil {
		q.leave(i)
		i.state, i.heldSince = parked, time.Time{}
	}
}

// Fail says that the pod was tried and cannot be placed now: it is parked. If it is for a reason that pods which look alike share, none
// of them is tried until this one is Ready or gone, or Options.ShapeRetry has passed. room is on how many nodes there were as many free GPUs as
// it asks for; see Rouse.
func (q *Queue) Fail(now time.Time, uid string, alike bool, room int) {
	q.Advance(now)
	i := q.items[uid]
	if i == nil {
		return
	}
	if i.Group == q.begun {
		q.begun = ""
	}
	q.leave(i)
	i.state, i.failures, i.failedAt, i.heldSince = parked, i.failures+1, now, time.Time{}
	if !alike { // whoever refused it knows when it may be tried again; the shortest pause is enough
		i.failures = 1
		return
	}
	i.room = room
	q.markUnfit(i, true)
	b := q.bucket(i)
	b.blocker, b.blockedUntil = uid, now.Add(q.options.ShapeRetry)
	i.leaf.leaf.settle(b, q.now)
	q.climb(i.leaf, i.Class)
	for _, other := range b.items.members {
		q.unclaim(other)
	}
}

// Rouse makes those pods of a class ready that fitted nowhere when fewer nodes than now had as many free GPUs as they ask for, whatever
// their pauses. It is asked before a pod is placed: others learn of GPUs that become free from elsewhere, in no order, and who learned
// of it first would have what is another's turn.
func (q *Queue) Rouse(now time.Time, class string, room func(gpus int64) int) {
	q.Advance(now)
	var roused []*item
	for i := range q.unfit[class] {
		if room(i.GPUs) > i.room {
			roused = append(roused, i)
		}
	}
	for _, i := range roused {
		q.wake(i)
	}
}

// Ready says that the pod may be tried: when the pause after its latest failure is over, or at once if GPUs of its class have become free
// since.
func (q *Queue) Ready(now time.Time, uid string) {
	q.Advance(now)
	i := q.items[uid]
	if i == nil || i.state != parked {
		return
	}
	i.until = i.failedAt.Add(pause(i.failures))
	freed, some := q.freed[i.Class]
	called := i.Group != "" && i.Group == q.begun // the others of its group have nodes, and wait for it
	if i.failures > 0 && q.now.Before(i.until) && (!some || freed.Before(i.failedAt)) && !called {
		i.state = resting
		q.resting.put(i)
		return
	}
	q.wake(i)
}

// Take says that the pod holds GPUs from now on: it leaves the queue. Who holds them already goes on to.
func (q *Queue) Take(now time.Time, p Pod) {
	q.Advance(now)
	if i := q.items[p.UID]; i != nil {
		q.leave(i)
		q.forget(i)
		if q.begun = i.Group; q.begun != "" {
			for _, other := range slices.Clone(q.resting.members) {
				if other.Group == q.begun {
					q.wake(other)
				}
			}
		}
	}
	if _, holds := q.holdings[p.UID]; holds {
		return
	}
	h := holding{account: p.Account, class: p.Class, floor: p.Floor, gpus: p.GPUs}
	q.holdings[p.UID] = h
	q.change(h, h.gpus)
}

// Holds reports whether the pod holds GPUs.
func (q *Queue) Holds(uid string) bool {
	_, holds := q.holdings[uid]
	return holds
}

// Free says that the pod holds its GPUs no longer. Pods of the class that pause after a failure are ready.
func (q *Queue) Free(now time.Time, uid string) {
	q.Advance(now)
	h, holds := q.holdings[uid]
	if !holds {
		return
	}
	delete(q.holdings, uid)
	q.freed[h.class] = now
	q.change(h, -h.gpus)
	var rested []*item
	for _, i := range q.resting.members {
		if i.Class == h.class {
			rested = append(rested, i)
		}
	}
	for _, i := range rested {
		q.wake(i)
	}
}

// change what an account's own pods hold.
func (q *Queue) change(h holding, gpus int64) {
	q.know(h.class)
	since := q.now.Sub(q.tick)
	for _, halfLife := range q.halfLives {
		key := usageKey{h.account, h.class, halfLife}
		if q.averages[key] == nil {
			q.averages[key] = &use{}
		}
		q.averages[key].change(gpus, since, halfLife)
	}
	own := q.leaves[h.account]
	if own == nil {
		return
	}
	if h.floor != "" {
		own.leaf.floorUse[floorKey{h.floor, h.class}] += gpus
	}
	var tight []*node
	for n := own; n != nil; n = n.parent {
		u := n.use(h.class)
		before := u.inUse
		n.total += gpus
		if n == q.root {
			u.inUse += gpus
			continue
		}
		u.change(gpus, since, n.halfLife)
		n.share = q.shareOf(n)
		if limit, limited := n.limit(h.class); limited && limit.Guaranteed+limit.Borrowable-max(before, u.inUse) < q.largest(h.class) {
			tight = append(tight, n)
		}
	}
	for _, class := range q.classes {
		q.climb(own, class)
	}
	for _, n := range tight {
		q.reconsider(n, h.class)
	}
}

// largest number of GPUs that a pod in the queue asks of a class.
func (q *Queue) largest(class string) int64 {
	var most int64
	for gpus := range q.sizes[class] {
		most = max(most, gpus)
	}
	return most
}

// wake makes a pod ready.
func (q *Queue) wake(i *item) {
	q.resting.drop(i)
	q.markUnfit(i, false)
	q.woken++
	i.state = ready
	q.enqueue(i)
	q.climb(i.leaf, i.Class)
}

// markUnfit notes whether a pod waits since it fitted nowhere.
func (q *Queue) markUnfit(i *item, unfit bool) {
	if i.unfit = unfit; !unfit {
		delete(q.unfit[i.Class], i)
		return
	}
	if q.unfit[i.Class] == nil {
		q.unfit[i.Class] = map[*item]bool{}
	}
	q.unfit[i.Class][i] = true
}

// enqueue puts a ready pod among those that look alike.
func (q *Queue) enqueue(i *item) {
	b := q.bucket(i)
	b.items.put(i)
	if b.blocker == i.UID {
		b.blocker, b.blockedUntil = "", time.Time{}
	}
	i.leaf.leaf.settle(b, q.now)
}

// leave takes a pod from where it waits, if it is there, and gives up what it keeps from others.
func (q *Queue) leave(i *item) {
	q.resting.drop(i)
	q.markUnfit(i, false)
	b := q.bucket(i)
	b.items.drop(i)
	if b.blocker == i.UID {
		b.blocker, b.blockedUntil = "", time.Time{}
	}
	i.leaf.leaf.settle(b, q.now)
	q.climb(i.leaf, i.Class)
	q.unclaim(i)
}

// unclaim gives up what a pod keeps from others under the limits that held it back.
func (q *Queue) unclaim(i *item) {
	for n := i.leaf; n != nil; n = n.parent {
		if n.claims[i.Class] == i {
			delete(n.claims, i.Class)
			q.reconsider(n, i.Class)
		}
	}
}

// forget drops a pod that has left.
func (q *Queue) forget(i *item) {
	q.resting.drop(i)
	q.markUnfit(i, false)
	delete(q.items, i.UID)
	if q.sizes[i.Class][i.GPUs]--; q.sizes[i.Class][i.GPUs] == 0 {
		delete(q.sizes[i.Class], i.GPUs)
	}
}

// bucket of the pods that look like this one.
func (q *Queue) bucket(i *item) *bucket {
	of := q.buckets[i.Account]
	if of == nil {
		of = map[Shape]*bucket{}
		q.buckets[i.Account] = of
	}
	shape := shapeOf(&i.Pod)
	if of[shape] == nil {
		of[shape] = newBucket(shape)
	}
	return of[shape]
}
