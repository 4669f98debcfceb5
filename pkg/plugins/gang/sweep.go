package gang

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// sweep looks over all gangs every SweepPeriod until ctx ends.
func (pl *Gang) sweep(ctx context.Context) {
	ticker := pl.clock.NewTicker(pl.args.SweepPeriod.Duration)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			pl.sweepOnce(ctx)
		}
	}
}

// sweepOnce gives overdue rounds up, wakes gangs whose rest is over or whose hindrance is gone, lets incomplete ones say so, and
// forgets those without pods.
func (pl *Gang) sweepOnce(ctx context.Context) {
	now := pl.clock.Now()
	for _, round := range pl.rounds.overdue(now) {
		why := fmt.Sprintf("Gang: %d of the %d pods of %s had a node after %v; all gave them back, and are tried again",
			pl.rounds.has(round), round.needed, round.gang.Title, now.Sub(round.opened).Truncate(time.Second))
		if members, gaveUp := pl.rounds.abandon(round, now, why); gaveUp {
			klog.FromContext(ctx).Info("Gang's round is given up: its time is over", "gang", round.gang.Title, "had", len(members), "needed", round.needed)
			pl.giveBack(ctx, round, members, why, "timed_out")
		}
	}
	waiting, open := 0, 0
	for _, key := range pl.rounds.keys() {
		pods := pl.groups.members(key)
		if len(pods) == 0 {
			pl.rounds.forget(key) // B14
			continue
		}
		wake := pl.rounds.rested(key, now)
		if g, ok := pl.groups.of(pods[0]); ok && g.Problem == "" {
			t := pl.groups.tally(g)
			pl.rounds.landed(key, pods)
			switch {
			case pl.rounds.running(key) != nil:
				open++
			case t.together > 0:
				waiting++
			}
			if tell := pl.rounds.toTell(key, t, now); tell != nil {
				wake, pods = true, tell
			}
		}
		if wake {
			pl.handle.Activate(klog.FromContext(ctx), podsByUID(pods))
		}
	}
	observeStanding(waiting, open)
}

// wakeBlocked wakes those who were kept waiting by a round that is over now.
func (pl *Gang) wakeBlocked(ctx context.Context, round *Round) {
	pods := map[string]*corev1.Pod{}
	keys, kept := pl.rounds.unblock(round)
	for _, key := range keys {
		for _, pod := range pl.groups.members(key) {
			pods[string(pod.UID)] = pod
		}
	}
	for _, pod := range kept {
		pods[string(pod.UID)] = pod
	}
	if len(pods) > 0 {
		pl.handle.Activate(klog.FromContext(ctx), pods)
	}
}

// members are all pods of a group that the watch shows.
func (gs *Groups) members(key string) []*corev1.Pod {
	objects, err := gs.pods.ByIndex(groupIndex, key)
	if err != nil {
		panic("gang: the index of pods by group is missing: " + err.Error())
	}
	pods := make([]*corev1.Pod, len(objects))
	for i, object := range objects {
		pods[i] = object.(*corev1.Pod)
	}
	return pods
}

func (rs *rounds) keys() []string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	keys := make([]string, 0, len(rs.byGang))
	for key := range rs.byGang {
		keys = append(keys, key)
	}
	return keys
}

// forget drops a gang without pods, but for a round: its members' Unreserve is on its way.
func (rs *rounds) forget(key string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a := rs.byGang[key]; a != nil && a.round == nil {
		delete(rs.byGang, key)
	}
}

// rested reports, once, that a gang's rest is over.
func (rs *rounds) rested(key string, now time.Time) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.byGang[key]
	if a == nil || a.restUntil.IsZero() || now.Before(a.restUntil) {
		return false
	}
	a.restUntil = time.Time{}
	return true
}

// landed forgets the flight of members that the watch shows bound.
func (rs *rounds) landed(key string, pods []*corev1.Pod) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a := rs.byGang[key]; a != nil {
		for _, pod := range pods {
			if pod.Spec.NodeName != "" {
				delete(a.flying, pod.UID)
			}
		}
	}
}

// unblock returns the gangs that a round kept from opening their own, and the pods that it kept off its nodes.
func (rs *rounds) unblock(r *Round) (keys []string, kept []*corev1.Pod) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for key, a := range rs.byGang {
		if a.blockedBy == r.gang.Key {
			a.blockedBy = ""
			keys = append(keys, key)
		}
	}
	for _, pod := range r.kept {
		kept = append(kept, pod)
	}
	r.kept = nil
	return keys, kept
}
