package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Events about holds that do not last. Users and their scripts look for these names.
const (
	eventHoldEndsAt     = "HoldEndsAt"
	eventHoldRenewed    = "HoldRenewed"
	eventRenewalRefused = "RenewalRefused"
)

// followOverrun carries out what the account's policy says about a reservation whose pods run, and returns when to look
// again, 0 for no particular time.
func (r *WorkloadReconciler) followOverrun(ctx context.Context, facts workloadFacts) (time.Duration, error) {
	over, err := r.gatherOverrun(ctx, facts)
	if err != nil || len(over.pods) == 0 {
		return 0, err
	}
	plan := decideOverrun(over)
	if plan.renew != nil {
		verdict, err := r.renew(ctx, over, *plan.renew)
		switch {
		case err != nil:
			return 0, err
		case verdict.Refusal == nil:
			return time.Millisecond, nil // what it lasts for now is decided from what the ledger says now
		}
		over.refused = verdict.Refusal
		plan = decideOverrun(over)
	}
	r.announceStop(over, plan)
	return plan.lookAgain, r.stop(ctx, over, plan)
}

// gatherOverrun reads what a hold's end depends on. It reads nothing, and there are no pods, where nothing runs.
func (r *WorkloadReconciler) gatherOverrun(ctx context.Context, facts workloadFacts) (overrunFacts, error) {
	over := overrunFacts{now: facts.now, reservation: facts.reservation, allocations: facts.allocations}
	for _, allocation := range facts.allocations {
		if !holdsGPUs(allocation) {
			continue
		}
		key := podKeyOf(allocation)
		pod, err := r.cluster.pod(ctx, key)
		if err != nil {
			return over, err
		}
		if pod != nil {
			over.pods = append(over.pods, runningPod{key: key, deadline: deadlineOf(pod, allocation), deleting: pod.DeletionTimestamp != nil})
		}
	}
	if len(over.pods) == 0 {
		return over, nil
	}
	spender, _, err := r.ledger.Account(ctx, facts.reservation.Account)
	if err != nil {
		return over, fmt.Errorf("read account %s of workload %s: %w", facts.reservation.Account, facts.reservation.UID, err)
	}
	over.overrun = spender.Policy.Overrun
	if over.overrun.Action == ledger.OverrunOverdraft {
		payer, _, err := r.ledger.Account(ctx, facts.reservation.Payer)
		if err != nil {
			return over, fmt.Errorf("read account %s, which pays for workload %s: %w", facts.reservation.Payer, facts.reservation.UID, err)
		}
		over.payerRoom = payer.Available() + payer.Policy.OverdraftLimit
	}
	return over, nil
}

// deadlineOf is when the pod's kubelet stops it by its own activeDeadlineSeconds.
func deadlineOf(pod *corev1.Pod, allocation ledger.Allocation) time.Time {
	seconds := pod.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return time.Time{}
	}
	return allocation.StartedAt.Add(time.Duration(*seconds) * time.Second)
}

// renew asks the ledger. A renewal that was refused before is asked for afresh, since a grant may have come.
func (r *WorkloadReconciler) renew(ctx context.Context, facts overrunFacts, command ledger.RenewHold) (ledger.Verdict, error) {
	failpoint.Hit("controller.before-renew")
	verdict, err := submission.Anew(ctx, r.ledger, facts.now, command.Key, func(key string) ledger.Command {
		command.Key = key
		return command
	})
	if err != nil {
		return verdict, fmt.Errorf("renew the hold of workload %s: %w", command.UID, err)
	}
	failpoint.Hit("controller.after-renew")
	if refusal := verdict.Refusal; refusal != nil {
		r.metrics.renewals.WithLabelValues("refused").Inc()
		log.FromContext(ctx).Info("Ledger does not renew the hold", "workload", facts.reservation.Workload, "code", refusal.Code, "message", refusal.Message)
		return verdict, nil
	}
	r.metrics.renewals.WithLabelValues("granted").Inc()
	if renewed := verdict.Reservation; renewed != nil && !verdict.Replayed {
		r.recorder.Eventf(workloadReference(*renewed), nil, corev1.EventTypeNormal, eventHoldRenewed, "Renew",
			"the credits for %d GPU-seconds more are set aside", command.GPUSeconds)
	}
	return verdict, nil
}

// announceStop tells the workload and its pods when they are stopped, once for each moment.
func (r *WorkloadReconciler) announceStop(facts overrunFacts, plan overrunPlan) {
	uid := facts.reservation.UID
	if len(plan.announce) == 0 || !r.announced.first(uid, plan.endsAt) {
		return
	}
	why := fmt.Sprintf("the %s credits set aside for this %s are used up at %s; its pods are then stopped, each with its own grace period",
		ledger.DisplayCredits(facts.reservation.Amount), facts.reservation.Workload.Kind, plan.endsAt.UTC().Format(time.RFC3339))
	if facts.overrun.Action == ledger.OverrunOverdraft {
		why = fmt.Sprintf("the %s credits set aside for this %s and the overdraft of account %s are used up at %s; its pods are then stopped, each with its own grace period",
			ledger.DisplayCredits(facts.reservation.Amount), facts.reservation.Workload.Kind, facts.reservation.Payer, plan.endsAt.UTC().Format(time.RFC3339))
	}
	// Events that differ only in their note are kept as repeats of the first, with its note: the moment must not be lost so.
	action := "StopAt:" + plan.endsAt.UTC().Format(time.RFC3339)
	references := []*corev1.ObjectReference{workloadReference(facts.reservation)}
	for _, key := range plan.announce {
		if key.UID != uid { // a pod with a hold of its own is the workload
			references = append(references, podReference(key))
		}
	}
	for _, reference := range references {
		if facts.refused != nil {
			r.recorder.Eventf(reference, nil, corev1.EventTypeWarning, eventRenewalRefused, "Renew", "the hold is not renewed: %s", facts.refused.Message)
		}
		r.recorder.Eventf(reference, nil, corev1.EventTypeWarning, eventHoldEndsAt, action, "%s", why)
	}
}

// stop deletes pods, each with its own grace period, and only those that were decided about: a pod of the same name and
// another UID is let alone.
func (r *WorkloadReconciler) stop(ctx context.Context, facts overrunFacts, plan overrunPlan) error {
	for _, key := range plan.stop {
		failpoint.Hit("controller.before-stop")
		uid := types.UID(key.UID)
		err := r.client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
			client.Preconditions{UID: &uid})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // it is gone, or replaced
		}
		if err != nil {
			return fmt.Errorf("stop pod %s/%s, whose hold is used up: %w", key.Namespace, key.Name, err)
		}
		failpoint.Hit("controller.after-stop")
		r.metrics.stops.Inc()
		log.FromContext(ctx).Info("Pod was asked to stop: its hold is used up", "pod", key, "workload", facts.reservation.Workload,
			"heldMicrocredits", int64(facts.reservation.Amount))
	}
	return nil
}

// announcements remembers when each workload was told that it ends, so that it is told once. After a restart it is told
// again.
type announcements struct {
	mu   sync.Mutex
	ends map[string]time.Time
}

// first reports whether this end was not announced yet, and remembers it. Ends are whole seconds that were rounded up, so
// one that is a second away is the same.
func (a *announcements) first(uid string, endsAt time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if told, known := a.ends[uid]; known && endsAt.Sub(told).Abs() <= time.Second {
		return false
	}
	if a.ends == nil {
		a.ends = map[string]time.Time{}
	}
	a.ends[uid] = endsAt
	return true
}

func (a *announcements) forget(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ends, uid)
}
