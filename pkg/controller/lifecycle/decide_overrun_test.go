package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// fourGPUPod is an attempt of four GPUs at one credit per GPU-second that started at so many seconds.
func fourGPUPod(pod string, started int, changes ...func(*ledger.Allocation)) ledger.Allocation {
	a := ledger.Allocation{
		PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "team-a", Name: pod}, Reservation: "job-1", Account: "team-a",
		GPUs: 4, Rate: ledger.Rate(ledger.Credit), State: ledger.AllocationMetering, StartedAt: at(started),
	}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func chargedSoFar(credits ledger.Microcredits) func(*ledger.Allocation) {
	return func(a *ledger.Allocation) { a.Charged = credits * ledger.Credit }
}

func over(a *ledger.Allocation) { a.State = ledger.AllocationEnded }

func podKey(pod string) PodKey { return PodKey{UID: pod, Namespace: "team-a", Name: pod} }

// The hold is the worked example's: 2,400 credits, 600 s of four GPUs from second 0.
func TestDecideOverrun(t *testing.T) {
	one := []ledger.Allocation{fourGPUPod("pod-1", 0)}
	running := []runningPod{{key: podKey("pod-1")}}
	renewing := ledger.Overrun{Action: ledger.OverrunRenew, LeadSeconds: 60, StepSeconds: 300}
	refused := &ledger.Refusal{Code: ledger.InsufficientCredits}
	for name, c := range map[string]struct {
		now         int
		overrun     ledger.Overrun
		allocations []ledger.Allocation
		pods        []runningPod
		room        ledger.Microcredits // credits
		refused     *ledger.Refusal
		change      func(*ledger.Reservation)
		want        overrunPlan
	}{
		"nothing runs":     {now: 100, allocations: []ledger.Allocation{fourGPUPod("pod-1", 0, over, chargedSoFar(400))}},
		"bound, unstarted": {now: 100, allocations: []ledger.Allocation{{State: ledger.AllocationBound, GPUs: 4, Rate: 1}}},
		"for free":         {now: 100, allocations: []ledger.Allocation{fourGPUPod("pod-1", 0, func(a *ledger.Allocation) { a.Rate = 0 })}, pods: running},
		"closed": {now: 700, allocations: one, pods: running,
			change: func(r *ledger.Reservation) { r.State = ledger.Settled }},

		"stop: not yet":  {now: 100, allocations: one, pods: running, want: overrunPlan{lookAgain: 500 * time.Second}},
		"stop: used up":  {now: 600, allocations: one, pods: running, want: overrunPlan{stop: []PodKey{podKey("pod-1")}, announce: []PodKey{podKey("pod-1")}, endsAt: at(600)}},
		"stop: long ago": {now: 5000, allocations: one, pods: running, want: overrunPlan{stop: []PodKey{podKey("pod-1")}, announce: []PodKey{podKey("pod-1")}, endsAt: at(600)}},
		"stop: announced": {now: 540, overrun: ledger.Overrun{LeadSeconds: 60}, allocations: one, pods: running,
			want: overrunPlan{announce: []PodKey{podKey("pod-1")}, endsAt: at(600), lookAgain: time.Minute}},
		"stop: until it is announced": {now: 500, overrun: ledger.Overrun{LeadSeconds: 60}, allocations: one, pods: running,
			want: overrunPlan{lookAgain: 40 * time.Second}},
		"stop: what was charged is not counted twice": {now: 540, allocations: []ledger.Allocation{fourGPUPod("pod-1", 0, chargedSoFar(2000))}, pods: running,
			want: overrunPlan{lookAgain: time.Minute}},
		"stop: an earlier attempt used half": {now: 1000, pods: running,
			allocations: []ledger.Allocation{fourGPUPod("pod-0", 0, over, chargedSoFar(1200)), fourGPUPod("pod-1", 900)},
			want:        overrunPlan{lookAgain: 200 * time.Second}},
		"stop: two pods share": {now: 100, allocations: []ledger.Allocation{fourGPUPod("pod-1", 0), fourGPUPod("pod-2", 50)},
			pods: []runningPod{{key: podKey("pod-1")}, {key: podKey("pod-2")}},
			want: overrunPlan{lookAgain: 225 * time.Second}},
		"stop: within a second": {now: 100, pods: running,
			allocations: []ledger.Allocation{fourGPUPod("pod-0", 0, over, func(a *ledger.Allocation) { a.Charged = 1_000_001 }), fourGPUPod("pod-1", 0)},
			want:        overrunPlan{lookAgain: 500 * time.Second}}, // used up at 599.75 s
		"stop: a suspect node's pod too": {now: 600, pods: running,
			allocations: []ledger.Allocation{fourGPUPod("pod-1", 0, func(a *ledger.Allocation) { a.State = ledger.AllocationSuspect })},
			want:        overrunPlan{stop: []PodKey{podKey("pod-1")}, announce: []PodKey{podKey("pod-1")}, endsAt: at(600)}},
		"stop: already asked": {now: 601, allocations: one, pods: []runningPod{{key: podKey("pod-1"), deleting: true}}},
		"stop: its own deadline is its kubelet's": {now: 600, allocations: one, pods: []runningPod{{key: podKey("pod-1"), deadline: at(600)}},
			want: overrunPlan{lookAgain: deadlineGrace}},
		"stop: its kubelet does not": {now: 615, allocations: one, pods: []runningPod{{key: podKey("pod-1"), deadline: at(600)}},
			want: overrunPlan{stop: []PodKey{podKey("pod-1")}}},
		"stop: its own deadline is later": {now: 600, allocations: one, pods: []runningPod{{key: podKey("pod-1"), deadline: at(601)}},
			want: overrunPlan{stop: []PodKey{podKey("pod-1")}, announce: []PodKey{podKey("pod-1")}, endsAt: at(600)}},
		"stop: one of two by itself": {now: 300, allocations: []ledger.Allocation{fourGPUPod("pod-1", 0), fourGPUPod("pod-2", 0)},
			pods: []runningPod{{key: podKey("pod-1"), deadline: at(200)}, {key: podKey("pod-2")}},
			want: overrunPlan{stop: []PodKey{podKey("pod-1"), podKey("pod-2")}, announce: []PodKey{podKey("pod-2")}, endsAt: at(300)}},

		"renew: not yet": {now: 100, overrun: renewing, allocations: one, pods: running, want: overrunPlan{lookAgain: 440 * time.Second}},
		"renew: due": {now: 540, overrun: renewing, allocations: one, pods: running,
			want: overrunPlan{renew: &ledger.RenewHold{Key: "renew:job-1:2400", UID: "job-1", GPUSeconds: 1200}}},
		"renew: again": {now: 840, overrun: renewing, allocations: one, pods: running, change: func(r *ledger.Reservation) { r.GPUSeconds, r.Amount = 3600, 3600*ledger.Credit },
			want: overrunPlan{renew: &ledger.RenewHold{Key: "renew:job-1:3600", UID: "job-1", GPUSeconds: 1200}}},
		"renew: late, by as many steps as it takes": {now: 1200, overrun: renewing, allocations: one, pods: running,
			want: overrunPlan{renew: &ledger.RenewHold{Key: "renew:job-1:2400", UID: "job-1", GPUSeconds: 3600}}},
		"renew: its own deadline does not matter": {now: 540, overrun: renewing, allocations: one, pods: []runningPod{{key: podKey("pod-1"), deadline: at(9000)}},
			want: overrunPlan{renew: &ledger.RenewHold{Key: "renew:job-1:2400", UID: "job-1", GPUSeconds: 1200}}},
		"renew: refused": {now: 540, overrun: renewing, allocations: one, pods: running, refused: refused,
			want: overrunPlan{announce: []PodKey{podKey("pod-1")}, endsAt: at(600), lookAgain: renewalRetryLeast}},
		"renew: refused until the end": {now: 600, overrun: renewing, allocations: one, pods: running, refused: refused,
			want: overrunPlan{stop: []PodKey{podKey("pod-1")}, announce: []PodKey{podKey("pod-1")}, endsAt: at(600)}},

		"overdraft: room": {now: 600, overrun: ledger.Overrun{Action: ledger.OverrunOverdraft}, allocations: one, pods: running, room: 400,
			want: overrunPlan{lookAgain: 100 * time.Second}},
		"overdraft: what was charged beyond the hold is in the payer's room": {now: 650, overrun: ledger.Overrun{Action: ledger.OverrunOverdraft}, room: 300, pods: running,
			allocations: []ledger.Allocation{fourGPUPod("pod-1", 0, chargedSoFar(2500))},
			change:      func(r *ledger.Reservation) { r.Charged = 2500 * ledger.Credit },
			want:        overrunPlan{lookAgain: 50 * time.Second}},
		"overdraft: no room": {now: 600, overrun: ledger.Overrun{Action: ledger.OverrunOverdraft}, allocations: one, pods: running, room: -5,
			want: overrunPlan{stop: []PodKey{podKey("pod-1")}, announce: []PodKey{podKey("pod-1")}, endsAt: at(600)}},
		"overdraft: no room does not cut the hold short": {now: 500, overrun: ledger.Overrun{Action: ledger.OverrunOverdraft}, allocations: one, pods: running, room: -5,
			want: overrunPlan{lookAgain: 100 * time.Second}},
		"overdraft: beyond what can be counted": {now: 600, overrun: ledger.Overrun{Action: ledger.OverrunOverdraft}, allocations: one, pods: running,
			room: 2 * ledger.MaxAmount / ledger.Credit, want: overrunPlan{lookAgain: 100 * 365 * 24 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			reservation := ledger.Reservation{
				UID: "job-1", Account: "team-a", State: ledger.Active, Rate: ledger.Rate(ledger.Credit),
				MaxGPUs: 8, GPUSeconds: 2400, Amount: 2400 * ledger.Credit,
			}
			if c.change != nil {
				c.change(&reservation)
			}
			got := decideOverrun(overrunFacts{
				now: at(c.now), reservation: reservation, allocations: c.allocations, overrun: c.overrun,
				payerRoom: c.room * ledger.Credit, pods: c.pods, refused: c.refused,
			})
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(overrunPlan{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the usage, a renewal is never due again at the moment it was made, and the end does not move with the time of asking.
func TestRenewalReachesBeyondItsLead(t *testing.T) {
	for _, policy := range []ledger.Overrun{
		{Action: ledger.OverrunRenew, StepSeconds: 1}, {Action: ledger.OverrunRenew, LeadSeconds: 600, StepSeconds: 7},
		{Action: ledger.OverrunRenew, LeadSeconds: 10, StepSeconds: 3600},
	} {
		for now := 0; now < 20_000; now += 37 {
			facts := overrunFacts{
				now: at(now), overrun: policy, allocations: []ledger.Allocation{fourGPUPod("pod-1", 0), fourGPUPod("pod-2", -3)},
				reservation: ledger.Reservation{UID: "job-1", State: ledger.Active, GPUSeconds: 2400, Amount: 2400 * ledger.Credit},
			}
			plan := decideOverrun(facts)
			if plan.renew == nil {
				continue
			}
			facts.reservation.GPUSeconds += plan.renew.GPUSeconds
			facts.reservation.Amount += ledger.Microcredits(plan.renew.GPUSeconds) * ledger.Credit
			if again := decideOverrun(facts); again.renew != nil || again.lookAgain <= 0 {
				t.Errorf("%+v at %d s: after a renewal of %d GPU-seconds: %+v", policy, now, plan.renew.GPUSeconds, again)
			}
		}
	}
}
