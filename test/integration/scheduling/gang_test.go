package scheduling_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestGangs(t *testing.T) {
	g := newGangs(t)
	for _, each := range []struct {
		name string
		test func(*testing.T, *gangs)
	}{
		{"Job over several nodes", testGangJob},
		{"PodGroup of scheduler-plugins", testCoscheduling},
		{"Kubernetes' own PodGroup", testUpstreamPodGroup},
		{"two halves", testTwoHalves},
		{"too large", testGangTooLarge},
		{"too expensive", testGangTooExpensive},
		{"incomplete, and a member goes", testGangIncomplete},
		{"members repel each other", testGangRepels},
		{"time over", testGangTimeOver},
		{"one member is replaced", testGangReplacement},
		{"all are restarted together", testGangTogether},
		{"killed after the commit", testGangKilled},
	} {
		t.Run(each.name, func(t *testing.T) {
			each.test(t, g)
			g.audit(t)
		})
	}
}

// Eight pods of two GPUs fill two nodes. All are charged.
func testGangJob(t *testing.T, g *gangs) {
	g.enrol(t, "gang-job", "100000")
	job := gangJob("gang-job", "train", 8, 2, 600)
	must(t, g.admin.Create(t.Context(), job))
	pods := g.gangOf(t, "gang-job", "train", 8)
	nodes := map[string]int{}
	for _, pod := range pods {
		nodes[g.bound(t, pod)]++
	}
	g.together(t, pods)
	if len(nodes) != 2 {
		t.Errorf("the pods are on %v", nodes)
	}
	for _, pod := range pods {
		eventually(t, func(ctx context.Context) string {
			row, _, err := g.ledger.Allocation(ctx, string(pod.UID))
			must(t, err)
			if row.StartedAt.IsZero() || time.Since(row.StartedAt) < 2*time.Second {
				return fmt.Sprintf("pod %s started at %v", pod.Name, row.StartedAt)
			}
			return ""
		})
	}
	g.removeJob(t, job)
	g.holdsNothing(t, "gang-job")
	if row := g.account(t, "gang-job"); row.Charged < 8*2*2*ledger.Credit {
		t.Errorf("two seconds of eight pods with two GPUs are charged %s", ledger.DisplayCredits(row.Charged))
	}
}

// A pod waits for its PodGroup to exist; the group's least number of pods goes at once, one more by itself.
func testCoscheduling(t *testing.T, g *gangs) {
	g.enrol(t, "coscheduling", "100000")
	pods := groupPods("coscheduling", "mpi", 3, 4, 600, coscheduled("mpi"))
	g.create(t, pods...)
	g.waitsFor(t, pods[0], contains("Gang: PodGroup coscheduling/mpi (scheduling.x-k8s.io/v1alpha1), to which the pod belongs, does not exist; create it"))
	must(t, g.admin.Create(t.Context(), minMember("coscheduling", "mpi", 3)))
	for _, pod := range pods {
		g.bound(t, pod)
	}
	g.together(t, pods)
	late := gpuPod("coscheduling", "late", 1, 600)
	coscheduled("mpi")(late)
	g.create(t, late)
	g.bound(t, late)
	g.remove(t, append(pods, late)...)
	g.holdsNothing(t, "coscheduling")
}

// Kubernetes' own PodGroup is a gang although kube-scheduler's own gang scheduling is off.
func testUpstreamPodGroup(t *testing.T, g *gangs) {
	g.enrol(t, "upstream", "100000")
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "upstream", Name: "ranks"}, Spec: schedulingv1beta1.PodGroupSpec{
		SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4}},
	}}
	must(t, g.admin.Create(t.Context(), group))
	pods := groupPods("upstream", "ranks", 4, 4, 600, func(pod *corev1.Pod) {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("ranks")}
	})
	g.create(t, pods[:3]...)
	g.waitsFor(t, pods[0], contains("Gang: 3 of the 4 pods that PodGroup upstream/ranks places together exist"))
	g.unknownToLedger(t, pods[:3])
	g.create(t, pods[3])
	for _, pod := range pods {
		g.bound(t, pod)
	}
	g.together(t, pods)
	g.remove(t, pods...)
	g.holdsNothing(t, "upstream")
}

// Two gangs of 12 GPUs on 16: each could hold half of what both need. One runs, then the other; while the other waits, a small pod runs.
func testTwoHalves(t *testing.T, g *gangs) {
	g.enrol(t, "halves", "1000000")
	jobs := []*batchv1.Job{gangJob("halves", "a", 6, 2, 600), gangJob("halves", "b", 6, 2, 600)}
	for _, job := range jobs {
		must(t, g.admin.Create(t.Context(), job))
	}
	pods := [][]*corev1.Pod{g.gangOf(t, "halves", "a", 6), g.gangOf(t, "halves", "b", 6)}
	first := -1
	eventually(t, func(context.Context) string {
		counts := []int{g.boundCount(t, pods[0]), g.boundCount(t, pods[1])}
		switch {
		case counts[0] == 6 && counts[1] == 0:
			first = 0
		case counts[1] == 6 && counts[0] == 0:
			first = 1
		default:
			return fmt.Sprintf("%v pods are bound", counts)
		}
		return ""
	})
	second := pods[1-first]
	g.waitsFor(t, second[0], contains("Gang: 6 pods of Job halves/"+jobs[1-first].Name+" of 2 nvidia.com/gpu each have to be placed together; 2 would find a node now"))
	g.unknownToLedger(t, second)
	small := gpuPod("halves", "small", 4, 600)
	g.create(t, small)
	g.bound(t, small)
	g.removeJob(t, jobs[first])
	for _, pod := range second {
		g.bound(t, pod)
	}
	g.together(t, second)
	g.removeJob(t, jobs[1-first])
	g.remove(t, small)
	g.holdsNothing(t, "halves")
}

// A gang that no cluster of this size can hold waits, holds nothing, and stands in nobody's way.
func testGangTooLarge(t *testing.T, g *gangs) {
	g.enrol(t, "large", "1000000")
	job := gangJob("large", "huge", 5, 4, 600)
	must(t, g.admin.Create(t.Context(), job))
	pods := g.gangOf(t, "large", "huge", 5)
	for _, pod := range pods {
		g.waitsFor(t, pod, contains("Gang: 5 pods of Job large/huge of 4 nvidia.com/gpu each have to be placed together; 4 would find a node now"))
	}
	others := []*corev1.Pod{gpuPod("large", "one", 8, 600), gpuPod("large", "two", 8, 600)}
	g.create(t, others...)
	for _, pod := range others {
		g.bound(t, pod)
	}
	g.unknownToLedger(t, pods)
	g.removeJob(t, job)
	g.remove(t, others...)
	g.holdsNothing(t, "large")
}

// Not one member of a gang that costs too much holds anything; all say what the whole costs. A grant lets all go.
func testGangTooExpensive(t *testing.T, g *gangs) {
	g.enrol(t, "dear", "4000")
	job := gangJob("dear", "costly", 4, 2, 600) // 4,800 credits
	must(t, g.admin.Create(t.Context(), job))
	pods := g.gangOf(t, "dear", "costly", 4)
	for _, pod := range pods {
		g.waitsFor(t, pod, func(message string) bool {
			return strings.HasPrefix(message, "Credit: gang of 4 pods needs 4,800 credits, 4,000 available on account dear")
		})
	}
	g.unknownToLedger(t, pods)
	if row := g.account(t, "dear"); row.Reserved != 0 {
		t.Errorf("%s are reserved", ledger.DisplayCredits(row.Reserved))
	}
	g.grant(t, "dear", "800")
	for _, pod := range pods {
		g.bound(t, pod)
	}
	g.together(t, pods)
	g.removeJob(t, job)
	g.holdsNothing(t, "dear")
}

// A member that is deleted while the gang waits is no member any more; the one that replaces it is. Without pods nothing is held (B14).
func testGangIncomplete(t *testing.T, g *gangs) {
	g.enrol(t, "incomplete", "100000")
	must(t, g.admin.Create(t.Context(), minMember("incomplete", "three", 3)))
	pods := groupPods("incomplete", "three", 2, 1, 600, coscheduled("three"))
	g.create(t, pods...)
	g.waitsFor(t, pods[0], contains("Gang: 2 of the 3 pods that PodGroup incomplete/three places together exist"))
	g.remove(t, pods[1])
	replacements := groupPods("incomplete", "again", 2, 1, 600, coscheduled("three"))
	g.create(t, replacements[0])
	g.waitsFor(t, replacements[0], contains("Gang: 2 of the 3 pods"))
	g.create(t, replacements[1])
	all := append(replacements, pods[0])
	for _, pod := range all {
		g.bound(t, pod)
	}
	g.together(t, all)
	g.remove(t, all...)
	g.holdsNothing(t, "incomplete")
}

// By resources all fit; a rule between the pods, which only the round itself finds out, keeps the third off both nodes. All give back
// at once, the ledger having heard of none, and a gang behind them has its turn.
func testGangRepels(t *testing.T, g *gangs) {
	g.enrol(t, "repels", "100000")
	must(t, g.admin.Create(t.Context(), minMember("repels", "apart", 4)))
	pods := groupPods("repels", "apart", 4, 4, 600, coscheduled("apart"))
	for _, pod := range pods {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{coschedulingv1alpha1.PodGroupLabel: "apart"}},
		}}}}
	}
	g.create(t, pods...)
	for _, pod := range pods {
		g.waitsFor(t, pod, contains("Gang: PodGroup repels/apart gave its nodes back: 2 of 4 pods had one"))
	}
	g.unknownToLedger(t, pods)
	if row := g.account(t, "repels"); row.Reserved != 0 {
		t.Errorf("%s are reserved", ledger.DisplayCredits(row.Reserved))
	}
	job := gangJob("repels", "next", 8, 2, 600)
	must(t, g.admin.Create(t.Context(), job))
	for _, pod := range g.gangOf(t, "repels", "next", 8) {
		g.bound(t, pod)
	}
	g.removeJob(t, job)
	g.remove(t, pods...)
	g.holdsNothing(t, "repels")
}

// A member that is kept out of the queue, here since it waits for credits of its own, holds the others up for the round's time at most.
// Then all give back, the ledger having heard of none (D22), and the nodes are free for others.
func testGangTimeOver(t *testing.T, g *gangs) {
	g.enrol(t, "late", "10000")
	dear := gpuPod("late", "dear", 8, 6000) // 48,000 credits
	g.create(t, dear)
	g.waitsFor(t, dear, contains("Credit: needs 48,000 credits"))
	must(t, g.admin.Create(t.Context(), minMember("late", "slow", 3)))
	coscheduled("slow")(dear)
	must(t, g.admin.Update(t.Context(), dear))
	pods := groupPods("late", "slow", 2, 4, 600, coscheduled("slow"))
	g.create(t, pods...)
	for _, pod := range pods {
		g.waitsFor(t, pod, contains("Gang: 2 of the 3 pods of PodGroup late/slow had a node after"))
	}
	g.unknownToLedger(t, append(pods, dear))
	if row := g.account(t, "late"); row.Reserved != 0 {
		t.Errorf("%s are reserved", ledger.DisplayCredits(row.Reserved))
	}
	whole := []*corev1.Pod{gpuPod("late", "one", 8, 60), gpuPod("late", "two", 8, 60)}
	g.create(t, whole...)
	for _, pod := range whole {
		g.bound(t, pod)
	}
	g.remove(t, append(append(pods, dear), whole...)...)
	g.holdsNothing(t, "late")
}
