package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

func TestPreemptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	epoch, err := f.store.AcquireLeadership(ctx, "scheduler", "first")
	if err != nil {
		t.Fatal(err)
	}
	row := func(key, victim string, at float64) ledger.Preemption {
		return ledger.Preemption{
			Key: key, DecidedAt: lt.At(at), Leader: "scheduler", LeaderEpoch: epoch, Reason: ledger.PreemptedByPriority, Node: "n1",
			Preemptor: ledger.PreemptionParty{
				UID: "big", Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "a", Name: "big"}, Workload: "job-big", Account: "a", GPUs: 8, Priority: 100,
			},
			Victim: ledger.PreemptionParty{
				UID: victim, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "b", Name: victim}, Workload: "job-" + victim, Account: "b", GPUs: 4, Priority: -1,
			},
			LostSince: lt.At(at - 600), RestartSeconds: 180, LostGPUSeconds: 4 * 780,
		}
	}
	record := func(rows ...ledger.Preemption) bool {
		t.Helper()
		current, err := f.store.RecordPreemption(ctx, rows)
		if err != nil {
			t.Fatal(err)
		}
		return current
	}
	first, second, fresh := row("k1", "v1", 1000), row("k1", "v2", 1000), row("k2", "v1", 2000)
	fresh.LostSince, fresh.Reason, fresh.Victim.Account = time.Time{}, ledger.PreemptedByReclaim, ""
	if !record(first, second) || !record(first, second) || !record(fresh) {
		t.Error("the current leader is not believed")
	}
	stopped := ledger.PreemptionOutcome{Key: "k1", VictimUID: "v1", Preempted: true, StoppedAt: lt.At(1030), CheckpointedAt: lt.At(990), LostGPUSeconds: 4 * 220}
	otherwise := ledger.PreemptionOutcome{Key: "k1", VictimUID: "v2", StoppedAt: lt.At(1001)}
	for i, outcome := range []ledger.PreemptionOutcome{stopped, otherwise, {Key: "k1", VictimUID: "v1", StoppedAt: lt.At(5000)}} {
		first, err := f.store.RecordPreemptionOutcome(ctx, outcome)
		if err != nil || first != (i < 2) {
			t.Errorf("outcome %d: first %v, %v", i, first, err)
		}
	}
	all := []ledger.PreemptionRecord{{Preemption: first, Outcome: &stopped}, {Preemption: second, Outcome: &otherwise}, {Preemption: fresh}}
	for name, c := range map[string]struct {
		read func() ([]ledger.PreemptionRecord, error)
		want []ledger.PreemptionRecord
	}{
		"all":         {func() ([]ledger.PreemptionRecord, error) { return f.store.PreemptionsSince(ctx, lt.At(0)) }, all},
		"since":       {func() ([]ledger.PreemptionRecord, error) { return f.store.PreemptionsSince(ctx, lt.At(1001)) }, all[2:]},
		"of a victim": {func() ([]ledger.PreemptionRecord, error) { return f.store.PreemptionsOfVictim(ctx, "v1") }, []ledger.PreemptionRecord{all[0], all[2]}},
		"of nobody":   {func() ([]ledger.PreemptionRecord, error) { return f.store.PreemptionsOfVictim(ctx, "v3") }, nil},
	} {
		got, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	// A newer leader: the old one may stop nobody (I7).
	if _, err := f.store.AcquireLeadership(ctx, "scheduler", "second"); err != nil {
		t.Fatal(err)
	}
	if record(row("k3", "v3", 3000)) {
		t.Error("a stale leader is believed")
	}
	if found, err := f.store.PreemptionsOfVictim(ctx, "v3"); err != nil || len(found) != 0 {
		t.Errorf("a stale leader's decision is kept: %v, %v", found, err)
	}

	var broken *postgres.ConstraintError
	itself := row("k4", "big", 3000)
	itself.LeaderEpoch++
	if _, err := f.store.RecordPreemption(ctx, []ledger.Preemption{itself}); !errors.As(err, &broken) || broken.Constraint != "preemption_stops_another" {
		t.Errorf("a pod that stops itself: %v", err)
	}
	free := ledger.PreemptionOutcome{Key: "k2", VictimUID: "v1", StoppedAt: lt.At(1), LostGPUSeconds: 1}
	if _, err := f.store.RecordPreemptionOutcome(ctx, free); !errors.As(err, &broken) || broken.Constraint != "preemption_finds_nothing_negative" {
		t.Errorf("a loss of what was not stopped: %v", err)
	}
}

// Whoever leads anew waits for a decision that is being recorded: after it has the epoch, no older decision appears.
func TestPreemptionBeforeANewerLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	epoch, err := f.store.AcquireLeadership(ctx, "scheduler", "first")
	if err != nil {
		t.Fatal(err)
	}
	recorded := make(chan bool, 50)
	go func() {
		defer close(recorded)
		for i := range cap(recorded) {
			current, err := f.store.RecordPreemption(ctx, []ledger.Preemption{{
				Key: time.Unix(int64(i), 0).String(), DecidedAt: lt.At(0), Leader: "scheduler", LeaderEpoch: epoch, Reason: ledger.PreemptedByPriority,
				Preemptor: ledger.PreemptionParty{UID: "big"}, Victim: ledger.PreemptionParty{UID: "v"},
			}})
			if err != nil {
				t.Error(err)
			}
			recorded <- current
		}
	}()
	<-recorded
	if _, err := f.store.AcquireLeadership(ctx, "scheduler", "second"); err != nil {
		t.Fatal(err)
	}
	before, err := f.store.PreemptionsSince(ctx, lt.At(0))
	if err != nil {
		t.Fatal(err)
	}
	for range recorded {
	}
	after, err := f.store.PreemptionsSince(ctx, lt.At(0))
	if err != nil || len(after) != len(before) {
		t.Errorf("%d decisions when the newer leader began, %d later, %v", len(before), len(after), err)
	}
}
