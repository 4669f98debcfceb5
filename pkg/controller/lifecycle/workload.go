package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// WorkloadLedger is what the workload reconciler needs of the store.
type WorkloadLedger interface {
	submission.Ledger
	// Reservation returns the workload's row and whether there is one.
	Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error)
	// ReservationAllocations returns every allocation made under it, also ended and released ones.
	ReservationAllocations(ctx context.Context, uid string) ([]ledger.Allocation, error)
	// Account returns the account's row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
}

// WorkloadReconciler follows reservations: it closes those whose workload is over, and renews or stops what outlasts its
// hold. See the package documentation.
type WorkloadReconciler struct {
	cluster    cluster
	client     client.Client
	ledger     WorkloadLedger
	recorder   events.EventRecorder
	clock      clock.PassiveClock
	holdExpiry time.Duration
	metrics    *metrics
	announced  announcements
}

// Reconcile implements reconcile.TypedReconciler.
func (r *WorkloadReconciler) Reconcile(ctx context.Context, key WorkloadKey) (ctrl.Result, error) {
	facts, open, err := r.gather(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !open {
		r.announced.forget(key.UID)
		return ctrl.Result{}, nil
	}
	command, wait := decideWorkload(facts)
	if command == nil {
		until, err := r.followOverrun(ctx, facts)
		return ctrl.Result{RequeueAfter: soonest(wait, until)}, err
	}
	return r.close(ctx, facts, *command)
}

func (r *WorkloadReconciler) gather(ctx context.Context, key WorkloadKey) (facts workloadFacts, open bool, err error) {
	reservation, known, err := r.ledger.Reservation(ctx, key.UID)
	if err != nil {
		return facts, false, fmt.Errorf("read reservation of workload %s: %w", key.UID, err)
	}
	if !known || !reservation.Open() {
		return facts, false, nil
	}
	facts = workloadFacts{now: r.clock.Now(), reservation: reservation, seen: key.Seen, holdExpiry: r.holdExpiry}
	if facts.allocations, err = r.ledger.ReservationAllocations(ctx, key.UID); err != nil {
		return facts, false, fmt.Errorf("read allocations of workload %s: %w", key.UID, err)
	}
	facts.object, err = r.objectOf(ctx, reservation, facts.allocations)
	return facts, true, err
}

func (r *WorkloadReconciler) objectOf(ctx context.Context, reservation ledger.Reservation, allocations []ledger.Allocation) (objectState, error) {
	switch workload := reservation.Workload; workload.Kind {
	case "Job":
		job, err := r.cluster.job(ctx, reservation.UID, workload)
		if err != nil || job == nil {
			return objectGone, err
		}
		return jobState(job), nil
	case "Pod":
		pod, err := r.cluster.pod(ctx, PodKey{UID: reservation.UID, Namespace: workload.Namespace, Name: workload.Name})
		if err != nil || pod == nil {
			return objectGone, err
		}
		return podState(pod, allocations), nil
	}
	return objectForeign, nil
}

func (r *WorkloadReconciler) close(ctx context.Context, facts workloadFacts, command ledger.CloseReservation) (ctrl.Result, error) {
	verdict, err := submission.Anew(ctx, r.ledger, facts.now, command.Key, func(key string) ledger.Command {
		command.Key = key
		return command
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("close reservation of workload %s: %w", command.UID, err)
	}
	logger := log.FromContext(ctx)
	switch refusal := verdict.Refusal; {
	case refusal == nil:
	case refusal.Code == ledger.ReservationClosed:
		return ctrl.Result{}, nil // somebody else closed it since it was read
	default:
		// ReservationInUse: an allocation was made since it was read; its end will ask again, and so will the sweep.
		logger.Info("Ledger keeps the reservation open", "code", refusal.Code, "message", refusal.Message)
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	}
	if verdict.Replayed {
		return ctrl.Result{}, nil
	}
	r.announced.forget(command.UID)
	closed := *verdict.Reservation
	r.metrics.settlements.WithLabelValues(string(closed.State)).Inc()
	logger.Info("Reservation closed", "workload", closed.Workload, "outcome", closed.State, "reason", closed.Reason,
		"heldMicrocredits", int64(closed.Amount), "chargedMicrocredits", int64(closed.Charged))
	r.announce(closed)
	return ctrl.Result{}, nil
}

// announce writes the outcome where the user looks: on the Job or pod, which may be gone.
func (r *WorkloadReconciler) announce(closed ledger.Reservation) {
	r.recorder.Eventf(workloadReference(closed), nil, corev1.EventTypeNormal, string(closed.State), "Settle", "%s", settlementSentence(closed))
}

func workloadReference(reservation ledger.Reservation) *corev1.ObjectReference {
	workload := reservation.Workload
	reference := &corev1.ObjectReference{
		APIVersion: "v1", Kind: workload.Kind, Namespace: workload.Namespace, Name: workload.Name, UID: types.UID(reservation.UID),
	}
	if workload.Kind == "Job" {
		reference.APIVersion = "batch/v1"
	}
	return reference
}
