package creditreservation

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// reason is what a pod waits for.
type reason int

const (
	// forLedger: the ledger gave no answer.
	forLedger reason = iota
	// forCredits: the ledger refused for too few credits, and said how many are needed.
	forCredits
	// forQuota: as many jobs run as a limit allows.
	forQuota
	// forChange: the ledger refused for another reason, which a change of the account, a class or another pod may lift.
	forChange
	// forEnrolment: judge refused it.
	forEnrolment
)

// Limits on asking again. A refusal may be wrong in the view's eyes, e.g. where the view lags behind: asking again and again
// then costs a scheduling cycle each time, so the pause doubles up to maxPause. creditRetry is kube-scheduler's own limit for
// pods that no event woke; it is for what the view shows: credits, and jobs that run.
const (
	firstPause  = time.Second
	maxPause    = 30 * time.Second
	creditRetry = 5 * time.Minute
)

// wait is one pod's unfinished business.
type wait struct {
	pod     *corev1.Pod
	reason  reason
	message string
	account string
	// needed is what a hold would take, for forCredits.
	needed ledger.Microcredits
	// since numbers the catalog's latest change when the pod was refused.
	since int64
	// refusals counts refusals in a row, 1 or more.
	refusals int
	// notBefore is the earliest moment to ask again, retryAt when to ask even if nothing has changed.
	notBefore, retryAt time.Time
	// woken: the pod was let through, and is on its way to be asked for again.
	woken bool
}

// view is what over needs to know of the catalog.
type view interface {
	ChangedSince(account string, change int64) bool
	Affordable(account string, needed ledger.Microcredits) bool
	MayRunMore(account string) bool
}

// over reports whether the pod may be tried again. judged tells what judge says now; it is asked only for forEnrolment.
func (w *wait) over(now time.Time, v view, ledgerUp bool, judged func() judgement) bool {
	switch {
	case w.reason == forLedger:
		return ledgerUp
	case w.reason == forEnrolment:
		return judged().refusal == ""
	case !now.Before(w.retryAt):
		return true
	case now.Before(w.notBefore) || !v.ChangedSince(w.account, w.since):
		return false
	}
	switch w.reason {
	case forCredits:
		return v.Affordable(w.account, w.needed)
	case forQuota:
		return v.MayRunMore(w.account)
	}
	return true
}

// pause is how long to leave a pod alone after its nth refusal in a row. The first time a change is believed at once.
func pause(refusals int) time.Duration {
	if refusals <= 1 {
		return 0
	}
	return min(maxPause, firstPause<<min(refusals-2, 10))
}

// waits are all waiting pods.
type waits struct {
	mu    sync.Mutex
	byUID map[types.UID]*wait
}

// put remembers why a pod waits.
func (ws *waits) put(w wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.refusals = 1
	if before := ws.byUID[w.pod.UID]; before != nil && before.reason == w.reason {
		w.refusals = before.refusals + 1
	}
	w.notBefore = w.notBefore.Add(pause(w.refusals))
	ws.byUID[w.pod.UID] = &w
}

// get returns a copy of a pod's wait.
func (ws *waits) get(uid types.UID) (wait, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byUID[uid]
	if w == nil {
		return wait{}, false
	}
	return *w, true
}

// woken notes whether the pod was let through. It stays known either way, so that its refusals are counted.
func (ws *waits) woken(uid types.UID, through bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byUID[uid]; w != nil {
		w.woken = through
	}
}

// poke lets a pod that waits forChange be tried again although the catalog shows no change.
func (ws *waits) poke(uid types.UID, now time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byUID[uid]; w != nil && w.reason == forChange {
		w.retryAt = now
	}
}

// forget ends a pod's wait.
func (ws *waits) forget(uid types.UID) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byUID, uid)
}

// all returns copies of all waits.
func (ws *waits) all() []wait {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all := make([]wait, 0, len(ws.byUID))
	for _, w := range ws.byUID {
		all = append(all, *w)
	}
	return all
}
