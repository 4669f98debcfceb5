package fairness

import (
	"math/rand/v2"
	"time"

	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

// priorities of the four tiers whose waits are measured.
var priorities = []struct {
	name     string
	priority int32
}{{"low", -1000}, {"normal", 0}, {"high", 1000}, {"critical", 1_000_000}}

// arrival is a pod that is submitted at a time.
type arrival struct {
	at time.Time
	pod
}

// waits has one account submit pods of all tiers, nine tenths of what it can run on average, in waves that it cannot: twice as much for
// a day, almost nothing for the next. The bound on a tier's wait is aging less its head start, plus the longest wait of the same arrivals
// in the order of their creation: what is created later than that cannot go first any more.
func waits(seed uint64, span time.Duration) []measured {
	arrivals := drawArrivals(rand.New(rand.NewPCG(seed, 2)), span)
	inOrder := longest(arrivals, 0)
	first := time.Duration(0)
	for _, wait := range inOrder {
		first = max(first, wait)
	}
	waited := longest(arrivals, aging)
	var all []measured
	for _, tier := range priorities {
		bound := aging - turn.HeadStart(tier.priority, aging) + first
		all = append(all, measured{"longest_wait_" + tier.name, "h", "the bound", waited[tier.priority].Hours(), bound.Hours()})
	}
	return all
}

func drawArrivals(random *rand.Rand, span time.Duration) []arrival {
	const gpus, lasts = 64, time.Hour
	var all []arrival
	for at := time.Duration(0); at < span; {
		rate := 1.7 * gpus / lasts.Seconds() // pods per second
		if int(at.Hours()/24)%2 == 1 {
			rate = 0.1 * gpus / lasts.Seconds()
		}
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		tier := priorities[random.IntN(len(priorities))]
		all = append(all, arrival{start.Add(at), pod{turn.Pod{Account: "team", GPUs: 1, Priority: tier.priority}, lasts}})
	}
	return all
}

// longest wait by priority.
func longest(arrivals []arrival, aging time.Duration) map[int32]time.Duration {
	c := newCluster(64, halfLife, 0, turn.Account{Name: "team", Aging: aging})
	for _, a := range arrivals {
		c.until(a.at)
		c.submit(a.pod)
	}
	c.until(c.now.Add(30 * 24 * time.Hour))
	waited := map[int32]time.Duration{}
	for _, p := range c.placed {
		waited[p.pod.Priority] = max(waited[p.pod.Priority], p.at.Sub(p.pod.Created))
	}
	return waited
}

// starvation has one team use everything for a span, and then forty-nine newcomers want all they can get: by shares alone the first would
// stand still for weeks. Measured is its longest time without a turn in three days. The bound is MaxWait, and the longest run of a pod
// of its own that has to end first.
func starvation(seed uint64, span time.Duration) []measured {
	const gpus, most = 512, 2 * time.Hour
	accounts := []turn.Account{{Name: "past", MaxWait: maxWait}}
	for i := range 49 {
		accounts = append(accounts, turn.Account{Name: "new-" + string(rune('A'+i)), MaxWait: maxWait})
	}
	c := newCluster(gpus, halfLife, seed, accounts...)
	c.refill = func(account string) (pod, bool) {
		return pod{turn.Pod{Account: account, GPUs: 1}, lasting(c.random, 10*time.Minute, most)}, account != "past" || c.now.Before(start.Add(span))
	}
	for range gpus {
		p, _ := c.refill("past")
		c.submit(p)
	}
	c.until(start.Add(span))
	for _, a := range accounts {
		for range 40 {
			p, _ := c.refill(a.Name)
			c.submit(p)
		}
	}
	begin, before := c.now, len(c.placed)
	c.until(begin.Add(3 * maxWait))
	wait, last := time.Duration(0), begin
	for _, p := range c.placed[before:] {
		if p.pod.Account == "past" {
			wait, last = max(wait, p.at.Sub(last)), p.at
		}
	}
	wait = max(wait, c.now.Sub(last))
	return []measured{{"longest_wait_after_overuse", "h between two turns", "the bound", wait.Hours(), (maxWait + most).Hours()}}
}
