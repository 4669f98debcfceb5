package turn

import (
	"fmt"
	"strconv"
	"time"
)

// The words that explanations begin with.
const (
	ByQuota = "Quota"
	ByTurn  = "Turn"
)

// Explain says what a pod in the queue waits for, beginning with ByQuota or ByTurn, with the numbers; empty for one that is not in the
// queue, or waits for something else first.
func (q *Queue) Explain(uid string) string {
	i := q.items[uid]
	if i == nil || i.state != ready {
		return ""
	}
	if text := q.quota(i); text != "" {
		return ByQuota + ": " + text
	}
	if b := q.bucket(i); q.now.Before(b.blockedUntil) && q.items[b.blocker] != nil {
		return fmt.Sprintf("%s: another pod of account %s that asks for the same fitted nowhere, and is tried again first", ByTurn, i.Account)
	}
	return ByTurn + ": " + q.turn(i)
}

// Quota says which limit holds a pod back that may or may not be in the queue; empty if none does.
func (q *Queue) Quota(p Pod) string {
	i := q.items[p.UID]
	if i == nil {
		i = &item{Pod: p, leaf: q.leaves[p.Account]}
	}
	if i.leaf == nil {
		return ""
	}
	return q.quota(i)
}

func (q *Queue) quota(i *item) string {
	n, claim := q.heldBy(i)
	if n == nil {
		return ""
	}
	limit, _ := n.limit(i.Class)
	text := fmt.Sprintf("needs %s of class %s, account %s may use %d at once (%d guaranteed and %d borrowable) and %s in use",
		count(i.GPUs), i.Class, n.name, limit.Guaranteed+limit.Borrowable, limit.Guaranteed, limit.Borrowable, areInUse(n.inUse(i.Class)))
	switch {
	case i.GPUs > limit.Guaranteed+limit.Borrowable:
		return text + "; it can never run under this limit, ask for fewer or have the limit raised"
	case claim != nil:
		return text + fmt.Sprintf("; what becomes free is for a pod of account %s that needs %d and has waited longer for it", claim.Account, claim.GPUs)
	}
	return text + "; it goes on when others of the account end, or the limit is raised"
}

// turn compares the pod's accounts, from the root down, with those that go first.
func (q *Queue) turn(i *item) string {
	var path []*node
	for n := i.leaf; n != q.root; n = n.parent {
		path = append(path, n)
	}
	for at := len(path) - 1; at >= 0; at-- {
		n := path[at]
		first, some := n.parent.contest(i.Class).first()
		if !some || first.node == n {
			continue
		}
		return fmt.Sprintf("%s, %s", q.standing(n, i.Class), q.rival(first, i.Class))
	}
	if ahead, some := q.ahead(i); some {
		return fmt.Sprintf("%s; of its %s waiting for class %s, an older or more important one is next (priority %d, since %s; this one: priority %d, since %s)",
			q.standing(path[len(path)-1], i.Class), pods(q.waiting(i.leaf, i.Class)), i.Class,
			ahead.Priority, ahead.Created.UTC().Format(time.DateTime), i.Priority, i.Created.UTC().Format(time.DateTime))
	}
	return fmt.Sprintf("it is next; %s", q.standing(path[len(path)-1], i.Class))
}

// standing of one account in words.
func (q *Queue) standing(n *node, class string) string {
	u := n.use(class)
	who := "account " + n.name
	if n.leaf != nil {
		who = "account " + n.name + "'s own pods"
	}
	return fmt.Sprintf("%s has a share of %s (%d of %d %s in use and %s on average lately, weight %s)", who, percent(n.share),
		u.inUse, q.capacity[class], class, strconv.FormatFloat(u.average, 'f', 1, 64), strconv.FormatFloat(n.weight, 'f', -1, 64))
}

func (q *Queue) rival(first *entrant, class string) string {
	why := map[Tier]string{
		Protected:  "whose floor is not filled",
		Guaranteed: "which is below its guaranteed share",
		Starved:    "which runs nothing and has waited longest",
		Fair:       "whose share is smaller",
	}[first.tier]
	return fmt.Sprintf("account %s goes first, %s: %s (%d %s in use, weight %s)", first.node.name, why, percent(first.node.share),
		first.node.inUse(class), class, strconv.FormatFloat(first.node.weight, 'f', -1, 64))
}

// ahead is the pod of the same account and class that goes first, if it is another.
func (q *Queue) ahead(i *item) (*item, bool) {
	e := i.leaf.entrants[i.Class]
	if e == nil || e.pod == nil || e.pod == i {
		return nil, false
	}
	return e.pod, true
}

// waiting counts an account's own ready pods of a class.
func (q *Queue) waiting(own *node, class string) int {
	n := 0
	for shape, b := range q.buckets[own.name] {
		if shape.Class == class {
			n += b.items.Len()
		}
	}
	return n
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

func count(gpus int64) string {
	if gpus == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", gpus)
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

func areInUse(gpus int64) string {
	if gpus == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", gpus)
}

// Waits is the word that Explain would begin with: ByQuota, ByTurn, or empty. It is cheap.
func (q *Queue) Waits(uid string) string {
	i := q.items[uid]
	if i == nil || i.state != ready {
		return ""
	}
	if n, _ := q.heldBy(i); n != nil {
		return ByQuota
	}
	return ByTurn
}
