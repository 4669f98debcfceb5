package fairness

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

const class = "h100"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cluster is a pool of GPUs of one class on a virtual clock. Placement is not the question here: a pod fits if so many GPUs are free
// anywhere. Whose turn it is, package turn decides, as in the scheduler.
type cluster struct {
	queue  *turn.Queue
	random *rand.Rand
	now    time.Time
	free   int64
	made   int
	// gathers: what becomes free is kept for the pod whose turn it is until it fits, as placement's headroom would. Otherwise
	// whoever comes after it and is small enough may take it.
	gathers bool
	// failed pods wait for GPUs to become free, as the scheduler's queue would have them.
	failed []string
	pods   map[string]pod
	ends   ends
	// refill makes the next pod of an account that always has some waiting; nil for none.
	refill func(account string) (pod, bool)

	// delivered GPU-seconds by account, since the latest reset.
	delivered map[string]float64
	running   map[string]run
	since     time.Time
	placed    []placing
}

// pod is a job of one pod.
type pod struct {
	turn.Pod
	lasts time.Duration
}

// run is a pod that runs.
type run struct {
	account string
	gpus    int64
	from    time.Time
}

// placing is when a pod was placed.
type placing struct {
	pod turn.Pod
	at  time.Time
}

type end struct {
	at  time.Time
	uid string
}

type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newCluster(gpus int64, halfLife time.Duration, seed uint64, accounts ...turn.Account) *cluster {
	c := &cluster{
		queue:  turn.New(turn.Options{HalfLife: halfLife, Patience: 10 * time.Minute, ShapeRetry: time.Minute}),
		random: rand.New(rand.NewPCG(seed, 1)), now: start, since: start, free: gpus,
		gathers: true, pods: map[string]pod{}, delivered: map[string]float64{}, running: map[string]run{},
	}
	c.queue.SetAccounts(start, accounts)
	c.queue.SetCapacity(start, map[string]int64{class: gpus})
	return c
}

// submit puts a pod into the queue.
func (c *cluster) submit(p pod) {
	c.made++
	p.UID, p.Class, p.Created = fmt.Sprint(c.made), class, c.now
	p.Shape = uint64(p.GPUs)
	c.pods[p.UID] = p
	c.queue.Add(c.now, p.Pod)
}

// place gives turns until nobody is next.
func (c *cluster) place() {
	for {
		next, some := c.queue.Next(c.now)
		if !some {
			return
		}
		p := c.pods[next.Pod.UID]
		if p.GPUs > c.free && c.gathers {
			return
		}
		if p.GPUs > c.free {
			c.queue.Fail(c.now, p.UID, true, 0)
			c.failed = append(c.failed, p.UID)
			continue
		}
		c.free -= p.GPUs
		c.queue.Take(c.now, p.Pod)
		c.running[p.UID] = run{p.Account, p.GPUs, c.now}
		c.placed = append(c.placed, placing{p.Pod, c.now})
		heap.Push(&c.ends, end{c.now.Add(p.lasts), p.UID})
		if c.refill == nil {
			continue
		}
		if another, more := c.refill(p.Account); more {
			c.submit(another)
		}
	}
}

// until lets pods end and begin until a time.
func (c *cluster) until(at time.Time) {
	c.place()
	for len(c.ends) > 0 && !c.ends[0].at.After(at) {
		c.now = c.ends[0].at
		for len(c.ends) > 0 && !c.ends[0].at.After(c.now) {
			c.finish(heap.Pop(&c.ends).(end).uid)
		}
		for _, uid := range c.failed {
			c.queue.Ready(c.now, uid)
		}
		c.failed = c.failed[:0]
		c.place()
	}
	c.now = at
	c.queue.Advance(at)
	c.place()
}

func (c *cluster) finish(uid string) {
	r := c.running[uid]
	c.account(r, c.now)
	c.free += r.gpus
	delete(c.running, uid)
	delete(c.pods, uid)
	c.queue.Free(c.now, uid)
}

func (c *cluster) account(r run, to time.Time) {
	from := r.from
	if from.Before(c.since) {
		from = c.since
	}
	c.delivered[r.account] += float64(r.gpus) * to.Sub(from).Seconds()
}

// reset begins to count delivered GPU-seconds at the present.
func (c *cluster) reset() {
	clear(c.delivered)
	c.since = c.now
}

// deliveredNow is what was delivered until the present, with what still runs.
func (c *cluster) deliveredNow() map[string]float64 {
	for uid, r := range c.running {
		c.account(r, c.now)
		r.from = c.now
		c.running[uid] = r
	}
	return c.delivered
}

// average is an account's average of GPUs held lately, as the queue has it.
func (c *cluster) average(account string) float64 {
	for _, s := range c.queue.Standings() {
		if s.Account == account && s.Class == class {
			return s.Average
		}
	}
	return 0
}

// lasting draws a run time, log-uniform.
func lasting(random *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), random.Float64()))
}
