package gang

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A gang whose pods are still being made says nothing: its members stay out of the queue, and no condition is written that the
// next pod makes untrue. Only a gang that is incomplete for tellAfter tells how many of its pods exist, and again when that number
// has changed, so that nobody waits without knowing for what. A Job's controller makes pods by the hundreds in a second.
const tellAfter = 2 * time.Second

// silent reports whether a member of an incomplete gang is to stay out of the queue without a word.
func (rs *rounds) silent(key string, uid types.UID, now time.Time) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.of(key)
	if a.waitsSince.IsZero() {
		a.waitsSince = now
	}
	if a.told[uid] {
		return false
	}
	a.hushed = true
	return true
}

// speaks reports whether it is the member's turn to tell how many exist: then it goes through the queue although the gang is incomplete.
func (rs *rounds) speaks(key string, uid types.UID) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.byGang[key]
	return a != nil && a.told[uid]
}

// rouse reports, once, that members were kept out of the queue, now that enough exist.
func (rs *rounds) rouse(key string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.byGang[key]
	if a == nil || !a.hushed {
		return false
	}
	a.hushed = false
	return true
}

// said notes that a member has told how many exist.
func (rs *rounds) said(key string, uid types.UID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a := rs.byGang[key]; a != nil {
		delete(a.told, uid)
		a.hushed = true // it waits outside, as those do that said nothing
	}
}

// toTell are the members that should say by now that too few exist; the sweep wakes them. All do when their number has changed; where it is
// the same, whoever took another's place.
func (rs *rounds) toTell(key string, t tally, now time.Time) []*corev1.Pod {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.byGang[key]
	if a == nil || t.complete() || a.waitsSince.IsZero() || now.Before(a.waitsSince.Add(tellAfter)) {
		return nil
	}
	if a.askedCount != len(t.pending) {
		a.askedCount, a.asked, a.told = len(t.pending), nil, map[types.UID]bool{}
	}
	asked := make(map[types.UID]bool, len(t.pending))
	var tell []*corev1.Pod
	for _, pod := range t.pending {
		if asked[pod.UID] = true; !a.asked[pod.UID] {
			a.told[pod.UID], tell = true, append(tell, pod)
		}
	}
	a.asked = asked
	return tell
}
