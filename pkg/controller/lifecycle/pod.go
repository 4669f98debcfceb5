package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// leadership is the name under which this controller's epoch is kept in the ledger. It is its own, so that allocating late
// never fences off the scheduler.
const leadership = "credit-controller"

// retryRefused is how soon something that the ledger refused is looked at again.
const retryRefused = 10 * time.Second

// PodLedger is what the pod reconciler needs of the store.
type PodLedger interface {
	submission.Ledger
	// Allocation returns the pod's row and whether there is one.
	Allocation(ctx context.Context, podUID string) (ledger.Allocation, bool, error)
	// LastMetered returns the end of the pod's latest interval and whether there is one.
	LastMetered(ctx context.Context, podUID string) (time.Time, bool, error)
	// Reservation returns the workload's row and whether there is one.
	Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error)
	// Account returns the account's row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
	// DeviceFaults returns what a node's agent reported of its GPUs that may have happened within [from, to].
	DeviceFaults(ctx context.Context, node string, from, to time.Time) ([]ledger.DeviceFault, error)
	// PreemptionsOfVictim returns the scheduler's decisions to stop a pod for others, oldest first.
	PreemptionsOfVictim(ctx context.Context, podUID string) ([]ledger.PreemptionRecord, error)
	// RecordPreemptionOutcome keeps what became of a pod after such a decision; the first finding stands.
	RecordPreemptionOutcome(ctx context.Context, outcome ledger.PreemptionOutcome) (first bool, err error)
	// AcquireLeadership returns a new, higher epoch for holder; writes under an older one are refused from then on (I7).
	AcquireLeadership(ctx context.Context, name, holder string) (int64, error)
}

// PodReconciler follows pods and their allocations. See the package documentation.
type PodReconciler struct {
	cluster    cluster
	client     client.Client
	ledger     PodLedger
	recorder   events.EventRecorder
	clock      clock.PassiveClock
	heartbeats *heartbeats
	nodeGrace  time.Duration
	metrics    *metrics
	workloads  inbox[WorkloadKey]
	// holder names this process as leader.
	holder string

	// placed says which pods are on which node.
	placed *placements

	mu          sync.Mutex
	leaderEpoch int64
	sights      map[string]sight // pod UID → what a watch last showed before it went
	// ignored is what each running pod was last told of a report that cannot be used, by UID, so that it is told once.
	ignored map[string]string
}

// Reconcile implements reconcile.TypedReconciler.
func (r *PodReconciler) Reconcile(ctx context.Context, key PodKey) (ctrl.Result, error) {
	facts, err := r.gather(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.apply(ctx, key, facts, decidePod(key, facts))
}

func (r *PodReconciler) gather(ctx context.Context, key PodKey) (podFacts, error) {
	facts := podFacts{now: r.clock.Now(), nodeGrace: r.nodeGrace}
	// The ledger before the cluster: an allocation that is released because its pod is gone was read before the pod was
	// looked for.
	allocation, known, err := r.ledger.Allocation(ctx, key.UID)
	if err != nil {
		return facts, fmt.Errorf("read allocation of pod %s/%s: %w", key.Namespace, key.Name, err)
	}
	if known {
		facts.allocation = &allocation
	}
	if facts.pod, err = r.cluster.pod(ctx, key); err != nil {
		return facts, err
	}
	facts.sight = r.sightOf(key.UID)
	node := allocation.Node
	if facts.pod != nil && facts.pod.Spec.NodeName != "" {
		node = facts.pod.Spec.NodeName
	}
	if known && allocation.Open() || facts.pod != nil {
		if facts.node, err = r.cluster.node(ctx, node); err != nil {
			return facts, err
		}
		facts.node = r.heartbeats.complete(facts.node, node, facts.now)
	}
	if known && allocation.Open() && facts.endIsUnclear() {
		if facts.lastMetered, _, err = r.ledger.LastMetered(ctx, key.UID); err != nil {
			return facts, fmt.Errorf("read what was metered of pod %s/%s: %w", key.Namespace, key.Name, err)
		}
	}
	if !known && facts.pod != nil && facts.pod.Spec.NodeName != "" {
		if err := r.gatherForLate(ctx, &facts); err != nil {
			return facts, err
		}
	}
	return facts, r.gatherForRefund(ctx, &facts)
}

// gatherForRefund reads what an attempt's end may be refunded by.
func (r *PodReconciler) gatherForRefund(ctx context.Context, facts *podFacts) error {
	account := facts.enrolment.account
	if facts.allocation != nil {
		account = facts.allocation.Account
	}
	if account == "" || !facts.mayBeRefunded() {
		return nil
	}
	row, _, err := r.ledger.Account(ctx, account)
	if err != nil {
		return fmt.Errorf("read account %s, whose policy says what is refunded: %w", account, err)
	}
	facts.refunds = row.Policy.Refunds
	started := workload.Held(facts.pod).Start
	if !facts.refunds.DeviceFault || started.IsZero() {
		return nil
	}
	if facts.faults, err = r.ledger.DeviceFaults(ctx, facts.pod.Spec.NodeName, started, facts.now); err != nil {
		return fmt.Errorf("read what node %s reported of its GPUs: %w", facts.pod.Spec.NodeName, err)
	}
	return nil
}

// gatherForLate reads what a pod needs that is bound without an allocation.
func (r *PodReconciler) gatherForLate(ctx context.Context, facts *podFacts) error {
	pod := facts.pod
	classes, err := r.cluster.classes(ctx)
	if err != nil {
		return err
	}
	facts.demand, facts.demandErr = workload.DemandOf(&pod.Spec, pod.Labels, classes)
	if facts.demandErr == nil && facts.demand.IsZero() {
		return nil
	}
	if facts.enrolment, err = r.cluster.enrolment(ctx, pod.Namespace); err != nil || facts.enrolment.account == "" {
		return err
	}
	for _, uid := range []string{string(pod.UID), workload.HoldUID(pod)} {
		reservation, known, err := r.ledger.Reservation(ctx, uid)
		if err != nil {
			return fmt.Errorf("read reservation of workload %s: %w", uid, err)
		}
		pays := known && reservation.Open() && reservation.Account == facts.enrolment.account && reservation.Class == facts.demand.Class
		if pays {
			facts.cover.reservation = &reservation
			break
		}
	}
	facts.cover.leaderEpoch, err = r.epoch(ctx)
	return err
}

// epoch acquires this process's leadership in the ledger when it is first needed. Only a leader reconciles.
func (r *PodReconciler) epoch(ctx context.Context) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaderEpoch == 0 {
		epoch, err := r.ledger.AcquireLeadership(ctx, leadership, r.holder)
		if err != nil {
			return 0, fmt.Errorf("acquire leadership %s in the ledger: %w", leadership, err)
		}
		r.leaderEpoch = epoch
	}
	return r.leaderEpoch, nil
}

func (r *PodReconciler) apply(ctx context.Context, key PodKey, facts podFacts, p plan) (ctrl.Result, error) {
	logger := log.FromContext(ctx)
	var started, ended *ledger.Allocation
	for _, command := range p.commands {
		_, ends := command.(ledger.EndAllocation)
		if ends {
			failpoint.Hit("controller.before-settle")
		}
		verdict, err := submission.Anew(ctx, r.ledger, facts.now, command.CommandKey(), func(key string) ledger.Command {
			return withKey(command, key)
		})
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("tell the ledger about pod %s/%s: %w", key.Namespace, key.Name, err)
		}
		if refusal := verdict.Refusal; refusal != nil {
			logger.Info("Ledger refused what the cluster shows of the pod", "command", fmt.Sprintf("%T", command), "code", refusal.Code, "message", refusal.Message)
			r.alert(key, alertRefused, refusal.Error())
			return ctrl.Result{RequeueAfter: retryRefused}, nil
		}
		if ends {
			ended = verdict.Allocation
		} else if _, starts := command.(ledger.RecordStart); starts {
			started = verdict.Allocation
		}
	}
	if ended != nil {
		r.announceEnd(key, *ended)
		failpoint.Hit("controller.after-end-before-finalizer")
	}
	if p.refund != nil {
		if err := r.refund(ctx, key, p); err != nil {
			return ctrl.Result{}, err
		}
	}
	if p.removeFinalizer && (ended != nil || facts.allocation != nil) {
		if err := r.recordOutcomes(ctx, key, facts); err != nil {
			return ctrl.Result{}, err
		}
	}
	if p.alert != "" {
		logger.Info("Pod needs a person", "reason", p.alert, "message", p.alertMessage)
		r.alert(key, p.alert, p.alertMessage)
	}
	if err := r.applyFinalizer(ctx, facts.pod, p); err != nil {
		return ctrl.Result{}, err
	}
	r.tellWorkload(ctx, facts, started, ended)
	r.tellReporter(key, decideReport(facts))
	if facts.pod == nil && p.lookAgain == 0 {
		r.forgetSight(key.UID)
	}
	return ctrl.Result{RequeueAfter: p.lookAgain}, nil
}

// refund asks for the attempt's one refund. Whatever is remembered under its key is the answer, also when the pod's
// annotations say something else by now.
func (r *PodReconciler) refund(ctx context.Context, key PodKey, p plan) error {
	failpoint.Hit("controller.before-refund")
	verdict, err := r.ledger.Submit(ctx, *p.refund)
	if err != nil {
		return fmt.Errorf("refund the attempt of pod %s/%s: %w", key.Namespace, key.Name, err)
	}
	failpoint.Hit("controller.after-refund")
	if p.checkpointIgnored != "" {
		r.recorder.Eventf(podReference(key), nil, corev1.EventTypeWarning, "CheckpointIgnored", "Refund", "%s", p.checkpointIgnored)
	}
	refusal := verdict.Refusal
	switch {
	case refusal == nil && verdict.Refunded > 0 && !verdict.Replayed:
		r.metrics.refunds.WithLabelValues(string(p.refund.Cause)).Inc()
		r.recorder.Eventf(podReference(key), nil, corev1.EventTypeNormal, "Refunded", "Refund",
			"%s of %s credits charged are given back: %s", ledger.DisplayCredits(verdict.Refunded), ledger.DisplayCredits(verdict.Allocation.Charged), p.refund.Cause)
	case refusal == nil, refusal.Code == ledger.KeyReused, refusal.Code == ledger.AlreadyRefunded: // it was decided before
	default:
		log.FromContext(ctx).Info("Ledger refused a refund", "pod", key, "code", refusal.Code, "message", refusal.Message)
		r.alert(key, alertRefused, refusal.Error())
	}
	return nil
}

// applyFinalizer adds or removes the metering finalizer. The patch carries the resource version it was decided on.
func (r *PodReconciler) applyFinalizer(ctx context.Context, pod *corev1.Pod, p plan) error {
	if pod == nil || !p.addFinalizer && !p.removeFinalizer {
		return nil
	}
	base := pod.DeepCopy()
	if p.addFinalizer {
		controllerutil.AddFinalizer(pod, v1alpha1.MeteringFinalizer)
	} else {
		controllerutil.RemoveFinalizer(pod, v1alpha1.MeteringFinalizer)
	}
	err := r.client.Patch(ctx, pod, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the metering finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// tellWorkload has the pod's reservation looked at when the pod may have been the last thing that kept it open, and when
// its time begins to run.
func (r *PodReconciler) tellWorkload(ctx context.Context, facts podFacts, started, ended *ledger.Allocation) {
	switch {
	case ended != nil:
		r.workloads.put(ctx, WorkloadKey{UID: ended.Reservation})
	case started != nil:
		r.workloads.put(ctx, WorkloadKey{UID: started.Reservation})
	case facts.allocation != nil && (facts.pod == nil || !facts.pod.DeletionTimestamp.IsZero()):
		r.workloads.put(ctx, WorkloadKey{UID: facts.allocation.Reservation})
	}
}

// tellReporter tells a running pod, once, that what it says of its checkpoints is ignored.
func (r *PodReconciler) tellReporter(key PodKey, ignored string) {
	r.mu.Lock()
	told := ignored == "" || r.ignored[key.UID] == ignored
	switch {
	case ignored == "":
		delete(r.ignored, key.UID)
	case r.ignored == nil:
		r.ignored = map[string]string{key.UID: ignored}
	default:
		r.ignored[key.UID] = ignored
	}
	r.mu.Unlock()
	if !told {
		r.recorder.Eventf(podReference(key), nil, corev1.EventTypeWarning, "CheckpointIgnored", "Report", "%s", ignored)
	}
}

func (r *PodReconciler) alert(key PodKey, reason, message string) {
	r.metrics.alerts.WithLabelValues(reason).Inc()
	r.recorder.Eventf(podReference(key), nil, corev1.EventTypeWarning, reason, "Reconcile", "%s", message)
}

func (r *PodReconciler) announceEnd(key PodKey, allocation ledger.Allocation) {
	if allocation.Charged == 0 {
		return
	}
	r.recorder.Eventf(podReference(key), nil, corev1.EventTypeNormal, "Charged", "Settle",
		"held %d GPUs of class %s for %s: charged %s credits", allocation.GPUs, allocation.Class,
		allocation.EndedAt.Sub(allocation.StartedAt), ledger.DisplayCredits(allocation.Charged))
}

func podReference(key PodKey) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.UID)}
}

// withKey returns the command under another key.
func withKey(command ledger.Command, key string) ledger.Command {
	switch c := command.(type) {
	case ledger.Allocate:
		c.Key = key
		return c
	case ledger.ConfirmBound:
		c.Key = key
		return c
	case ledger.ReleaseAllocation:
		c.Key = key
		return c
	case ledger.RecordStart:
		c.Key = key
		return c
	case ledger.EndAllocation:
		c.Key = key
		return c
	case ledger.MarkSuspect:
		c.Key = key
		return c
	case ledger.ClearSuspect:
		c.Key = key
		return c
	}
	panic(fmt.Sprintf("lifecycle: decidePod made a %T, which withKey does not know", command))
}
