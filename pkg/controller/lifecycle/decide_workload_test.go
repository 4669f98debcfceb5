package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestDecideWorkload(t *testing.T) {
	held := ledger.Reservation{UID: "job-1", State: ledger.Held, Workload: ledger.WorkloadRef{Kind: "Job"}, CreatedAt: at(0)}
	active := held
	active.State = ledger.Active
	settled := held
	settled.State = ledger.Settled
	closing := func(outcome ledger.ReservationState, reason string) *ledger.CloseReservation {
		return &ledger.CloseReservation{Key: "close:job-1", UID: "job-1", Outcome: outcome, Reason: reason}
	}
	over := []ledger.Allocation{{State: ledger.AllocationEnded}, {State: ledger.AllocationReleased}}
	open := []ledger.Allocation{{State: ledger.AllocationEnded}, {State: ledger.AllocationSuspect}}

	tests := []struct {
		name     string
		facts    workloadFacts // holdExpiry is 300 s
		now      int
		want     *ledger.CloseReservation
		wantWait time.Duration
	}{
		{"waiting or suspended Job keeps its hold", workloadFacts{reservation: held}, 9999, nil, 0},
		{"running", workloadFacts{reservation: active, allocations: open}, 100, nil, 0},
		{"between two attempts", workloadFacts{reservation: active, allocations: over}, 100, nil, 0},
		{"finished, a pod still terminating", workloadFacts{reservation: active, allocations: open, object: objectFinished}, 100, nil, 0},
		{"finished", workloadFacts{reservation: active, allocations: over, object: objectFinished}, 100, closing(ledger.Settled, "Job ended"), 0},
		{"finished without a pod", workloadFacts{reservation: held, object: objectFinished}, 100, closing(ledger.Released, "Job ended without using a GPU"), 0},
		{"deleted, its pod still running", workloadFacts{reservation: active, allocations: open, object: objectGone, seen: true}, 100, nil, 0},
		{"deleted after use (B14)", workloadFacts{reservation: active, allocations: over, object: objectGone}, 100, closing(ledger.Settled, "Job is gone"), 0},
		{"deleted before use, seen", workloadFacts{reservation: held, object: objectGone, seen: true}, 1, closing(ledger.Released, "Job was deleted before it used a GPU"), 0},
		{"never stored, or not yet", workloadFacts{reservation: held, object: objectGone}, 100, nil, 200 * time.Second},
		{"never stored", workloadFacts{reservation: held, object: objectGone}, 300, closing(ledger.Expired, "the API server has no such Job"), 0},
		{"closed already (L11)", workloadFacts{reservation: settled, object: objectFinished}, 100, nil, 0},
		{"not ours to close", workloadFacts{reservation: held, object: objectForeign}, 9999, nil, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.facts.now, test.facts.holdExpiry = at(test.now), 5*time.Minute
			got, wait := decideWorkload(test.facts)
			if diff := cmp.Diff(test.want, got); diff != "" || wait != test.wantWait {
				t.Errorf("decideWorkload: wait %s, want %s; -want +got\n%s", wait, test.wantWait, diff)
			}
		})
	}
}

func TestJobStateWaitsForTheTerminalCondition(t *testing.T) {
	with := func(conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: conditions}}
	}
	for name, test := range map[string]struct {
		job  *batchv1.Job
		want objectState
	}{
		"new":                    {with(), objectThere},
		"suspended":              {with(batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}), objectThere},
		"pods still terminating": {with(batchv1.JobCondition{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}), objectThere},
		"not failed":             {with(batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}), objectThere},
		"failed":                 {with(batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}), objectFinished},
		"complete":               {with(batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}), objectFinished},
	} {
		if got := jobState(test.job); got != test.want {
			t.Errorf("%s: jobState = %d, want %d", name, got, test.want)
		}
	}
}

func TestPodStateWaitsForTheLateAllocation(t *testing.T) {
	ended := []ledger.Allocation{{State: ledger.AllocationEnded}}
	for name, test := range map[string]struct {
		pod         *corev1.Pod
		allocations []ledger.Allocation
		want        objectState
	}{
		"waiting":                             {podWith(unbound), nil, objectThere},
		"running":                             {podWith(running), nil, objectThere},
		"ended and accounted":                 {podWith(finished), ended, objectFinished},
		"ended, bound by somebody else":       {podWith(finished), nil, objectThere},
		"rejected by its kubelet":             {podWith(rejected), nil, objectFinished},
		"failed without ever being on a node": {podWith(unbound, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), nil, objectFinished},
	} {
		if got := podState(test.pod, test.allocations); got != test.want {
			t.Errorf("%s: podState = %d, want %d", name, got, test.want)
		}
	}
}

func TestSettlementSentence(t *testing.T) {
	within := ledger.Reservation{Amount: 2400 * ledger.Credit, Charged: 1680 * ledger.Credit}
	if got, want := settlementSentence(within), "charged 1,680 of 2,400 credits held; 720 given back"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	beyond := ledger.Reservation{Amount: 100 * ledger.Credit, Charged: 100*ledger.Credit + 500_000}
	if got, want := settlementSentence(beyond), "charged 100.5 credits, 0.5 more than the 100 held"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
