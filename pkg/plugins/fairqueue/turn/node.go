package turn

import (
	"slices"
	"time"
)

// node is an account, the root, or an account's own pods: every account has a node below it for these, beside those of the accounts
// under it, so that pods only ever hang on leaves.
type node struct {
	// name of the account; that of an account's own pods, too.
	name string
	// account is nil for the root and for leaves.
	account  *Account
	parent   *node
	children []*node
	weight   float64
	// halfLife of comparisons among the siblings.
	halfLife time.Duration

	uses map[string]*use
	// total of all classes' GPUs held.
	total int64
	// share of the class that the node has most of, by its weight.
	share float64

	// contests among the children, by class.
	contests map[string]*sorted[*entrant]
	// entrants of this node in its parent's contests, by class.
	entrants map[string]*entrant

	// claims of pods that wait behind this account's limit and are not to be overtaken any longer, by class.
	claims map[string]*item
	// leaf is nil but for leaves.
	leaf *leaf
}

// entrant takes part in a contest, for the pod that would be next below it.
type entrant struct {
	node *node
	pod  *item
	tier Tier
	// share of the node with half of the pod's GPUs; see shareWith.
	share float64
	index int
}

// goesFirst is the order among siblings; see the package documentation.
func goesFirst(a, b *entrant) bool {
	switch {
	case a.tier != b.tier:
		return a.tier < b.tier
	case a.share != b.share:
		return a.share < b.share
	case a.pod.place != b.pod.place:
		return a.pod.place < b.pod.place
	case a.node.name != b.node.name:
		return a.node.name < b.node.name
	}
	return a.node.leaf != nil && b.node.leaf == nil
}

func newNode(name string, account *Account, parent *node, halfLife time.Duration) *node {
	n := &node{
		name: name, account: account, parent: parent, weight: 1, halfLife: halfLife,
		uses: map[string]*use{}, contests: map[string]*sorted[*entrant]{}, entrants: map[string]*entrant{}, claims: map[string]*item{},
	}
	if account != nil {
		n.weight = float64(max(account.Weight, 1))
	}
	if parent != nil {
		parent.children = append(parent.children, n)
	}
	return n
}

func (n *node) use(class string) *use {
	u := n.uses[class]
	if u == nil {
		u = &use{}
		n.uses[class] = u
	}
	return u
}

// inUse is what is held of a class now.
func (n *node) inUse(class string) int64 {
	if u := n.uses[class]; u != nil {
		return u.inUse
	}
	return 0
}

// limit of the account on a class.
func (n *node) limit(class string) (Limit, bool) {
	if n.account == nil {
		return Limit{}, false
	}
	l, limited := n.account.Limits[class]
	return l, limited
}

// contest among the children.
func (n *node) contest(class string) *sorted[*entrant] {
	c := n.contests[class]
	if c == nil {
		c = &sorted[*entrant]{less: goesFirst, index: func(e *entrant) *int { return &e.index }}
		n.contests[class] = c
	}
	return c
}

// entrant of this node in its parent's contest.
func (n *node) entrant(class string) *entrant {
	e := n.entrants[class]
	if e == nil {
		e = &entrant{node: n, index: -1}
		n.entrants[class] = e
	}
	return e
}

// leaf holds an account's own pods.
type leaf struct {
	owner *Account
	// lines of waiting pods by class.
	lines map[string]line
	// floorUse is what the pods of each floor hold.
	floorUse map[floorKey]int64
}

type floorKey struct{ name, class string }

// line are the ready pods of one class, by what a limit distinguishes.
type line map[sizeKey]*sorted[*bucket]

type sizeKey struct {
	gpus  int64
	floor string
}

// bucket holds the ready pods that look alike, unless one of them has lately been found to fit nowhere.
type bucket struct {
	shape Shape
	items sorted[*item]
	// blockedUntil is when the next of them may be tried; blocker has to be Ready or gone for that to be earlier.
	blockedUntil time.Time
	blocker      string
	index        int // in its size's heap, -1 while it has no ready pod or is blocked
}

// Shape identifies pods that look alike, within one account.
type Shape struct {
	Class, Floor string
	GPUs         int64
	Shape        uint64
}

func shapeOf(p *Pod) Shape {
	return Shape{Class: p.Class, Floor: p.Floor, GPUs: p.GPUs, Shape: p.Shape}
}

func newBucket(shape Shape) *bucket {
	return &bucket{
		shape: shape, index: -1,
		items: sorted[*item]{less: (*item).before, index: func(i *item) *int { return &i.index }},
	}
}

// sizes are the heaps of the line's buckets.
func (l *leaf) sizes(shape Shape) *sorted[*bucket] {
	in := l.lines[shape.Class]
	if in == nil {
		in = line{}
		l.lines[shape.Class] = in
	}
	key := sizeKey{shape.GPUs, shape.Floor}
	if in[key] == nil {
		in[key] = &sorted[*bucket]{
			less:  func(a, b *bucket) bool { return a.items.members[0].before(b.items.members[0]) },
			index: func(b *bucket) *int { return &b.index },
		}
	}
	return in[key]
}

// settle puts a bucket where it belongs after a change of it.
func (l *leaf) settle(b *bucket, now time.Time) {
	heap := l.sizes(b.shape)
	if b.items.Len() == 0 || now.Before(b.blockedUntil) {
		heap.drop(b)
		return
	}
	heap.put(b)
}

// floor of the account's own pods; 0 if there is none of that name and class.
func (l *leaf) floor(key floorKey) int64 {
	at := slices.IndexFunc(l.owner.Floors, func(f Floor) bool { return f.Name == key.name && f.Class == key.class })
	if at < 0 {
		return 0
	}
	return l.owner.Floors[at].GPUs
}

// within reports whether the pod belongs to a floor that is not used up with it.
func (l *leaf) within(p *Pod) bool {
	if p.Floor == "" {
		return false
	}
	key := floorKey{p.Floor, p.Class}
	return l.floorUse[key]+p.GPUs <= l.floor(key)
}
