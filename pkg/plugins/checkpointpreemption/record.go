package checkpointpreemption

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Records is what the plugin needs of the ledger.
type Records interface {
	// RecordPreemption keeps the rows of one decision. Repeating it is safe. current is false if another scheduler leads now; then nothing is
	// kept, and nobody may be evicted.
	RecordPreemption(ctx context.Context, rows []ledger.Preemption) (current bool, err error)
	// PreemptionsSince returns the decisions made at or after a moment.
	PreemptionsSince(ctx context.Context, since time.Time) ([]ledger.PreemptionRecord, error)
}

// remembered is for how long a workload that was stopped is known to have been; see Cooldown.
const remembered = time.Hour

// recordTimeout bounds the wait for the ledger's record; then nobody is evicted, and the pod is tried again.
const recordTimeout = 10 * time.Second

// decision is whom one pod is to stop, and why.
type decision struct {
	key       string
	node      string
	cost      victims.Cost
	preemptor *corev1.Pod
	victims   []*corev1.Pod // also those that are stopping by themselves
	rows      map[string]ledger.Preemption
	nodes     int // that had a choice

	once sync.Once
	err  error
}

// decide is the bid as a decision.
func (s *scene) decide(b *bid, nodes int) *decision {
	moment := time.Unix(s.now, 0).UTC()
	d := &decision{
		key:  fmt.Sprintf("preempt:%s:%d", s.pod.UID, s.pl.clock.Now().UnixNano()),
		node: b.node.Node().Name, preemptor: s.pod, cost: b.choice.Cost, nodes: nodes, rows: map[string]ledger.Preemption{},
	}
	preemptor := ledger.PreemptionParty{
		UID: string(s.pod.UID), Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: s.pod.Namespace, Name: s.pod.Name},
		Workload: workload.HoldUID(s.pod), Account: s.account, GPUs: s.demand.GPUs, Priority: int64(s.priority),
	}
	for _, f := range b.pods() {
		d.victims = append(d.victims, f.pod)
		if f.stoppingUntil != 0 {
			continue
		}
		row := ledger.Preemption{
			Key: d.key, DecidedAt: moment, Leader: s.pl.args.Leadership, Reason: s.reason(f), Node: d.node, Preemptor: preemptor,
			Victim: ledger.PreemptionParty{
				UID: string(f.pod.UID), Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: f.pod.Namespace, Name: f.pod.Name},
				Workload: f.workload, Account: s.space(f.pod.Namespace).account, GPUs: f.gpus, Priority: int64(f.priority),
			},
			RestartSeconds: f.work.Restart, LostGPUSeconds: s.policy.Lost(f.work, s.now),
		}
		if f.started != 0 {
			row.LostSince = time.Unix(s.policy.Since(f.work, s.now), 0).UTC()
		}
		d.rows[string(f.pod.UID)] = row
	}
	return d
}

// record has the ledger keep the decision, once, before anybody is evicted. It may be called for each victim at once.
func (pl *CheckpointPreemption) record(ctx context.Context, d *decision) error {
	d.once.Do(func() {
		failpoint.Hit("scheduler.before-preemption-record")
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		d.err = pl.submit(ctx, d)
		if d.err == nil {
			failpoint.Hit("scheduler.after-preemption-record")
		}
	})
	return d.err
}

func (pl *CheckpointPreemption) submit(ctx context.Context, d *decision) error {
	epoch, err := pl.epoch(ctx, pl.args.Leadership)
	if err != nil {
		return fmt.Errorf("record whom a pod stops: %w", err)
	}
	rows := make([]ledger.Preemption, 0, len(d.rows))
	for _, row := range d.rows {
		row.LeaderEpoch = epoch
		rows = append(rows, row)
	}
	current, err := pl.records.RecordPreemption(ctx, rows)
	if err != nil {
		return err
	}
	if !current {
		pl.exit("Another scheduler has acquired the leadership in the ledger; exiting, so that only one leads")
		return errors.New("another scheduler leads; nobody was evicted")
	}
	for _, row := range rows {
		pl.lately.add(row.Victim.Workload, types.UID(row.Victim.UID), row.DecidedAt.Unix())
	}
	return nil
}

// evicting wraps upstream's eviction of one victim: the record comes before, events and metrics after.
func (pl *CheckpointPreemption) evicting(next evictFunc) evictFunc {
	return func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *corev1.Pod, plugin string) (bool, error) {
		value, decided := pl.decisions.Load(preemptor.UID())
		d, _ := value.(*decision)
		if !decided || d.rows[string(victim.UID)].Key == "" {
			return next(ctx, c, preemptor, victim, plugin) // DefaultPreemption's
		}
		if err := pl.record(ctx, d); err != nil {
			refused.WithLabelValues(refusedByLedger).Inc()
			return false, err
		}
		inMemory, err := next(ctx, c, preemptor, victim, plugin)
		if err != nil {
			return inMemory, err
		}
		pl.tell(ctx, d, d.rows[string(victim.UID)], victim)
		return inMemory, nil
	}
}

type evictFunc = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *corev1.Pod, plugin string) (bool, error)

// tell says on both sides what was done, with the numbers.
func (pl *CheckpointPreemption) tell(ctx context.Context, d *decision, row ledger.Preemption, victim *corev1.Pod) {
	preempted.WithLabelValues(row.Victim.Account, string(row.Reason)).Inc()
	believed.WithLabelValues(row.Victim.Account, string(row.Reason)).Add(float64(row.LostGPUSeconds))
	age := time.Duration(0)
	if !row.LostSince.IsZero() {
		age = row.DecidedAt.Sub(row.LostSince)
		checkpointAge.Observe(age.Seconds())
	}
	recorder := pl.handle.EventRecorder().WithLogger(klog.FromContext(ctx))
	recorder.Eventf(victim, d.preemptor, corev1.EventTypeNormal, "StoppedForLeastLoss", "Preempting",
		"stopped for pod %s/%s (%s, its priority %d, here %d): %d GPUs × (%s since the last checkpoint + %d s restart) = %d GPU-seconds; all that it stops lose %d, the least of %d nodes",
		row.Preemptor.Pod.Namespace, row.Preemptor.Pod.Name, row.Reason, row.Preemptor.Priority, row.Victim.Priority,
		row.Victim.GPUs, age, row.RestartSeconds, row.LostGPUSeconds, d.cost.Lost, d.nodes)
	recorder.Eventf(d.preemptor, victim, corev1.EventTypeNormal, "Stopping", "Preempting",
		"pod %s/%s is stopped for this one (%s): %d GPUs, %d GPU-seconds of work; %d GPUs on node %s become free when it has stopped",
		row.Victim.Pod.Namespace, row.Victim.Pod.Name, row.Reason, row.Victim.GPUs, row.LostGPUSeconds, d.cost.GPUs, d.node)
}

// recently is which workloads were stopped, and when.
type recently struct {
	mu      sync.Mutex
	stopped map[string]stop // by workload's UID
}

// stop is when a workload was stopped last, in seconds since 1970, and the UIDs of the pods that were chosen for it.
type stop struct {
	at   int64
	pods map[types.UID]bool
}

func (r *recently) add(workload string, pod types.UID, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for known, last := range r.stopped {
		if last.at < at-int64(remembered/time.Second) {
			delete(r.stopped, known)
		}
	}
	last := r.stopped[workload]
	if last.pods == nil {
		last.pods = map[types.UID]bool{}
	}
	last.at, last.pods[pod] = max(last.at, at), true
	r.stopped[workload] = last
}

// before reports whether a workload was stopped lately, before its present attempt, a pod, started. Starts are known by the second, so
// that a pod which was itself chosen, and not stopped, would look like the next attempt by time alone.
func (r *recently) before(workload string, pod types.UID, started, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.stopped[workload]
	return known && !last.pods[pod] && last.at <= started && last.at >= now-int64(remembered/time.Second)
}

// remember reads whom earlier processes have stopped lately. Until it has, nobody's cooldown is known.
func (pl *CheckpointPreemption) remember(ctx context.Context) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, recordTimeout)
		found, err := pl.records.PreemptionsSince(asking, pl.clock.Now().Add(-remembered))
		cancel()
		if err == nil {
			for _, record := range found {
				if record.Outcome == nil || record.Outcome.Preempted {
					pl.lately.add(record.Victim.Workload, types.UID(record.Victim.UID), record.DecidedAt.Unix())
				}
			}
			return
		}
		klog.FromContext(ctx).V(2).Info("Cannot read yet whom earlier schedulers have stopped", "err", err)
		select {
		case <-ctx.Done():
		case <-pl.clock.After(recordTimeout):
		}
	}
}
