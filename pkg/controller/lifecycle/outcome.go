package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// decideOutcome says what became of a pod that the scheduler had decided to stop, when the pod is over or given up. What was found to
// be lost is counted as it was believed: GPUs × (end − last checkpoint + restart), only with the checkpoint and the end as they turned out.
func decideOutcome(facts podFacts, record ledger.PreemptionRecord) ledger.PreemptionOutcome {
	pod, held := facts.pod, workload.Held(facts.pod)
	outcome := ledger.PreemptionOutcome{Key: record.Key, VictimUID: record.Victim.UID, Preempted: stoppedByScheduler(pod), StoppedAt: held.End}
	if outcome.StoppedAt.IsZero() {
		outcome.StoppedAt = facts.now // never held anything, or nobody saw its end
	}
	if !outcome.Preempted || held.Start.IsZero() {
		return outcome
	}
	said, _ := workload.ReadCheckpoints(pod.Annotations)
	since := record.LostSince
	if at, err := said.LastAt(held.Start, outcome.StoppedAt); err == nil && !at.IsZero() {
		outcome.CheckpointedAt, since = at, at
	}
	if since.Before(held.Start) {
		since = held.Start
	}
	lost := max(0, int64(outcome.StoppedAt.Sub(since)/time.Second)) + record.RestartSeconds
	outcome.LostGPUSeconds = record.Victim.GPUs * lost
	return outcome
}

func stoppedByScheduler(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget {
			return condition.Status == corev1.ConditionTrue && condition.Reason == corev1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

// recordOutcomes closes the scheduler's decisions about a pod, before its object may go.
func (r *PodReconciler) recordOutcomes(ctx context.Context, key PodKey, facts podFacts) error {
	if facts.pod == nil {
		return nil
	}
	records, err := r.ledger.PreemptionsOfVictim(ctx, key.UID)
	if err != nil {
		return fmt.Errorf("read whether pod %s/%s was to be stopped for another: %w", key.Namespace, key.Name, err)
	}
	preempted := false
	for i := len(records) - 1; i >= 0; i-- { // the latest first: it is what was carried out
		record := records[i]
		outcome := decideOutcome(facts, record)
		if preempted && outcome.Preempted {
			// An earlier decision that a crash kept from being carried out; one stop is counted once.
			outcome.Preempted, outcome.CheckpointedAt, outcome.LostGPUSeconds = false, time.Time{}, 0
		}
		preempted = preempted || outcome.Preempted
		if record.Outcome != nil {
			continue
		}
		first, err := r.ledger.RecordPreemptionOutcome(ctx, outcome)
		if err != nil {
			return err
		}
		if first && outcome.Preempted {
			r.metrics.lost.WithLabelValues(record.Victim.Account, string(record.Reason)).Add(float64(outcome.LostGPUSeconds))
			if record.LostGPUSeconds > 0 {
				r.metrics.estimates.Observe(float64(outcome.LostGPUSeconds) / float64(record.LostGPUSeconds))
			}
		}
	}
	return nil
}
