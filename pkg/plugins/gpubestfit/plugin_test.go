package gpubestfit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/placement"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
)

const gpu = "nvidia.com/gpu"

func node(name string, gpus int64, labels map[string]string) *corev1.Node {
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
	if gpus > 0 {
		list[gpu] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Allocatable: list, Capacity: list}}
}

func gpuPod(name, onNode string, gpus, cores int64) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("8Gi")}
	if gpus > 0 {
		list[gpu] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: onNode, Containers: []corev1.Container{{
			Name: "main", Image: "registry.invalid/train", Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
		}}},
	}
}

// newPlugin makes the plugin on kube-scheduler's own snapshot of nodes and pods, with one class of all nodes.
func newPlugin(t testing.TB, pods []*corev1.Pod, nodes ...*corev1.Node) (*GPUBestFit, []fwk.NodeInfo) {
	t.Helper()
	snapshot := internalcache.NewSnapshot(pods, nodes)
	handle, err := frameworkruntime.NewFramework(t.Context(), nil, nil, frameworkruntime.WithSnapshotSharedLister(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	objects := catalog.New()
	objects.SetClass(v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{gpu}, CreditsPerGPUSecond: "1"},
	})
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	return &GPUBestFit{handle: handle, catalog: objects, learner: newLearner(objects)}, infos
}

// scores of all nodes, by name, as the framework would ask for them.
func scores(t testing.TB, pl *GPUBestFit, pod *corev1.Pod, nodes []fwk.NodeInfo) map[string]int64 {
	t.Helper()
	cycle := framework.NewCycleState()
	if _, status := pl.PreFilter(t.Context(), cycle, pod, nodes); !status.IsSuccess() && !status.IsSkip() {
		t.Fatal(status)
	}
	if status := pl.PreScore(t.Context(), cycle, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	byName := map[string]int64{}
	for _, node := range nodes {
		score, status := pl.Score(t.Context(), cycle, pod, node)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		byName[node.Node().Name] = score
	}
	return byName
}

func TestScoreGathersSmallPods(t *testing.T) {
	pl, nodes := newPlugin(t, []*corev1.Pod{gpuPod("there", "used", 3, 24)}, node("used", 8, nil), node("whole", 8, nil))
	if got := scores(t, pl, gpuPod("next", "", 1, 8), nodes); got["used"] <= got["whole"] {
		t.Errorf("%v", got)
	}
}

// A pod without GPUs keeps away from nodes that have some.
func TestPodWithoutGPUsKeepsAwayFromThem(t *testing.T) {
	pl, nodes := newPlugin(t, nil, node("gpus", 8, nil), node("none", 0, nil))
	if got := scores(t, pl, gpuPod("web", "", 0, 8), nodes); got["none"] <= got["gpus"] {
		t.Errorf("%v", got)
	}
}

// Where other things are equal, a node that has the image; an image never outweighs a whole node.
func TestImagesBreakTies(t *testing.T) {
	has := node("has", 8, nil)
	has.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.invalid/train:latest"}, SizeBytes: 12 << 30}}
	pl, nodes := newPlugin(t, []*corev1.Pod{gpuPod("there", "used", 3, 24)}, node("lacks", 8, nil), has, node("used", 8, nil))
	got := scores(t, pl, gpuPod("next", "", 1, 8), nodes)
	if got["has"] <= got["lacks"] || got["used"] <= got["has"] {
		t.Errorf("%v", got)
	}
}

// Nodes that had no devices, or no class, when they were first seen are not scored by that for long.
func TestDevicesThatAppearLater(t *testing.T) {
	pl, nodes := newPlugin(t, []*corev1.Pod{gpuPod("there", "used", 3, 24)}, node("used", 8, nil), node("whole", 8, nil))
	classes := pl.catalog
	pl.catalog, pl.learner.catalog = catalog.New(), catalog.New()
	scores(t, pl, gpuPod("early", "", 0, 8), nodes)
	pl.catalog, pl.learner.catalog = classes, classes
	if got := scores(t, pl, gpuPod("next", "", 1, 8), nodes); got["used"] <= got["whole"] {
		t.Errorf("%v", got)
	}
}

// A pod that no node could ever hold teaches nothing.
func TestImpossiblePodsAreNotLearned(t *testing.T) {
	pl, nodes := newPlugin(t, nil, node("node", 8, nil))
	scores(t, pl, gpuPod("pod", "", 1, 8), nodes)
	for gpus, want := range map[int64]bool{8: true, 9: false} {
		if _, got := pl.learner.request(gpuPod("pod", "", gpus, 8)); got != want {
			t.Errorf("%d GPUs: learned %v", gpus, got)
		}
	}
}

type gangOn []string

func (g gangOn) PlacedOn(*corev1.Pod) []string { return g }

func TestGangsStayNear(t *testing.T) {
	at := func(clique, rack string) map[string]string {
		return map[string]string{"nvidia.com/gpu.clique": clique, "topology.kubernetes.io/rack": rack}
	}
	pl, nodes := newPlugin(t, nil, node("first", 8, at("a", "1")), node("clique", 8, at("a", "1")), node("rack", 8, at("b", "1")), node("far", 8, at("c", "2")))
	pl.gangs = gangOn{"first"}
	got := scores(t, pl, gpuPod("second", "", 8, 64), nodes)
	if got["clique"] <= got["rack"] || got["rack"] <= got["far"] {
		t.Errorf("%v", got)
	}
	if _, status := pl.SignPod(t.Context(), gpuPod("second", "", 8, 64)); status.IsSuccess() {
		t.Error("a member of a placed gang is batched with pods that are not")
	}
}

// The plugin's raw score is the package's cost, on what kube-scheduler says is free.
func TestPluginScoresWithThePackage(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		var nodes []*corev1.Node
		var pods []*corev1.Pod
		free := map[string]placement.Node{}
		for i := range 20 {
			name := fmt.Sprintf("node-%d", i)
			nodes = append(nodes, node(name, 8, nil))
			gpus, cores := random.Int64N(6), random.Int64N(100)
			pods = append(pods, gpuPod("on-"+name, name, gpus, cores))
			free[name] = placement.Node{MilliCPU: int32(192-cores) * 1000, MemoryMiB: 2<<20 - 8<<10, Whole: int16(8 - gpus)}
		}
		pl, infos := newPlugin(t, pods, nodes...)
		for _, pod := range pods {
			pl.learner.submissions.add(pod)
		}
		pod := gpuPod("next", "", 1+random.Int64N(2), 8)
		got := scores(t, pl, pod, infos)

		request := placement.Request{MilliCPU: 8000, MemoryMiB: 8 << 10, Devices: int16(pod.Spec.Containers[0].Resources.Limits.Name(gpu, resource.DecimalSI).Value()), Milli: placement.WholeDevice, Classes: 1}
		view, err := pl.learner.look(pl.handle.SnapshotSharedLister().NodeInfos().List, infos, gpu)
		if err != nil {
			t.Fatal(err)
		}
		for name, each := range free {
			cost, _ := view.outlook.Cost(&each, &request)
			if got[name] != rawScore(cost) {
				t.Fatalf("seed %d, %s: score %d, cost %v", seed, name, got[name], cost)
			}
		}
	}
}

// What the mix learns is each pod once, oldest first, whatever the order in which the first list brings them.
func TestSubmissionsAreInOrderOfCreation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var s submissions
	started := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, i := range random.Perm(200) {
		pod := gpuPod(fmt.Sprintf("pod-%03d", i), "", 1, 1)
		pod.CreationTimestamp = metav1.NewTime(started.Add(time.Duration(i/2) * time.Second))
		s.add(pod)
	}
	taken := s.take()
	if len(taken) != 200 || len(s.take()) != 0 {
		t.Fatalf("%d taken", len(taken))
	}
	for i, each := range taken {
		if want := fmt.Sprintf("pod-%03d", i); each.pod.Name != want {
			t.Fatalf("%d: %s, want %s", i, each.pod.Name, want)
		}
	}
}

// A pod's node selector says on which models it can be served, and the mix remembers it by the pools' numbers, which stay.
func TestPoolsFollowModels(t *testing.T) {
	model := func(name string) map[string]string { return map[string]string{productLabel: name} }
	pl, infos := newPlugin(t, nil, node("a", 8, model("A100")), node("h", 8, model("H100")), node("none", 0, nil))
	all := pl.handle.SnapshotSharedLister().NodeInfos().List
	before, err := pl.learner.look(all, infos, "")
	if err != nil {
		t.Fatal(err)
	}
	picky := gpuPod("picky", "", 1, 1)
	picky.Spec.NodeSelector = model("H100")
	for _, tc := range []struct {
		pod  *corev1.Pod
		node string
		want bool
	}{{picky, "h", true}, {picky, "a", false}, {gpuPod("any", "", 1, 1), "a", true}, {gpuPod("any", "", 1, 1), "h", true}} {
		request, ok := pl.learner.request(tc.pod)
		devices, has := before.pools.on(tc.node, gpu)
		if !ok || !has || request.Admits(devices.number) != tc.want {
			t.Errorf("%s on %s: %+v, pool %+v, want %v", tc.pod.Name, tc.node, request, devices, tc.want)
		}
	}
	after := poolsOf(infos[1:], pl.catalog.Classes(), before.pools)
	for name, devices := range after.nodes {
		if len(devices) > 0 && devices[0] != before.pools.nodes[name][0] {
			t.Errorf("%s was %+v, is %+v", name, before.pools.nodes[name][0], devices[0])
		}
	}
}

func TestScoreAllocatesNothing(t *testing.T) {
	pl, infos := newPlugin(t, nil, node("one", 8, nil), node("two", 8, nil))
	pod, cycle := gpuPod("pod", "", 1, 8), framework.NewCycleState()
	if _, status := pl.PreFilter(t.Context(), cycle, pod, infos); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := pl.PreScore(t.Context(), cycle, pod, infos); !status.IsSuccess() {
		t.Fatal(status)
	}
	ctx := t.Context()
	if allocated := testing.AllocsPerRun(200, func() { pl.Score(ctx, cycle, pod, infos[0]) }); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// A pod that some node could hold is never told that its GPUs fit nowhere, and one that none could is told so.
func TestPlacementIsNotClaimedWhereANodeFits(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 9))
		demand := demandOf(1 + random.Int64N(8))
		var space freeSpace
		holds := false
		for range random.IntN(6) {
			free := random.Int64N(10) - 1
			space.add(free)
			holds = holds || free >= demand.GPUs
		}
		message := space.message(demand, 0)
		if would := strings.Contains(message, "the GPUs would fit"); would != holds {
			t.Fatalf("seed %d: a node holds it: %v; %s", seed, holds, message)
		}
	}
}

// Nodes that are alike are alike to the score, in whatever order they are listed, so permuting them changes which of several
// equal ones is taken and nothing else.
func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range 30 {
		name := fmt.Sprintf("node-%d", i)
		nodes = append(nodes, node(name, 8, nil))
		if i >= 10 { // the first ten are equal
			pods = append(pods, gpuPod("on-"+name, name, random.Int64N(6), random.Int64N(100)))
		}
	}
	var first map[string]int64
	for range 5 {
		pl, infos := newPlugin(t, pods, nodes...)
		for _, i := range random.Perm(len(pods)) {
			pl.learner.submissions.add(pods[i])
		}
		got := scores(t, pl, gpuPod("next", "", 1, 8), infos)
		for i := range 10 {
			if got[fmt.Sprintf("node-%d", i)] != got["node-0"] {
				t.Fatalf("equal nodes score %d and %d", got[fmt.Sprintf("node-%d", i)], got["node-0"])
			}
		}
		if first == nil {
			first = got
		}
		if !maps.Equal(first, got) {
			t.Fatalf("in another order\n got %v\nwant %v", got, first)
		}
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	}
}
