package gang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// watched is Groups over what a test says the watches show.
func watched(t *testing.T, pods []*corev1.Pod, jobs ...*batchv1.Job) *Groups {
	t.Helper()
	none := func(workload.Group) {}
	jobIndex := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	gs := &Groups{
		pods: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{groupIndex: indexByGroup}), jobs: batchlisters.NewJobLister(jobIndex),
		upstream: newUpstreamObjects(none), coscheduling: newCoschedulingObjects(none), rounds: newRounds(),
	}
	gs.schedulers.Store(v1alpha1.SchedulerName, nil)
	for _, job := range jobs {
		stripped, err := gangPartOf(job)
		if err != nil {
			t.Fatal(err)
		}
		_ = jobIndex.Add(stripped)
	}
	for _, pod := range pods {
		_ = gs.pods.Add(pod)
	}
	return gs
}

func theJob(parallelism int32, completions *int32, succeeded int32) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "job-uid", Annotations: map[string]string{v1alpha1.GangAnnotation: "true"}},
		Spec:       batchv1.JobSpec{Parallelism: &parallelism, Completions: completions},
		Status:     batchv1.JobStatus{Succeeded: succeeded},
	}
}

// jobPods are pods of theJob, one for each word: pending, gated, elsewhere, bound, deleting, failed, flying.
func jobPods(words string) (pods []*corev1.Pod, flying []types.UID) {
	for i, word := range strings.Fields(words) {
		pod := member(fmt.Sprintf("train-%d", i))
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-uid", Controller: ptr.To(true)}}
		pod.Spec.SchedulerName = v1alpha1.SchedulerName
		switch word {
		case "gated":
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
		case "elsewhere":
			pod.Spec.SchedulerName = corev1.DefaultSchedulerName
		case "bound":
			pod.Spec.NodeName = "node-1"
		case "deleting":
			pod.Spec.NodeName, pod.DeletionTimestamp = "node-1", &metav1.Time{Time: start}
		case "failed":
			pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodFailed
		case "flying":
			flying = append(flying, pod.UID)
		}
		pods = append(pods, pod)
	}
	return pods, flying
}

func TestTally(t *testing.T) {
	for _, each := range []struct {
		name                    string
		job                     *batchv1.Job
		pods                    string
		together, pending, have int
	}{
		{"all pending", theJob(3, ptr.To[int32](3), 0), "pending pending pending", 3, 3, 0},
		{"one is not made yet", theJob(3, ptr.To[int32](3), 0), "pending pending", 3, 2, 0},
		{"one is gated, one another scheduler's", theJob(3, nil, 0), "pending gated elsewhere", 3, 1, 0},
		{"one restarts, the others run", theJob(3, ptr.To[int32](3), 0), "bound bound failed pending", 1, 1, 2},
		{"restarted together, the old ones still go", theJob(2, ptr.To[int32](2), 0), "deleting deleting pending pending", 2, 2, 0},
		{"a replacement while one goes", theJob(2, ptr.To[int32](2), 0), "deleting bound pending", 1, 1, 1},
		{"more completions than at once", theJob(2, ptr.To[int32](10), 5), "bound pending", 1, 1, 1},
		{"the last completion", theJob(4, ptr.To[int32](10), 9), "pending", 1, 1, 0},
		{"part is bound after a crash, part is on its way", theJob(4, nil, 0), "bound flying pending pending", 2, 2, 2},
		{"whole", theJob(2, nil, 0), "bound bound", 0, 0, 2},
		{"some have finished unseen", theJob(4, nil, 0), "bound pending", 1, 1, 1},
	} {
		t.Run(each.name, func(t *testing.T) {
			pods, flying := jobPods(each.pods)
			gs := watched(t, pods, each.job)
			g, ok := gs.of(pods[0])
			if !ok {
				t.Fatal("no gang")
			}
			for _, uid := range flying {
				gs.rounds.of(g.Key).flying[uid] = true
			}
			got := gs.tally(g)
			if got.together != each.together || len(got.pending) != each.pending || len(got.placed) != each.have {
				t.Errorf("%d together of %d pending, %d have a node", got.together, len(got.pending), len(got.placed))
			}
			key, together := gs.GroupOf(pods[0])
			if together != each.together || (key == "") != (each.together == 0) {
				t.Errorf("GroupOf says %q, %d", key, together)
			}
		})
	}
}

// What is no gang: a Job without the annotation, one of the same name that came after, a PodGroup that need not be together.
func TestNoGang(t *testing.T) {
	pods, _ := jobPods("pending")
	plain := theJob(3, nil, 0)
	plain.Annotations = nil
	later := theJob(3, nil, 0)
	later.UID = "another"
	finished := theJob(2, ptr.To[int32](2), 2)
	for name, job := range map[string]*batchv1.Job{"without annotation": plain, "another of that name": later, "finished": finished} {
		if g, ok := watched(t, pods, job).of(pods[0]); ok {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if g, ok := watched(t, nil).of(member("alone")); ok {
		t.Errorf("a bare pod: %+v", g)
	}
	basic := upstreamGroup(&schedulingv1beta1.PodGroup{Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}}})
	if basic.Min != 0 {
		t.Errorf("a basic group: %+v", basic)
	}
}

// A pod whose PodGroup is not there waits and says what to do, whether the API is served or not.
func TestAbsentPodGroup(t *testing.T) {
	pod := member("rank-0")
	pod.Labels = map[string]string{coschedulingv1alpha1.PodGroupLabel: "mpi"}
	gs := watched(t, []*corev1.Pod{pod})
	g, ok := gs.of(pod)
	if !ok || !strings.Contains(g.Problem, "an API that this cluster does not serve") {
		t.Errorf("%v %+v", ok, g)
	}
	gs.coscheduling.synced = func() bool { return true }
	if g, ok = gs.of(pod); !ok || g.Problem != "PodGroup team/mpi (scheduling.x-k8s.io/v1alpha1), to which the pod belongs, does not exist; create it" {
		t.Errorf("%v %+v", ok, g)
	}
	gs.coscheduling.known["team/mpi"] = coschedulingGroup(&coschedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mpi"}, Spec: coschedulingv1alpha1.PodGroupSpec{MinMember: 2, ScheduleTimeoutSeconds: ptr.To[int32](7)},
	})
	g, ok = gs.of(pod)
	if want := (Group{Key: "podgroups.scheduling.x-k8s.io/team/mpi", Title: "PodGroup team/mpi", Min: 2, Timeout: 7 * time.Second}); !ok || g != want {
		t.Errorf("%v %+v", ok, g)
	}
	// Kubernetes' own field comes before the label.
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("ranks")}
	if key := workload.GroupOf(pod).Key(); key != "podgroups.scheduling.k8s.io/team/ranks" {
		t.Error(key)
	}
}

// An incomplete gang is silent at first, then says once how many of its pods exist, and again when that has changed.
func TestTelling(t *testing.T) {
	pods, _ := jobPods("pending pending")
	gs := watched(t, pods, theJob(4, nil, 0))
	g, _ := gs.of(pods[0])
	told := func(after time.Duration) (names []string) {
		for _, pod := range gs.rounds.toTell(g.Key, gs.tally(g), start.Add(after)) {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		return names
	}
	if !gs.rounds.silent(g.Key, pods[0].UID, start) || told(tellAfter-1) != nil {
		t.Fatal("it talks before its time")
	}
	if got := told(tellAfter); fmt.Sprint(got) != "[train-0 train-1]" {
		t.Fatalf("%v", got)
	}
	if gs.rounds.silent(g.Key, pods[0].UID, start) {
		t.Error("whoever is to tell is kept silent")
	}
	gs.rounds.said(g.Key, pods[0].UID)
	if !gs.rounds.silent(g.Key, pods[0].UID, start) || told(time.Minute) != nil {
		t.Error("it says the same again")
	}
	third, _ := jobPods("pending pending pending")
	_ = gs.pods.Add(third[2])
	if got := told(time.Minute); len(got) != 3 {
		t.Errorf("one more exists, and %v say so", got)
	}
	// A member that takes another's place before anybody looked: their number is the same, and it is new to this one.
	fourth, _ := jobPods("pending pending pending pending")
	_ = gs.pods.Delete(third[2])
	_ = gs.pods.Add(fourth[3])
	gs.rounds.said(g.Key, pods[0].UID)
	if got := told(time.Minute); fmt.Sprint(got) != "[train-3]" || gs.rounds.silent(g.Key, fourth[3].UID, start) {
		t.Errorf("one took another's place, and %v say so", got)
	}
}
