package turn

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var modelStart = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// The queue, on random trees, limits, floors and histories, always names a pod that the model would name.
func TestQueueIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := Options{HalfLife: 100 * time.Second, Patience: 5 * time.Second, ShapeRetry: 20 * time.Second}
		q, m := New(options), &model{options: options, now: modelStart, freed: map[string]time.Time{}}
		now := modelStart
		setAccounts := func() {
			m.accounts = drawAccounts(t)
			orphans := q.SetAccounts(now, m.accounts)
			if len(orphans) > 0 {
				t.Fatalf("orphans %v", orphans)
			}
			m.claims = nil
			m.note()
		}
		q.Advance(now)
		m.advance(now)
		setAccounts()
		m.capacity = map[string]int64{"h100": rapid.Int64Range(1, 40).Draw(t, "h100"), "a100": rapid.Int64Range(0, 40).Draw(t, "a100")}
		q.SetCapacity(now, m.capacity)
		m.note()
		seen := 0
		find := func(label string, which func(*modelPod) bool) *modelPod {
			var all []*modelPod
			for _, p := range m.pods {
				if which(p) {
					all = append(all, p)
				}
			}
			if len(all) == 0 {
				return nil
			}
			return rapid.SampledFrom(all).Draw(t, label)
		}
		drop := func(p *modelPod) {
			m.pods = slices.DeleteFunc(m.pods, func(other *modelPod) bool { return other == p })
			m.claims = slices.DeleteFunc(m.claims, func(c *modelClaim) bool { return c.pod == p })
		}
		take := func(p *modelPod) {
			q.Take(now, p.Pod)
			drop(p)
			m.held = append(m.held, &modelHolding{Pod: p.Pod, from: now})
		}
		tellPast := func() {
			now = now.Add(Tick)
			q.Advance(now)
			m.advance(now)
			q.SetPast(now, m.past(q.HalfLives()))
			m.claims = nil
			m.note()
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				want := m.next()
				got, some := q.Next(now)
				if some != (len(want) > 0) {
					t.Fatalf("next is %v %+v, want one of %d", some, got, len(want))
				}
				if some && !slices.ContainsFunc(want, func(p *modelPod) bool { return p.UID == got.Pod.UID }) {
					t.Fatalf("next is %+v, want %+v", got, want[0])
				}
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
				q.Advance(now)
				m.advance(now)
			},
			"add": func(t *rapid.T) {
				seen++
				p := drawPod(t, now)
				p.UID = fmt.Sprintf("p%04d", seen)
				if !q.Add(now, p) {
					t.Fatalf("pod %+v has no account", p)
				}
				m.pods = append(m.pods, &modelPod{Pod: p, ready: true})
			},
			"take next": func(*rapid.T) {
				if next, some := q.Next(now); some {
					at := slices.IndexFunc(m.pods, func(p *modelPod) bool { return p.UID == next.Pod.UID })
					take(m.pods[at])
				}
			},
			"take any": func(t *rapid.T) {
				if p := find("taken", func(*modelPod) bool { return true }); p != nil {
					take(p)
				}
			},
			"fail": func(t *rapid.T) {
				p := find("failed", func(p *modelPod) bool { return p.ready })
				if p == nil {
					return
				}
				alike := rapid.Bool().Draw(t, "alike")
				room := rapid.IntRange(0, 3).Draw(t, "room")
				q.Fail(now, p.UID, alike, room)
				p.unfit, p.room = alike, room
				p.ready, p.failures, p.failedAt, p.heldSince, p.blocks = false, p.failures+1, now, time.Time{}, time.Time{}
				if !alike {
					p.failures = 1
				}
				if alike {
					for _, other := range m.pods { // there is one that blocks at a time
						if other.Account == p.Account && shapeOf(&other.Pod) == shapeOf(&p.Pod) {
							other.blocks = time.Time{}
						}
					}
					p.blocks = now.Add(options.ShapeRetry)
				}
				m.claims = slices.DeleteFunc(m.claims, func(c *modelClaim) bool {
					return c.pod == p || alike && c.pod.Account == p.Account && shapeOf(&c.pod.Pod) == shapeOf(&p.Pod)
				})
			},
			"ready": func(t *rapid.T) {
				p := find("readied", func(p *modelPod) bool { return !p.ready && !p.resting })
				if p == nil {
					return
				}
				q.Ready(now, p.UID)
				freed, some := m.freed[p.Class]
				if p.failures > 0 && now.Before(p.failedAt.Add(pause(p.failures))) && (!some || freed.Before(p.failedAt)) {
					p.resting = true
					return
				}
				m.makeReady(p)
			},
			"rouse": func(t *rapid.T) {
				class, more := rapid.SampledFrom([]string{"a100", "h100"}).Draw(t, "class"), rapid.Int64Range(0, 4).Draw(t, "room")
				room := func(gpus int64) int { return int(more / gpus) } // fewer for those that ask for more
				some := false
				for _, p := range m.pods {
					if p.unfit && p.Class == class && room(p.GPUs) > p.room {
						m.makeReady(p)
						some = true
					}
				}
				before := q.Woken()
				if q.Rouse(now, class, room); (q.Woken() > before) != some {
					t.Fatalf("roused somebody: %v, want %v", !some, some)
				}
			},
			"remove": func(t *rapid.T) {
				if p := find("removed", func(*modelPod) bool { return true }); p != nil {
					q.Remove(now, p.UID)
					drop(p)
				}
			},
			"free": func(t *rapid.T) {
				var running []*modelHolding
				for _, h := range m.held {
					if h.to.IsZero() {
						running = append(running, h)
					}
				}
				if len(running) == 0 {
					return
				}
				h := rapid.SampledFrom(running).Draw(t, "freed")
				q.Free(now, h.UID)
				h.to, m.freed[h.Class] = now, now
				for _, p := range m.pods {
					if p.resting && p.Class == h.Class {
						m.makeReady(p)
					}
				}
			},
			"accounts": func(t *rapid.T) {
				before := q.HalfLives()
				setAccounts()
				if !slices.Equal(before, q.HalfLives()) {
					tellPast()
				}
			},
			"past": func(*rapid.T) { tellPast() }, // what a restarted scheduler is told changes no order
		})
	})
}

// past is what a ledger would tell.
func (m *model) past(halfLives []time.Duration) []Past {
	var all []Past
	for _, h := range m.held {
		for _, halfLife := range halfLives {
			end := h.to
			if end.IsZero() {
				end = m.now
			}
			all = append(all, Past{Account: h.Account, Class: h.Class, HalfLife: halfLife,
				Average: float64(h.GPUs) * (fade(m.now.Sub(end), halfLife) - fade(m.now.Sub(h.from), halfLife))})
		}
	}
	return all
}

// drawAccounts makes org with teams a and b, of which b has a team of its own, and a second root.
func drawAccounts(t *rapid.T) []Account {
	tree := map[string]string{"org": "", "a": "org", "b": "org", "c": "b", "other": ""}
	var all []Account
	for _, name := range []string{"org", "a", "b", "c", "other"} {
		a := Account{
			Name: name, Parent: tree[name], Weight: rapid.Int64Range(0, 3).Draw(t, "weight"),
			HalfLife: rapid.SampledFrom([]time.Duration{0, 50 * time.Second}).Draw(t, "half-life"),
			Aging:    rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "aging"),
			MaxWait:  rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(t, "most wait"),
		}
		if rapid.Bool().Draw(t, "limited") {
			a.Limits = map[string]Limit{"h100": {rapid.Int64Range(0, 8).Draw(t, "guaranteed"), rapid.Int64Range(0, 8).Draw(t, "borrowable")}}
		}
		if rapid.Bool().Draw(t, "floor") {
			a.Floors = []Floor{{Name: "serving", Class: "h100", GPUs: rapid.Int64Range(1, 8).Draw(t, "floor GPUs")}}
		}
		all = append(all, a)
	}
	return all
}

func drawPod(t *rapid.T, now time.Time) Pod {
	return Pod{
		Account:  rapid.SampledFrom([]string{"org", "a", "b", "c", "other"}).Draw(t, "account"),
		Class:    rapid.SampledFrom([]string{"h100", "h100", "a100"}).Draw(t, "class"),
		GPUs:     rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "GPUs"),
		Priority: rapid.SampledFrom([]int32{-5, 0, 0, 1000}).Draw(t, "priority"),
		Floor:    rapid.SampledFrom([]string{"", "", "serving"}).Draw(t, "floor"),
		Shape:    rapid.Uint64Range(0, 1).Draw(t, "shape"),
		Created:  now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "age")) * time.Second),
	}
}
