package kueue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ledger is what the package needs of the store.
type Ledger interface {
	submission.Ledger
	// Reservation returns the workload's row and whether there is one.
	Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error)
	// ReservationAllocations returns every allocation made under it, also ended and released ones.
	ReservationAllocations(ctx context.Context, uid string) ([]ledger.Allocation, error)
	// Account returns the account's row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
}

// Key names what is decided together: a Job with all Workloads that name it as their controller, or one Workload that is not a Job's
// (Workload set, the rest but Namespace empty).
type Key struct {
	Namespace, Name string
	UID             types.UID
	Workload        string
}

// reconciler answers checks and places holds. See the package documentation.
type reconciler struct {
	gatherer
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	metrics  *metrics
	waiting  *waiting
}

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler) Reconcile(ctx context.Context, key Key) (ctrl.Result, error) {
	if key.Workload != "" {
		return ctrl.Result{}, r.answerOther(ctx, key)
	}
	f, workloads, p, err := r.decide(ctx, key, false)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p.changes() {
		// What a watch shows may be older than the last answer: nothing is done on its word alone.
		if f, workloads, p, err = r.decide(ctx, key, true); err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.apply(ctx, key, f, p, workloads)
}

func (r *reconciler) decide(ctx context.Context, key Key, fresh bool) (facts, []*kueuev1beta2.Workload, plan, error) {
	f, workloads, err := r.cluster(ctx, key, fresh)
	if err != nil {
		return f, nil, plan{}, err
	}
	f.now = r.clock.Now()
	if f.job != nil {
		if err := r.money(ctx, key, &f); err != nil {
			return f, nil, plan{}, err
		}
	}
	return f, workloads, decide(f), nil
}

func (p plan) changes() bool {
	return len(p.before) > 0 || p.pause != nil || p.hold != nil || len(p.after) > 0
}

// waits reports whether some Workload cannot be admitted for a reason that the ledger need not be asked about.
func (p plan) waits() bool {
	return slices.ContainsFunc(p.after, func(a answer) bool { return a.state == kueuev1beta2.CheckStatePending })
}

func (r *reconciler) apply(ctx context.Context, key Key, f facts, p plan, workloads []*kueuev1beta2.Workload) (ctrl.Result, error) {
	if err := r.answer(ctx, workloads, p.before); err != nil {
		return ctrl.Result{}, err
	}
	if p.pause != nil {
		if retry, err := r.pause(ctx, key, f, *p.pause); err != nil || retry {
			return ctrl.Result{RequeueAfter: inUseRecheck}, err
		}
	}
	r.waiting.forget(key)
	if p.waits() {
		r.waiting.put(key, f.claimed)
	}
	if p.hold != nil {
		concluded, err := r.hold(ctx, key, f, p)
		if err != nil {
			return ctrl.Result{}, err
		}
		p.after, p.lookAgain = concluded.after, concluded.lookAgain
	}
	return ctrl.Result{RequeueAfter: p.lookAgain}, r.answer(ctx, workloads, p.after)
}

// pause gives back what the hold sets aside. retry says that the ledger has news that the decision did not know of.
func (r *reconciler) pause(ctx context.Context, key Key, f facts, command ledger.PauseHold) (retry bool, err error) {
	verdict, err := submitPause(ctx, r.ledger, f.now, command)
	if err != nil {
		return false, fmt.Errorf("give back the hold of Job %s/%s: %w", key.Namespace, key.Name, err)
	}
	failpoint.Hit("kueue.after-pause")
	if refusal := verdict.Refusal; refusal != nil {
		log.FromContext(ctx).Info("Ledger does not give back a hold yet", "job", key, "code", refusal.Code, "message", refusal.Message)
		return true, nil
	}
	if !verdict.Replayed {
		back := f.reservation.Remaining()
		r.metrics.pauses.Inc()
		log.FromContext(ctx).Info("Hold given back until the next admission", "job", key, "microcredits", int64(back))
		r.tell(key, corev1.EventTypeNormal, "CreditsReturned", "%s credits are given back until the Job is admitted again", ledger.DisplayCredits(back))
	}
	return false, nil
}

// hold sets credits aside and says what that means for the Workloads.
func (r *reconciler) hold(ctx context.Context, key Key, f facts, p plan) (plan, error) {
	verdict, err := submitHold(ctx, r.ledger, f.now, *p.hold)
	if err != nil {
		return plan{}, fmt.Errorf("set credits aside for Job %s/%s: %w", key.Namespace, key.Name, err)
	}
	failpoint.Hit("kueue.after-hold")
	concluded := conclude(f, p, verdict)
	switch refusal := verdict.Refusal; {
	case refusal != nil:
		r.waiting.put(key, f.account, refusal.Account)
		r.metrics.holds.WithLabelValues(string(refusal.Code)).Inc()
	case !verdict.Replayed:
		r.metrics.holds.WithLabelValues("Held").Inc()
		r.tell(key, corev1.EventTypeNormal, "CreditsHeld", "%s credits of account %s are set aside for this admission",
			ledger.DisplayCredits(verdict.Reservation.Remaining()), verdict.Reservation.Account)
	}
	return concluded, nil
}

// answer writes check states. Each patch carries the resource version that was decided upon, since the list of checks is written as a whole.
func (r *reconciler) answer(ctx context.Context, workloads []*kueuev1beta2.Workload, answers []answer) error {
	for _, each := range answers {
		for _, w := range workloads {
			if string(w.UID) != each.workload.uid {
				continue
			}
			if err := r.write(ctx, w, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reconciler) write(ctx context.Context, w *kueuev1beta2.Workload, a answer) error {
	base := w.DeepCopy()
	changed := false
	for i := range w.Status.AdmissionChecks {
		state := &w.Status.AdmissionChecks[i]
		if !isOneOf(a.workload.checks, state.Name) || !a.changes(*state) {
			continue
		}
		changed = true
		if state.State != a.state {
			state.LastTransitionTime = metav1.NewTime(r.clock.Now())
			r.metrics.answers.WithLabelValues(string(a.state)).Inc()
		}
		state.State, state.Message = a.state, limited(a.message)
	}
	if !changed {
		return nil
	}
	err := r.client.Status().Patch(ctx, w, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("answer the admission check of Workload %s/%s with %s: %w", w.Namespace, w.Name, a.state, err)
	}
	log.FromContext(ctx).Info("Admission check answered", "workload", w.Name, "namespace", w.Namespace, "state", a.state, "message", a.message)
	return nil
}

// changes reports whether the answer is news. Rejected is Kueue's to take up, and so is Retry, which is never said here.
func (a answer) changes(c kueuev1beta2.AdmissionCheckState) bool {
	if c.State == kueuev1beta2.CheckStateRetry || c.State == kueuev1beta2.CheckStateRejected {
		return false
	}
	return c.State != a.state || c.Message != limited(a.message)
}

// limited keeps a message within what the API server takes (32 KiB); a person reads less.
func limited(message string) string {
	const most = 2000
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}

func isOneOf(checks []check, name kueuev1beta2.AdmissionCheckReference) bool {
	return slices.ContainsFunc(checks, func(c check) bool { return c.name == name })
}

// tell writes an event where the user looks: on the Job.
func (r *reconciler) tell(key Key, kind, reason, format string, arguments ...any) {
	job := &corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: key.Namespace, Name: key.Name, UID: key.UID}
	r.recorder.Eventf(job, nil, kind, reason, "Admit", format, arguments...)
}
