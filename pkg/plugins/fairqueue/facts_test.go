package fairqueue

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

func TestPoliciesAreTheQueuesAccounts(t *testing.T) {
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{})
	full := testAccount("full", 3, v1alpha1.GPULimit{Class: "h100", Guaranteed: 2, Borrowable: 1})
	full.Spec.Parent = "org"
	full.Spec.Policy.FairShare.HalfLife = &metav1.Duration{Duration: time.Hour}
	full.Spec.Policy.FairShare.Aging = &metav1.Duration{}
	full.Spec.Policy.FairShare.MaxWait = &metav1.Duration{Duration: time.Minute}
	full.Spec.Policy.FairShare.Floors = []v1alpha1.GPUFloor{{Name: "serve", Class: "h100", GPUs: 1}}
	want := []turn.Account{
		{Name: "empty", Aging: 24 * time.Hour, MaxWait: 24 * time.Hour},
		{Name: "full", Parent: "org", Weight: 3, HalfLife: time.Hour, MaxWait: time.Minute,
			Limits: map[string]turn.Limit{"h100": {Guaranteed: 2, Borrowable: 1}}, Floors: []turn.Floor{{Name: "serve", Class: "h100", GPUs: 1}}},
	}
	if diff := cmp.Diff(want, l.desk.accountsOf([]*v1alpha1.CreditAccount{full, testAccount("empty", 0)})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestPodsLookAlikeIfTheyFitTheSameNodes(t *testing.T) {
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{})
	one := l.pod("a", 1)
	one.Labels = map[string]string{"batch.kubernetes.io/job-completion-index": "7"}
	one.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x7k2p"}}
	for name, change := range map[string]func(*corev1.Pod){
		"node selector": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} },
		"toleration":    func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}} },
		"GPUs":          func(p *corev1.Pod) { *p = *l.pod("a", 2) },
		"volume claim": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}}}
		},
	} {
		other := l.pod("a", 1)
		if shapeOf(one) != shapeOf(other) {
			t.Fatal("two pods of one Job do not look alike")
		}
		if change(other); shapeOf(one) == shapeOf(other) {
			t.Errorf("a pod with another %s looks alike", name)
		}
	}
	spread := one.DeepCopy()
	spread.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}
	labelled := spread.DeepCopy()
	labelled.Labels["app"] = "x"
	if shapeOf(spread) == shapeOf(labelled) {
		t.Error("labels do not count although the pod has rules on labels")
	}
}

// What waits says so once, after a while, and not again while it waits for the same; who fits nowhere is left to say Placement.
func TestWaitingIsSaidOnce(t *testing.T) {
	l := newLoop(t.Context(), 8, closedGate{}, closedGate{}, testAccount("a", 1, v1alpha1.GPULimit{Class: testClass, Guaranteed: 1}), testAccount("b", 1))
	l.submit(l.pod("a", 1))
	l.cycle()
	held := l.submit(l.pod("a", 1))
	for range 3 {
		l.submit(l.pod("b", 8))
	}
	for pod, _ := l.cycle(); pod != nil; pod, _ = l.cycle() {
	}
	if early := l.desk.sayings(); len(early) != 0 {
		t.Errorf("said at once: %v", early)
	}
	l.sweep(10 * time.Second)
	words := map[string]int{}
	for _, s := range l.desk.sayings() {
		words[strings.SplitN(s.text, ":", 2)[0]]++
		if s.pod == held && !strings.HasPrefix(s.text, "Quota: needs 1 GPU of class h100, account a may use 1 at once") {
			t.Errorf("the pod that a limit holds back says %q", s.text)
		}
	}
	if diff := cmp.Diff(map[string]int{turn.ByQuota: 1, turn.ByTurn: 2}, words); diff != "" {
		t.Errorf("said, -want +got\n%s", diff)
	}
	if again := l.desk.sayings(); len(again) != 0 {
		t.Errorf("said again: %v", again)
	}
	l.sweep(renumberAfter)
	// By then another of those that look alike is tried: it is in hand, and says nothing.
	if later := l.desk.sayings(); len(later) != 2 {
		t.Errorf("%d numbers are renewed after a while, want 2", len(later))
	}
}
