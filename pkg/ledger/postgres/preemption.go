package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// RecordPreemption keeps one decision: the rows share a key, time, leadership, node and preemptor, and there is at least one. Repeats
// change nothing. current is false, and nothing is kept, when a newer leader has taken over (I7): then nobody may be evicted.
func (s *Store) RecordPreemption(ctx context.Context, rows []ledger.Preemption) (current bool, err error) {
	n := len(rows)
	var (
		uids, namespaces, names     = make([]string, n), make([]string, n), make([]string, n)
		workloads, accounts, reason = make([]string, n), make([]string, n), make([]string, n)
		gpus, priorities            = make([]int64, n), make([]int64, n)
		restarts, lost              = make([]int64, n), make([]int64, n)
		since                       = make([]*time.Time, n)
	)
	for i, row := range rows {
		v := row.Victim
		uids[i], namespaces[i], names[i], workloads[i], accounts[i] = v.UID, v.Pod.Namespace, v.Pod.Name, v.Workload, v.Account
		gpus[i], priorities[i], reason[i] = v.GPUs, v.Priority, string(row.Reason)
		since[i], restarts[i], lost[i] = nullable(ledger.Instant(row.LostSince)), row.RestartSeconds, row.LostGPUSeconds
	}
	first := rows[0]
	p := first.Preemptor
	_, current, err = readOne(ctx, s, "PreemptionRecord", pgx.RowTo[string],
		first.Leader, first.LeaderEpoch, first.Key, ledger.Instant(first.DecidedAt), first.Node,
		p.UID, p.Pod.Namespace, p.Pod.Name, p.Workload, p.Account, p.GPUs, p.Priority,
		uids, namespaces, names, workloads, accounts, gpus, priorities, reason, since, restarts, lost)
	if err != nil {
		return false, fmt.Errorf("record that pod %s/%s is to stop %d others: %w", p.Pod.Namespace, p.Pod.Name, n, err)
	}
	return current, nil
}

// PreemptionsSince reads the decisions made at or after a moment, oldest first.
func (s *Store) PreemptionsSince(ctx context.Context, since time.Time) ([]ledger.PreemptionRecord, error) {
	return readAll(ctx, s, "PreemptionsSince", scanPreemption, ledger.Instant(since))
}

// PreemptionsOfVictim reads the decisions to stop a pod, oldest first.
func (s *Store) PreemptionsOfVictim(ctx context.Context, podUID string) ([]ledger.PreemptionRecord, error) {
	return readAll(ctx, s, "PreemptionsOfVictim", scanPreemption, podUID)
}

// RecordPreemptionOutcome keeps what became of a victim. The first finding stands; first says whether this is it.
func (s *Store) RecordPreemptionOutcome(ctx context.Context, o ledger.PreemptionOutcome) (first bool, err error) {
	_, first, err = readOne(ctx, s, "PreemptionOutcomeRecord", pgx.RowTo[string],
		o.Key, o.VictimUID, o.Preempted, ledger.Instant(o.StoppedAt), nullable(ledger.Instant(o.CheckpointedAt)), o.LostGPUSeconds)
	if err != nil {
		return false, fmt.Errorf("record what became of pod %s after the decision %s: %w", o.VictimUID, o.Key, err)
	}
	return first, nil
}

func scanPreemption(row pgx.CollectableRow) (r ledger.PreemptionRecord, err error) {
	var (
		since, stopped, checkpointed *time.Time
		preempted                    *bool
		found                        *int64
	)
	p, v := &r.Preemptor, &r.Victim
	err = row.Scan(&r.Key, &r.DecidedAt, &r.Leader, &r.LeaderEpoch, &r.Reason, &r.Node,
		&p.UID, &p.Pod.Namespace, &p.Pod.Name, &p.Workload, &p.Account, &p.GPUs, &p.Priority,
		&v.UID, &v.Pod.Namespace, &v.Pod.Name, &v.Workload, &v.Account, &v.GPUs, &v.Priority,
		&since, &r.RestartSeconds, &r.LostGPUSeconds, &preempted, &stopped, &checkpointed, &found)
	p.Pod.Kind, v.Pod.Kind = "Pod", "Pod"
	r.DecidedAt, r.LostSince = r.DecidedAt.UTC(), fromNullable(since)
	if preempted != nil && stopped != nil && found != nil {
		r.Outcome = &ledger.PreemptionOutcome{
			Key: r.Key, VictimUID: v.UID, Preempted: *preempted, StoppedAt: stopped.UTC(), CheckpointedAt: fromNullable(checkpointed), LostGPUSeconds: *found,
		}
	}
	return r, err
}
