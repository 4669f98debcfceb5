package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

var (
	t0    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key   = PodKey{UID: "pod-1", Namespace: "team-a", Name: "train-0"}
	grace = time.Minute
)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// podWith is a GPU pod of one container on node n1, with the metering finalizer.
func podWith(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "pod-1", Finalizers: []string{v1alpha1.MeteringFinalizer},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To(int64(600)),
			Containers: []corev1.Container{{Name: "main"}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func unbound(p *corev1.Pod) { p.Spec.NodeName = "" }
func bare(p *corev1.Pod)    { p.Finalizers = nil }

func deleted(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(at(100))), ptr.To(int64(30))
}

func forced(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(at(100))), ptr.To(int64(0))
}

func running(p *corev1.Pod) {
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, ptr.To(metav1.NewTime(at(0)))
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(2))}},
	}}
}

func finished(p *corev1.Pod) {
	running(p)
	p.Status.Phase = corev1.PodSucceeded
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(at(2)), FinishedAt: metav1.NewTime(at(420))},
	}
}

// collected is what pod garbage collection makes of a pod whose node is gone: over, but for all that is known running.
func collected(p *corev1.Pod) {
	running(p)
	p.Status.Phase = corev1.PodFailed
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(300)),
	}}
}

func rejected(p *corev1.Pod) {
	p.Status.Phase, p.Status.Message = corev1.PodFailed, "Pod was rejected: no GPU left"
}

func allocation(state ledger.AllocationState, changes ...func(*ledger.Allocation)) *ledger.Allocation {
	a := &ledger.Allocation{PodUID: "pod-1", Node: "n1", Reservation: "job-1", GPUs: 4, State: state, IntendedAt: at(-5)}
	if state != ledger.AllocationIntended && state != ledger.AllocationReleased && state != ledger.AllocationBound {
		a.StartedAt = at(0)
	}
	if state == ledger.AllocationSuspect {
		a.LastSeen = at(200)
	}
	for _, change := range changes {
		change(a)
	}
	return a
}

var (
	confirm   = ledger.ConfirmBound{Key: "bound:pod-1:n1", PodUID: "pod-1", Node: "n1"}
	start     = ledger.RecordStart{Key: "start:pod-1", PodUID: "pod-1", StartedAt: at(0)}
	endExact  = ledger.EndAllocation{Key: "end:pod-1", PodUID: "pod-1", StartedAt: at(0), EndedAt: at(420), Reason: reasonEnded}
	endNever  = ledger.EndAllocation{Key: "end:pod-1", PodUID: "pod-1", Reason: reasonNeverHeld}
	enrolled  = enrolment{account: "team-a", claimed: "team-a"}
	fourGPUs  = workload.Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 4}
	jobOpen   = &ledger.Reservation{UID: "job-1", Account: "team-a", Class: "h100", State: ledger.Held}
	nodeAlive = nodeFacts{lastRenewal: at(495)}
	nodeMute  = nodeFacts{lastRenewal: at(200)}
	nodeLost  = nodeFacts{missing: true, lastRenewal: at(200)}
)

func releaseOf(reason string) ledger.ReleaseAllocation {
	return ledger.ReleaseAllocation{Key: "release:pod-1:1772366395000000", PodUID: "pod-1", Reason: reason}
}

func endUnknown(seconds int, reason string) ledger.EndAllocation {
	return ledger.EndAllocation{Key: "end:pod-1", PodUID: "pod-1", StartedAt: at(0), EndedAt: at(seconds), Reason: reason, EndUnknown: true}
}

func TestDecidePod(t *testing.T) {
	lateUnderJob := ledger.Allocate{
		Key: "allocate:pod-1:n1:3", PodUID: "pod-1", Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "team-a", Name: "train-0"},
		Reservation: "job-1", Account: "team-a", Node: "n1", Class: "h100", GPUs: 4, Leader: "credit-controller", LeaderEpoch: 3, AlreadyRunning: true,
	}
	lateOfItsOwn := lateUnderJob
	lateOfItsOwn.Reservation = "pod-1"
	lateOfItsOwn.Hold = &ledger.PlaceHold{
		Key: "hold:pod-1", UID: "pod-1", Account: "team-a", Workload: lateUnderJob.Pod, Class: "h100", MaxGPUs: 4, GPUSeconds: 2400,
	}
	unbounded := lateOfItsOwn
	unbounded.Hold = ptr.To(*lateOfItsOwn.Hold)
	unbounded.Hold.GPUSeconds = 4

	tests := []struct {
		name  string
		facts podFacts // now is 500 s
		want  plan
	}{
		// The ordinary path.
		{"waiting for the scheduler", podFacts{pod: podWith(unbound)}, plan{}},
		{"waiting with an intent: the scheduler's", podFacts{pod: podWith(unbound), allocation: allocation(ledger.AllocationIntended)}, plan{}},
		{"bound", podFacts{pod: podWith(), node: nodeAlive, allocation: allocation(ledger.AllocationIntended)}, plan{commands: []ledger.Command{confirm}}},
		{"bound although the intent was given up (B9)", podFacts{pod: podWith(), node: nodeAlive, allocation: allocation(ledger.AllocationReleased)},
			plan{commands: []ledger.Command{confirm}}},
		{"bound elsewhere than intended", podFacts{pod: podWith(), node: nodeAlive,
			allocation: allocation(ledger.AllocationIntended, func(a *ledger.Allocation) { a.Node = "n2" })}, plan{commands: []ledger.Command{confirm}}},
		{"bound without the finalizer", podFacts{pod: podWith(bare), node: nodeAlive, allocation: allocation(ledger.AllocationBound)}, plan{addFinalizer: true}},
		{"started", podFacts{pod: podWith(running), node: nodeAlive, allocation: allocation(ledger.AllocationBound)}, plan{commands: []ledger.Command{start}}},
		{"running", podFacts{pod: podWith(running), node: nodeAlive, allocation: allocation(ledger.AllocationMetering)}, plan{}},
		{"running on a node without a lease", podFacts{pod: podWith(running), allocation: allocation(ledger.AllocationMetering)}, plan{}},
		{"ended", podFacts{pod: podWith(finished), node: nodeAlive, allocation: allocation(ledger.AllocationMetering)},
			plan{commands: []ledger.Command{endExact}, removeFinalizer: true}},
		{"started and ended unseen, straight from the intent", podFacts{pod: podWith(finished), node: nodeAlive, allocation: allocation(ledger.AllocationIntended)},
			plan{commands: []ledger.Command{confirm, endExact}, removeFinalizer: true}},
		{"ended and settled, killed before the finalizer went", podFacts{pod: podWith(finished), allocation: allocation(ledger.AllocationEnded)}, plan{removeFinalizer: true}},
		{"ended and settled, seen again after a restart (A1)", podFacts{pod: podWith(finished, bare), allocation: allocation(ledger.AllocationEnded)}, plan{}},
		{"the kubelet refused it", podFacts{pod: podWith(rejected), node: nodeAlive, allocation: allocation(ledger.AllocationBound)},
			plan{commands: []ledger.Command{endNever}, removeFinalizer: true}},

		// Deleted before it ran.
		{"deleted while waiting", podFacts{pod: podWith(unbound, deleted)}, plan{removeFinalizer: true}},
		{"deleted with an intent", podFacts{pod: podWith(unbound, deleted), allocation: allocation(ledger.AllocationIntended)},
			plan{commands: []ledger.Command{releaseOf(reasonNeverBound)}, removeFinalizer: true}},
		{"deleted after binding, before its kubelet started it", podFacts{pod: podWith(forced), node: nodeAlive, allocation: allocation(ledger.AllocationBound)},
			plan{commands: []ledger.Command{endNever}, removeFinalizer: true}},
		{"the same, a moment ago", podFacts{pod: podWith(func(p *corev1.Pod) { forced(p); p.DeletionTimestamp = ptr.To(metav1.NewTime(at(490))) }),
			node: nodeAlive, allocation: allocation(ledger.AllocationBound)}, plan{lookAgain: 50 * time.Second}},

		// Gone without a trace: somebody took the finalizer off.
		{"gone, intent only (B11)", podFacts{allocation: allocation(ledger.AllocationIntended)}, plan{commands: []ledger.Command{releaseOf(reasonPodGone)}}},
		{"gone, seen ending", podFacts{allocation: allocation(ledger.AllocationMetering), sight: &sight{held: workload.Held(podWith(finished)), at: at(430)}},
			plan{commands: []ledger.Command{endExact}}},
		{"gone, seen running", podFacts{allocation: allocation(ledger.AllocationMetering), node: nodeAlive, lastMetered: at(300),
			sight: &sight{held: workload.Held(podWith(running)), at: at(400)}}, plan{commands: []ledger.Command{endUnknown(400, reasonPodGone)}}},
		{"gone, metered", podFacts{allocation: allocation(ledger.AllocationMetering), node: nodeAlive, lastMetered: at(300)},
			plan{commands: []ledger.Command{endUnknown(300, reasonPodGone)}}},
		{"gone, its agent still reporting", podFacts{allocation: allocation(ledger.AllocationMetering), node: nodeAlive, lastMetered: at(480)}, plan{lookAgain: 40 * time.Second}},
		{"gone on a lost node", podFacts{allocation: allocation(ledger.AllocationSuspect), node: nodeLost, lastMetered: at(180)},
			plan{commands: []ledger.Command{endUnknown(200, reasonPodGone)}}},
		{"gone and settled", podFacts{allocation: allocation(ledger.AllocationEnded)}, plan{}},
		{"gone and unknown", podFacts{}, plan{}},

		// Nodes.
		{"silent node", podFacts{pod: podWith(running), node: nodeMute, allocation: allocation(ledger.AllocationMetering)},
			plan{commands: []ledger.Command{ledger.MarkSuspect{Key: "suspect:pod-1:1772366600000000", PodUID: "pod-1", LastSeen: at(200)}}}},
		{"silent node, known", podFacts{pod: podWith(running), node: nodeMute, allocation: allocation(ledger.AllocationSuspect)}, plan{}},
		{"force-deleted on a silent node: quarantine (A8)", podFacts{pod: podWith(running, forced), node: nodeMute, allocation: allocation(ledger.AllocationSuspect)}, plan{}},
		{"node is back", podFacts{pod: podWith(running), node: nodeAlive, allocation: allocation(ledger.AllocationSuspect)},
			plan{commands: []ledger.Command{ledger.ClearSuspect{Key: "clear:pod-1:1772366895000000", PodUID: "pod-1"}}, lookAgain: time.Second}},
		{"no lease any more does not mean back", podFacts{pod: podWith(running), allocation: allocation(ledger.AllocationSuspect)}, plan{}},
		{"ended before the node fell silent", podFacts{pod: podWith(finished), node: nodeMute, allocation: allocation(ledger.AllocationSuspect)},
			plan{commands: []ledger.Command{endExact}, removeFinalizer: true}},
		{"node deleted", podFacts{pod: podWith(running), node: nodeLost, allocation: allocation(ledger.AllocationMetering)},
			plan{commands: []ledger.Command{endUnknown(200, reasonNodeLost)}, removeFinalizer: true}},
		{"node deleted, pod collected: the renewal counts, not the collection", podFacts{pod: podWith(collected, forced), node: nodeLost, allocation: allocation(ledger.AllocationSuspect)},
			plan{commands: []ledger.Command{endUnknown(200, reasonNodeLost)}, removeFinalizer: true}},
		{"node deleted, metered past the renewal", podFacts{pod: podWith(running), node: nodeLost, lastMetered: at(210), allocation: allocation(ledger.AllocationSuspect)},
			plan{commands: []ledger.Command{endUnknown(210, reasonNodeLost)}, removeFinalizer: true}},
		{"node deleted while nobody watched, nothing metered", podFacts{pod: podWith(collected), node: nodeFacts{missing: true, missingSince: at(430)}, allocation: allocation(ledger.AllocationMetering)},
			plan{commands: []ledger.Command{endUnknown(300, reasonNodeLost)}, removeFinalizer: true}},
		{"node deleted, its kubelet alive", podFacts{pod: podWith(running), node: nodeFacts{missing: true, lastRenewal: at(495)}, allocation: allocation(ledger.AllocationMetering)},
			plan{lookAgain: grace}},
		{"node missing at start, its kubelet has not had the time to renew", podFacts{pod: podWith(running), node: nodeFacts{missing: true, missingSince: at(495)},
			allocation: allocation(ledger.AllocationMetering)}, plan{lookAgain: grace}},
		{"node out of service", podFacts{pod: podWith(running, forced), node: nodeFacts{outOfService: true, lastRenewal: at(495)}, allocation: allocation(ledger.AllocationSuspect)},
			plan{commands: []ledger.Command{endUnknown(495, reasonNodeLost)}, removeFinalizer: true}},
		{"over without a finish on a live node, a moment ago", podFacts{pod: podWith(collected), node: nodeAlive, lastMetered: at(470), allocation: allocation(ledger.AllocationMetering)},
			plan{lookAgain: 30 * time.Second}},
		{"over without a finish on a live node", podFacts{pod: podWith(collected), node: nodeAlive, lastMetered: at(290), allocation: allocation(ledger.AllocationMetering)},
			plan{commands: []ledger.Command{endUnknown(300, reasonFinishUnknown)}, removeFinalizer: true}},
		{"node came back after it was given up", podFacts{pod: podWith(running), node: nodeAlive, allocation: allocation(ledger.AllocationEnded, func(a *ledger.Allocation) { a.EndedAt = at(200) })},
			plan{alert: alertRunsAfterEnd, alertMessage: "the ledger ended this pod's allocation at 2026-03-01T12:03:20Z, and it still runs on node n1: delete the pod"}},

		// Bound by somebody else (I9).
		{"another scheduler's pod, covered by its Job", podFacts{pod: podWith(running, bare), node: nodeAlive, enrolment: enrolled, demand: fourGPUs,
			cover: cover{reservation: jobOpen, leaderEpoch: 3}}, plan{commands: []ledger.Command{lateUnderJob, confirm, start}, addFinalizer: true}},
		{"another scheduler's pod, ended meanwhile", podFacts{pod: podWith(finished), node: nodeAlive, enrolment: enrolled, demand: fourGPUs, cover: cover{leaderEpoch: 3}},
			plan{commands: []ledger.Command{lateOfItsOwn, confirm, endExact}, removeFinalizer: true}},
		{"another scheduler's pod, without any bound", podFacts{pod: podWith(running, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }), node: nodeAlive,
			enrolment: enrolled, demand: fourGPUs, cover: cover{leaderEpoch: 3}}, plan{commands: []ledger.Command{unbounded, confirm, start}}},
		{"another scheduler's pod, refused by its kubelet", podFacts{pod: podWith(rejected), enrolment: enrolled, demand: fourGPUs}, plan{removeFinalizer: true}},
		{"no GPUs", podFacts{pod: podWith(running), enrolment: enrolled}, plan{removeFinalizer: true}},
		{"not enrolled", podFacts{pod: podWith(running), demand: fourGPUs}, plan{removeFinalizer: true}},
		{"label and account disagree", podFacts{pod: podWith(running), demand: fourGPUs, enrolment: enrolment{claimed: "team-b"}},
			plan{alert: alertUnpaid, alertMessage: "the namespace names account team-b, which does not list the namespace: its GPU time is charged to nobody"}},
		{"no price", podFacts{pod: podWith(finished), enrolment: enrolled, demandErr: errors.New("no GPUClass lists it")},
			// A class that comes back is no event of an ended pod's.
			plan{alert: alertUnpriced, lookAgain: time.Minute,
				alertMessage: "this pod holds GPUs that have no price: no GPUClass lists it; it is kept, also after its end, until a GPUClass gives one"}},
		{"the ledger's binding is not the API server's", podFacts{pod: podWith(unbound, deleted), allocation: allocation(ledger.AllocationBound)},
			plan{alert: alertNoSuchBind, alertMessage: "the ledger has this pod bound to n1, the API server on no node"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.facts.now, test.facts.nodeGrace = at(500), grace
			got := decidePod(key, test.facts)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("decidePod: -want +got\n%s", diff)
			}
		})
	}
}
