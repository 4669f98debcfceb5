package turn

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Queue decides whose turn it is. It is not safe for use by several goroutines.
type Queue struct {
	options  Options
	accounts map[string]Account
	capacity map[string]int64

	root   *node
	leaves map[string]*node // by account
	// classes that are waited for or held, sorted.
	classes []string
	// averages of accounts' own pods, for every half-life that a comparison above them uses.
	averages  map[usageKey]*use
	halfLives []time.Duration

	items    map[string]*item
	holdings map[string]holding
	resting  sorted[*item]
	unfit    map[string]map[*item]bool    // by class
	buckets  map[string]map[Shape]*bucket // by account
	// sizes counts the pods in the queue by class and GPUs.
	sizes map[string]map[int64]int

	// begun is the group of which a pod was placed last: its turn lasts until none of it is ready, or one fails.
	begun string
	// woken counts the pods that became ready again after a failure.
	woken int64
	// freed is when GPUs of a class last became free.
	freed map[string]time.Time

	// now is the latest time that the queue was told, tick that of the latest tick.
	now, tick time.Time
}

// New returns an empty queue.
func New(options Options) *Queue {
	q := &Queue{
		options: options, accounts: map[string]Account{}, capacity: map[string]int64{},
		averages: map[usageKey]*use{}, sizes: map[string]map[int64]int{}, items: map[string]*item{}, holdings: map[string]holding{},
		buckets: map[string]map[Shape]*bucket{}, freed: map[string]time.Time{}, unfit: map[string]map[*item]bool{},
		resting: sorted[*item]{less: func(a, b *item) bool { return a.until.Before(b.until) }, index: func(i *item) *int { return &i.restingIndex }},
	}
	q.build()
	return q
}

// SetAccounts replaces all accounts. It returns the pods that no longer have one: they have left the queue.
func (q *Queue) SetAccounts(now time.Time, accounts []Account) (orphans []string) {
	q.Advance(now)
	q.accounts = make(map[string]Account, len(accounts))
	for _, a := range accounts {
		q.accounts[a.Name] = a
	}
	for uid, i := range q.items {
		if _, known := q.accounts[i.Account]; !known {
			orphans = append(orphans, uid)
			q.forget(i)
		}
	}
	q.build()
	slices.Sort(orphans)
	return orphans
}

// SetCapacity says how many GPUs of each class there are.
func (q *Queue) SetCapacity(now time.Time, gpus map[string]int64) {
	q.Advance(now)
	if maps.Equal(q.capacity, gpus) {
		return
	}
	q.capacity = maps.Clone(gpus)
	q.refresh()
}

// Same reports whether the pod is in the queue as it is, but for its shape.
func (q *Queue) Same(p Pod) bool {
	i := q.items[p.UID]
	if i == nil {
		return false
	}
	p.Shape = i.Shape
	return i.Pod == p
}

// Woken counts the pods that became ready again after they had failed: if it has grown, the next one may be another.
func (q *Queue) Woken() int64 { return q.woken }

// HalfLives are those that comparisons use, sorted: SetPast is to be told an average for each.
func (q *Queue) HalfLives() []time.Duration { return q.halfLives }

// SetPast replaces what accounts' own pods have used until at, which includes what they hold. Several
// of one account, class and half-life add up; whatever is not named is 0.
func (q *Queue) SetPast(at time.Time, past []Past) {
	q.Advance(at)
	for key, average := range q.averages {
		q.averages[key] = &use{inUse: average.inUse}
	}
	for _, p := range past {
		key := usageKey{p.Account, p.Class, p.HalfLife}
		average := q.averages[key]
		if average == nil {
			average = &use{}
			q.averages[key] = average
		}
		average.base += p.Average
		average.average += p.Average
		q.know(p.Class)
	}
	// Advance may have done nothing, if a tick was less than Tick ago: what was used since that tick is in the averages already.
	q.tick = at
	q.build()
}

// Advance brings the queue to a time: who has rested is ready, and once per Tick the averages follow. An earlier time changes nothing.
func (q *Queue) Advance(now time.Time) {
	if now.After(q.now) {
		q.now = now
	}
	for {
		first, some := q.resting.first()
		if !some || first.until.After(q.now) {
			break
		}
		q.wake(first)
	}
	since := q.now.Sub(q.tick)
	if since < Tick {
		return
	}
	if !q.tick.IsZero() {
		for key, average := range q.averages {
			average.advance(since, key.halfLife)
		}
		q.each(func(n *node) {
			for _, u := range n.uses {
				if n != q.root {
					u.advance(since, n.halfLife)
				}
			}
		})
	}
	q.tick = q.now
	q.refresh()
}

// each visits every node, children before parents.
func (q *Queue) each(visit func(*node)) {
	var walk func(*node)
	walk = func(n *node) {
		for _, child := range n.children {
			walk(child)
		}
		visit(n)
	}
	walk(q.root)
}

// know adds a class to those that have competitions.
func (q *Queue) know(class string) {
	if at, known := slices.BinarySearch(q.classes, class); !known {
		q.classes = slices.Insert(q.classes, at, class)
	}
}

// build makes the tree anew, from the accounts, the averages, what is held and what waits.
func (q *Queue) build() {
	q.root = newNode("", nil, nil, 0)
	q.leaves = make(map[string]*node, len(q.accounts))
	for account, shapes := range q.buckets {
		for shape, b := range shapes {
			fresh := newBucket(shape)
			fresh.blocker, fresh.blockedUntil = b.blocker, b.blockedUntil
			shapes[shape] = fresh
		}
		if _, known := q.accounts[account]; !known {
			delete(q.buckets, account)
		}
	}
	made := make(map[string]*node, len(q.accounts))
	names := slices.Sorted(maps.Keys(q.accounts))
	var makeAccount func(name string, depth int) *node
	makeAccount = func(name string, depth int) *node {
		if n := made[name]; n != nil {
			return n
		}
		account := q.accounts[name]
		parent, above := q.root, (*Account)(nil)
		if _, known := q.accounts[account.Parent]; known && account.Parent != name && depth < maxDepth && !q.circular(name) {
			parent = makeAccount(account.Parent, depth+1)
			above = parent.account
		}
		n := newNode(name, &account, parent, q.options.halfLife(above))
		made[name] = n
		own := newNode(name, nil, n, q.options.halfLife(&account))
		own.leaf = &leaf{owner: &account, lines: map[string]line{}, floorUse: map[floorKey]int64{}}
		q.leaves[name] = own
		return n
	}
	for _, name := range names {
		makeAccount(name, 0)
	}
	q.buildHalfLives()
	q.buildUses()
	for _, i := range q.items {
		i.leaf, i.index = q.leaves[i.Account], -1
		i.place = placeOf(&i.Pod, i.leaf.leaf.owner)
		if i.state == ready {
			q.enqueue(i)
		}
	}
	q.refresh()
}

// buildHalfLives collects the half-lives of the tree. One that was not in use begins with what another one says: both are averages
// of the same GPUs, until the next SetPast.
func (q *Queue) buildHalfLives() {
	q.halfLives = nil
	q.each(func(n *node) {
		if at, known := slices.BinarySearch(q.halfLives, n.halfLife); !known && n != q.root {
			q.halfLives = slices.Insert(q.halfLives, at, n.halfLife)
		}
	})
	old := q.averages
	q.averages = make(map[usageKey]*use, len(old))
	for _, key := range slices.SortedFunc(maps.Keys(old), compareKeys) {
		for _, halfLife := range q.halfLives {
			target := usageKey{key.account, key.class, halfLife}
			if exact := old[target]; exact != nil {
				q.averages[target] = exact
			} else if q.averages[target] == nil {
				other := *old[key]
				q.averages[target] = &other
			}
		}
	}
}

func compareKeys(a, b usageKey) int {
	return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.class, b.class), cmp.Compare(a.halfLife, b.halfLife))
}

// buildUses sums up what is held and was used, from the leaves to the root.
func (q *Queue) buildUses() {
	for _, h := range q.holdings {
		q.know(h.class)
		own := q.leaves[h.account]
		if own == nil {
			continue
		}
		for n := own; n != nil; n = n.parent {
			n.use(h.class).inUse += h.gpus
			n.total += h.gpus
		}
		if h.floor != "" {
			own.leaf.floorUse[floorKey{h.floor, h.class}] += h.gpus
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(q.averages), compareKeys) {
		q.know(key.class)
		for n := q.leaves[key.account]; n != nil && n != q.root; n = n.parent {
			if n.halfLife == key.halfLife {
				u := n.use(key.class)
				u.base += q.averages[key].base
				u.average += q.averages[key].average
			}
		}
	}
}

// circular reports whether an account is its own ancestor, or too deep.
func (q *Queue) circular(name string) bool {
	at := name
	for range maxDepth {
		at = q.accounts[at].Parent
		if _, known := q.accounts[at]; !known {
			return false
		}
		if at == name {
			return true
		}
	}
	return true
}
