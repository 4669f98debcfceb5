package preemption_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestPreemption(t *testing.T) {
	s := newSuite(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"the one that loses least stops, and its place is taken when it has stopped", testLeastLoss},
		{"nobody stops where the pod would not fit", testWouldNotFit},
		{"a disruption budget comes first", testBudget},
		{"a guaranteed share is reclaimed, up to the share", testReclaim},
		{"a scheduler that dies after the record decides again", testKilled},
		{"what Kueue manages is left alone", testKueue},
		{"a forged report is refused with an event", testForged},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer s.clear(t)
			test.run(t, s)
		})
	}
}

func contains(part string) func(string) bool {
	return func(message string) bool { return strings.Contains(message, part) }
}

func testLeastLoss(t *testing.T, s *suite) {
	s.enrol(t, "least", v1alpha1.AccountPolicy{Refunds: &v1alpha1.RefundPolicy{PreemptedSinceCheckpoint: true}})
	dear := gpuPod("least", "dear", "low", 4, restarts("600"))
	cheap := gpuPod("least", "cheap", "low", 4, restarts("5"), func(p *corev1.Pod) {
		// It goes on for three seconds after SIGTERM.
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](20)
		p.Annotations["nodesim.gpubank.io/term-seconds"] = "3"
	})
	whole := gpuPod("least", "whole", "low", 8, restarts("900"))
	s.running(t, dear, cheap, whole)
	next := gpuPod("least", "next", "high", 4)
	must(t, s.admin.Create(t.Context(), next))
	placed := s.bound(t, next)
	if next.Spec.NodeName != cheap.Spec.NodeName {
		t.Errorf("the pod is on %s, the one that was to stop on %s", next.Spec.NodeName, cheap.Spec.NodeName)
	}
	s.untouched(t, dear, whole)

	records := s.outcome(t, cheap)
	if len(records) != 1 {
		t.Fatalf("%d decisions", len(records))
	}
	r := records[0]
	if r.Reason != ledger.PreemptedByPriority || r.Victim.GPUs != 4 || r.Preemptor.UID != string(next.UID) || r.Victim.Account != "least" ||
		r.RestartSeconds != 5 || r.LostGPUSeconds < 4*5 || !r.Outcome.Preempted || r.Outcome.LostGPUSeconds < r.LostGPUSeconds {
		t.Errorf("recorded %+v, outcome %+v", r, r.Outcome)
	}
	ended, _, err := s.ledger.Allocation(t.Context(), string(cheap.UID))
	must(t, err)
	// Pod times are cut to whole seconds.
	if ended.State != ledger.AllocationEnded || placed.IntendedAt.Before(ended.EndedAt) {
		t.Errorf("the pod was allocated at %s, the one before it ended at %s (%s)", placed.IntendedAt, ended.EndedAt, ended.State)
	}
	// It never reported a checkpoint: all of its charge is given back, and the statement shows both.
	if ended.Charged == 0 || ended.Refunded != ended.Charged || ended.RefundedFor != ledger.RefundPreempted {
		t.Errorf("charged %d, refunded %d for %s", ended.Charged, ended.Refunded, ended.RefundedFor)
	}
	s.shows(t, "least", string(cheap.UID), ended.Charged)
	if note := s.event(t, cheap, "StoppedForLeastLoss"); !strings.Contains(note, "stopped for pod least/next (Priority, its priority 1000, here 10): 4 GPUs × (") || !strings.Contains(note, "+ 5 s restart)") {
		t.Errorf("the victim is told %q", note)
	}
	if note := s.event(t, next, "Stopping"); !strings.Contains(note, "pod least/cheap is stopped for this one (Priority): 4 GPUs, ") {
		t.Errorf("the other one is told %q", note)
	}
}

// C16, C18: sixteen GPUs are held by pods that might be stopped, and on neither node are eight of them.
func testWouldNotFit(t *testing.T, s *suite) {
	s.enrol(t, "nofit", v1alpha1.AccountPolicy{})
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b"} {
		pods = append(pods, gpuPod("nofit", "high-"+name, "high", 5), gpuPod("nofit", "low-"+name, "low", 3))
	}
	s.running(t, pods...)
	if pods[0].Spec.NodeName == pods[2].Spec.NodeName {
		t.Fatal("both large pods are on one node")
	}
	next := gpuPod("nofit", "next", "middle", 8)
	must(t, s.admin.Create(t.Context(), next))
	s.says(t, next, contains("on none of 2 nodes may enough be stopped for it"))
	never := gpuPod("nofit", "never", "patient", 3)
	must(t, s.admin.Create(t.Context(), never))
	s.says(t, never, contains("it stops nobody: its preemptionPolicy is Never"))
	s.untouched(t, pods...)
}

// C20: a budget that allows nothing protects what would be cheapest.
func testBudget(t *testing.T, s *suite) {
	s.enrol(t, "budget", v1alpha1.AccountPolicy{})
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "budget", Name: "keep"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cheap"}},
		},
	}
	must(t, s.admin.Create(t.Context(), budget))
	cheap := gpuPod("budget", "cheap", "low", 8, restarts("0"))
	dear := gpuPod("budget", "dear", "low", 8, restarts("900"))
	s.running(t, cheap, dear)
	next := gpuPod("budget", "next", "high", 2)
	must(t, s.admin.Create(t.Context(), next))
	s.bound(t, next)
	s.untouched(t, cheap)
	if records := s.outcome(t, dear); len(records) != 1 || records[0].Victim.GPUs != 8 {
		t.Errorf("%+v", records)
	}
	must(t, s.admin.Delete(t.Context(), budget))
}

// The owner of 8 GPUs gets them back from a borrower of a higher priority, and no more than its share; the borrower's own share is nobody's.
func testReclaim(t *testing.T, s *suite) {
	s.enrol(t, "owner", v1alpha1.AccountPolicy{GPUs: []v1alpha1.GPULimit{{Class: "h100", Guaranteed: 8, Borrowable: 8}}})
	s.enrol(t, "borrower", v1alpha1.AccountPolicy{GPUs: []v1alpha1.GPULimit{{Class: "h100", Guaranteed: 4, Borrowable: 12}}})
	small := []*corev1.Pod{}
	for _, name := range []string{"a", "b", "c", "d"} {
		small = append(small, gpuPod("borrower", name, "middle", 4, restarts(map[string]string{"a": "1", "b": "2", "c": "300", "d": "400"}[name])))
	}
	s.running(t, small...)
	first := gpuPod("owner", "first", "low", 4)
	must(t, s.admin.Create(t.Context(), first))
	s.bound(t, first)
	second := gpuPod("owner", "second", "low", 4)
	must(t, s.admin.Create(t.Context(), second))
	s.bound(t, second)
	for _, pod := range small[:2] {
		if records := s.outcome(t, pod); len(records) != 1 || records[0].Reason != ledger.PreemptedByReclaim || records[0].Preemptor.Account != "owner" {
			t.Errorf("%s: %+v", pod.Name, records)
		}
	}
	third := gpuPod("owner", "third", "low", 4)
	must(t, s.admin.Create(t.Context(), third))
	s.says(t, third, contains("may enough be stopped for it"))
	// Priority takes from no guaranteed share either: of the borrower's last eight GPUs four are its own, and the owner's eight are.
	s.enrol(t, "stranger", v1alpha1.AccountPolicy{})
	urgent := gpuPod("stranger", "urgent", "high", 8)
	must(t, s.admin.Create(t.Context(), urgent))
	s.says(t, urgent, contains("may enough be stopped for it"))
	s.untouched(t, small[2], small[3], first, second)
	half := gpuPod("stranger", "half", "high", 4)
	must(t, s.admin.Create(t.Context(), half))
	s.bound(t, half)
	s.untouched(t, small[3], first, second)
}

// The decision is recorded, the scheduler is killed before anybody is evicted: the next one decides again, once.
func testKilled(t *testing.T, s *suite) {
	s.enrol(t, "killed", v1alpha1.AccountPolicy{})
	victim := gpuPod("killed", "victim", "low", 8, restarts("1"))
	other := gpuPod("killed", "other", "low", 8, restarts("900"))
	s.running(t, victim, other)
	s.arm(t, "scheduler.after-preemption-record=kill")
	next := gpuPod("killed", "next", "high", 8)
	must(t, s.admin.Create(t.Context(), next))
	<-s.bank.Scheduler.Exited()
	s.arm(t, "")
	records, err := s.ledger.PreemptionsOfVictim(t.Context(), string(victim.UID))
	must(t, err)
	now := &corev1.Pod{}
	must(t, s.admin.Get(t.Context(), client.ObjectKeyFromObject(victim), now))
	if len(records) != 1 || now.DeletionTimestamp != nil {
		t.Fatalf("%d decisions are recorded, and the victim is deleted: %v", len(records), now.DeletionTimestamp != nil)
	}
	must(t, s.bank.Scheduler.Start(t.Context()))
	s.bound(t, next)
	records = s.outcome(t, victim)
	if len(records) != 2 || records[0].Outcome.Preempted || !records[1].Outcome.Preempted || records[1].LeaderEpoch <= records[0].LeaderEpoch {
		t.Errorf("recorded %+v", records)
	}
	s.untouched(t, other)
}

func testKueue(t *testing.T, s *suite) {
	s.enrol(t, "queued", v1alpha1.AccountPolicy{}, "kueue")
	s.enrol(t, "unqueued", v1alpha1.AccountPolicy{})
	queue := func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/queue-name"] = "q" }
	managed := gpuPod("queued", "managed", "low", 8, restarts("0"), queue)
	// The label is its author's word: where no operator says that Kueue manages the namespace, it protects nobody.
	claims := gpuPod("unqueued", "claims", "low", 8, restarts("900"), queue)
	s.running(t, managed, claims)
	next := gpuPod("unqueued", "next", "high", 8)
	must(t, s.admin.Create(t.Context(), next))
	s.bound(t, next)
	s.untouched(t, managed)
	preemptor := gpuPod("queued", "preemptor", "high", 8, queue)
	must(t, s.admin.Create(t.Context(), preemptor))
	s.says(t, preemptor, contains("Kueue preempts for its namespace"))
}

func testForged(t *testing.T, s *suite) {
	s.enrol(t, "forged", v1alpha1.AccountPolicy{})
	pod := gpuPod("forged", "liar", "low", 8, func(p *corev1.Pod) { p.Annotations["gpubank.io/checkpointed-at"] = "2199-01-01T00:00:00Z" })
	early := gpuPod("forged", "early", "low", 8, func(p *corev1.Pod) { p.Annotations["gpubank.io/checkpointed-at"] = "2001-01-01T00:00:00Z" })
	s.running(t, pod, early)
	if note := s.event(t, pod, "CheckpointIgnored"); !strings.Contains(note, "2199-01-01T00:00:00Z lies in the future") {
		t.Errorf("it is told %q", note)
	}
	if note := s.event(t, early, "CheckpointIgnored"); !strings.Contains(note, "2001-01-01T00:00:00Z lies before the pod's start") {
		t.Errorf("it is told %q", note)
	}
}
