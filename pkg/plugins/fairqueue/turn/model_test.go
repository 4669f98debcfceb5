package turn

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// model is the queue as one would explain it: it keeps what has happened, and computes everything from that at each question.
type model struct {
	options  Options
	accounts []Account
	capacity map[string]int64
	pods     []*modelPod
	held     []*modelHolding
	claims   []*modelClaim
	freed    map[string]time.Time
	now      time.Time
	tick     time.Time
}

type modelPod struct {
	Pod
	ready     bool
	resting   bool
	unfit     bool // it fitted nowhere, and waits to be tried again
	room      int
	failures  int
	failedAt  time.Time
	heldSince time.Time
	blocks    time.Time // those that look alike, until then
}

type modelHolding struct {
	Pod
	from, to time.Time // to is zero while it holds
}

type modelClaim struct {
	account string
	pod     *modelPod
}

func (m *model) advance(now time.Time) {
	m.now = now
	for _, p := range m.pods {
		if p.resting && !now.Before(p.failedAt.Add(pause(p.failures))) {
			m.makeReady(p)
		}
	}
	if now.Sub(m.tick) >= Tick {
		m.refresh()
	}
}

func (m *model) makeReady(p *modelPod) {
	p.ready, p.resting, p.unfit, p.blocks = true, false, false, time.Time{}
}

// refresh is what happens once per tick: limits that hold pods back are noted.
func (m *model) refresh() {
	m.tick = m.now
	m.note()
}

func (m *model) note() {
	for _, p := range m.firsts() {
		for _, above := range m.above(p.Account) {
			limit, limited := m.account(above).Limits[p.Class]
			most := limit.Guaranteed + limit.Borrowable
			if !limited || m.inUse(above, p.Class)+p.GPUs <= most || p.GPUs > most {
				continue
			}
			if p.heldSince.IsZero() {
				p.heldSince = m.now
			}
			if m.now.Sub(p.heldSince) < m.options.Patience {
				continue
			}
			at := slices.IndexFunc(m.claims, func(c *modelClaim) bool { return c.account == above && c.pod.Class == p.Class })
			switch {
			case at < 0:
				m.claims = append(m.claims, &modelClaim{above, p})
			case m.claims[at].pod != p && longer(p, m.claims[at].pod):
				m.claims[at].pod = p
			}
		}
	}
}

func longer(p, other *modelPod) bool {
	return other.heldSince.IsZero() || p.heldSince.Before(other.heldSince) || p.heldSince.Equal(other.heldSince) && p.UID < other.UID
}

// available are the ready pods of which no look-alike has lately failed.
func (m *model) available() []*modelPod {
	var all []*modelPod
	for _, p := range m.pods {
		if p.ready && !slices.ContainsFunc(m.pods, func(other *modelPod) bool {
			return other.Account == p.Account && shapeOf(&other.Pod) == shapeOf(&p.Pod) && m.now.Before(other.blocks)
		}) {
			all = append(all, p)
		}
	}
	return all
}

// firsts are the first available pods of each account, class, size and floor.
func (m *model) firsts() []*modelPod {
	first := map[string]*modelPod{}
	for _, p := range m.available() {
		key := fmt.Sprint(p.Account, p.Class, p.GPUs, p.Floor)
		if first[key] == nil || m.before(p, first[key]) {
			first[key] = p
		}
	}
	var all []*modelPod
	for _, p := range first {
		all = append(all, p)
	}
	return all
}

func (m *model) before(p, other *modelPod) bool {
	a, b := m.place(p), m.place(other)
	return a < b || a == b && (p.Created.Before(other.Created) || p.Created.Equal(other.Created) && p.UID < other.UID)
}

func (m *model) place(p *modelPod) int64 {
	return p.Created.Add(-HeadStart(p.Priority, m.account(p.Account).Aging)).UnixNano()
}

func (m *model) account(name string) Account {
	at := slices.IndexFunc(m.accounts, func(a Account) bool { return a.Name == name })
	if at < 0 {
		return Account{}
	}
	return m.accounts[at]
}

// above is the account and its ancestors.
func (m *model) above(name string) []string {
	var chain []string
	for name != "" {
		chain = append(chain, name)
		name = m.account(name).Parent
	}
	return chain
}

func (m *model) below(name, account string) bool { return slices.Contains(m.above(account), name) }

func (m *model) inUse(account, class string) (gpus int64) {
	for _, h := range m.held {
		if h.to.IsZero() && h.Class == class && m.below(account, h.Account) {
			gpus += h.GPUs
		}
	}
	return gpus
}

func (m *model) runsNothing(account string, ownOnly bool) bool {
	return !slices.ContainsFunc(m.held, func(h *modelHolding) bool {
		return h.to.IsZero() && (h.Account == account || !ownOnly && m.below(account, h.Account))
	})
}

// share of an account, or of its own pods, in a comparison with that half-life, for a pod.
func (m *model) share(account string, ownOnly bool, halfLife time.Duration, p *modelPod) float64 {
	of := map[string]float64{p.Class: float64(p.GPUs) / 2}
	for _, h := range m.held {
		if h.Account != account && (ownOnly || !m.below(account, h.Account)) {
			continue
		}
		end := h.to
		if end.IsZero() {
			of[h.Class] += float64(h.GPUs)
			end = m.tick
		}
		if end.After(m.tick) {
			end = m.tick
		}
		if h.from.Before(end) {
			of[h.Class] += float64(h.GPUs) * (math.Exp2(-float64(m.tick.Sub(end))/float64(halfLife)) - math.Exp2(-float64(m.tick.Sub(h.from))/float64(halfLife)))
		}
	}
	most := 0.0
	for class, gpus := range of {
		most = max(most, gpus/float64(max(m.capacity[class], 1)))
	}
	if ownOnly {
		return most
	}
	return most / float64(max(m.account(account).Weight, 1))
}

func (m *model) within(p *modelPod) bool {
	for _, f := range m.account(p.Account).Floors {
		if f.Name != p.Floor || f.Class != p.Class {
			continue
		}
		used := int64(0)
		for _, h := range m.held {
			if h.to.IsZero() && h.Account == p.Account && h.Class == p.Class && h.Floor == p.Floor {
				used += h.GPUs
			}
		}
		return used+p.GPUs <= f.GPUs
	}
	return false
}

func (m *model) heldBack(p *modelPod) bool {
	for _, above := range m.above(p.Account) {
		if limit, limited := m.account(above).Limits[p.Class]; limited && m.inUse(above, p.Class)+p.GPUs > limit.Guaranteed+limit.Borrowable {
			return true
		}
		for _, c := range m.claims {
			alike := c.pod.Account == p.Account && c.pod.GPUs == p.GPUs && c.pod.Floor == p.Floor
			if c.account == above && c.pod.Class == p.Class && !alike && longer(c.pod, p) {
				return true
			}
		}
	}
	return false
}

func (m *model) tier(account string, ownOnly bool, p *modelPod) Tier {
	if m.within(p) {
		return Protected
	}
	limit, limited := m.account(account).Limits[p.Class]
	if !ownOnly && limited && m.inUse(account, p.Class)+p.GPUs <= limit.Guaranteed {
		return Guaranteed
	}
	if wait := m.account(p.Account).MaxWait; wait > 0 && m.runsNothing(account, ownOnly) && p.Created.Add(wait).Before(m.tick) {
		return Starved
	}
	return Fair
}

// contender is a pod that could be next below something.
type contender struct {
	pod   *modelPod
	tier  Tier
	share float64
	name  string
	own   bool
}

// next are the pods that may be next: one, or several where shares are too close to call in floating point.
func (m *model) next() []*modelPod {
	var finals []contender
	for _, class := range []string{"a100", "h100"} {
		finals = append(finals, m.contenders("", class, m.options.HalfLife)...)
	}
	var pods []*modelPod
	for _, c := range m.winners(finals) {
		pods = append(pods, c.pod)
	}
	return pods
}

func (m *model) contenders(parent, class string, halfLife time.Duration) []contender {
	var all []contender
	for _, a := range m.accounts {
		if a.Parent != parent {
			continue
		}
		for _, winner := range m.winners(append(m.contenders(a.Name, class, orElse(a.HalfLife, m.options.HalfLife)), m.own(a, class)...)) {
			all = append(all, contender{winner.pod, m.tier(a.Name, false, winner.pod), m.share(a.Name, false, halfLife, winner.pod), a.Name, false})
		}
	}
	return all
}

func (m *model) own(a Account, class string) []contender {
	var best *modelPod
	for _, p := range m.available() {
		if p.Account != a.Name || p.Class != class || m.heldBack(p) {
			continue
		}
		if best == nil || m.within(p) && !m.within(best) || m.within(p) == m.within(best) && m.before(p, best) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	return []contender{{best, m.tier(a.Name, true, best), m.share(a.Name, true, orElse(a.HalfLife, m.options.HalfLife), best), a.Name, true}}
}

func orElse(d, other time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return other
}

// winners are the contenders that may be first: one node's, or several nodes' where shares are equal within what floating point can
// tell. A node may have several contenders then, of which it sends one: it is beaten only by a node all of whose contenders beat it.
func (m *model) winners(all []contender) []contender {
	const close = 1e-9
	beats := func(a, b contender) bool {
		return a.tier < b.tier || a.tier == b.tier && a.share < b.share-close
	}
	var winners []contender
	for _, c := range all {
		beaten := slices.ContainsFunc(all, func(rival contender) bool {
			return !rival.sameNode(c) && !slices.ContainsFunc(all, func(other contender) bool { return other.sameNode(rival) && !beats(other, c) })
		})
		if !beaten {
			winners = append(winners, c)
		}
	}
	return winners
}

func (c contender) sameNode(other contender) bool {
	return c.name == other.name && c.own == other.own && c.pod.Class == other.pod.Class
}
