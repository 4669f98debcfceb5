package nodesim_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/gpubank/gpubank/pkg/meter"
	"github.com/gpubank/gpubank/pkg/nvml"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/nodesim"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// start plays nodes of 4 GPUs until the returned function is called.
func start(t *testing.T, cp *cluster.ControlPlane, folder string, nodes ...nodesim.NodeSpec) (*nodesim.Simulator, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	simulator, err := nodesim.Start(ctx, cp.RESTConfig(), nodesim.Options{Nodes: nodes, SocketDir: folder, LeaseInterval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		cancel()
		simulator.Wait()
	}
	t.Cleanup(stop)
	return simulator, stop
}

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func namespace(t *testing.T, cp *cluster.ControlPlane, name string) {
	t.Helper()
	if err := cp.CreateNamespace(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
}

func gpuPod(namespace, name, node string, gpus int64, annotations map[string]string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec: v1.PodSpec{
			NodeName: node, RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "main", Image: "none.invalid/train", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}},
		},
	}
}

func create(t *testing.T, client kubernetes.Interface, pod *v1.Pod) *v1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// await follows the pod until it is as wanted; a nil pod means that it is gone.
func await(t *testing.T, client kubernetes.Interface, pod *v1.Pod, what string, wanted func(*v1.Pod) bool) *v1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	selector := fields.OneTermEqualSelector("metadata.name", pod.Name).String()
	pods := client.CoreV1().Pods(pod.Namespace)
	source := &cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return pods.List(ctx, options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return pods.Watch(ctx, options)
		},
	}
	var last *v1.Pod
	missing := func(store cache.Store) (bool, error) { return len(store.List()) == 0 && wanted(nil), nil }
	_, err := watchtools.UntilWithSync(ctx, source, &v1.Pod{}, missing, func(event watch.Event) (bool, error) {
		last = event.Object.(*v1.Pod)
		if event.Type == watch.Deleted {
			return wanted(nil), nil
		}
		return wanted(last), nil
	})
	if err != nil {
		t.Fatalf("pod %s never was %s: %v; last seen %+v", pod.Name, what, err, last)
	}
	return last
}

func inPhase(phase v1.PodPhase) func(*v1.Pod) bool {
	return func(pod *v1.Pod) bool { return pod != nil && pod.Status.Phase == phase }
}

func gone(pod *v1.Pod) bool { return pod == nil }

// listed asks the node's PodResources socket, as an agent does.
func listed(t *testing.T, folder, node string) map[string][]string {
	t.Helper()
	kubelet, err := meter.NewKubelet(nodesim.SocketPath(folder, node), []string{"nvidia.com/gpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	listing, err := kubelet.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := map[string][]string{}
	for _, pod := range listing.Pods {
		held[pod.Name.Name] = pod.DeviceIDs
	}
	return held
}

func TestPodWalksThroughItsLife(t *testing.T) {
	t.Parallel()
	cp := clustertest.ControlPlane(t)
	client, folder := cp.Client(), shortDir(t)
	namespace(t, cp, "life")
	start(t, cp, folder, nodesim.NodeSpec{Name: "life-0", GPUs: 4, Labels: map[string]string{"pool": "a"}})

	node, err := client.CoreV1().Nodes().Get(t.Context(), "life-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if gpus := node.Status.Allocatable["nvidia.com/gpu"]; gpus.Value() != 4 || node.Labels["pool"] != "a" || len(node.Spec.Taints) != 0 {
		t.Errorf("node has %v GPUs, labels %v, taints %v", gpus.Value(), node.Labels, node.Spec.Taints)
	}
	pod := create(t, client, gpuPod("life", "train", "life-0", 3, map[string]string{
		nodesim.PullSecondsAnnotation: "1", nodesim.RunSecondsAnnotation: "2", nodesim.ExitCodeAnnotation: "5",
	}))
	await(t, client, pod, "running", inPhase(v1.PodRunning))
	if ids := listed(t, folder, "life-0")["train"]; len(ids) != 3 {
		t.Errorf("holds %v while it runs", ids)
	}
	devices, err := nvml.OpenSimulated(nodesim.SimulatedGPUsPath(folder, "life-0"))
	if err != nil {
		t.Fatal(err)
	}
	if busy, err := devices.Read(nodesim.GPUUUID("life-0", 0)); err != nil || busy.UtilisationPercent == 0 {
		t.Errorf("a held GPU reads %+v, %v", busy, err)
	}
	ended := await(t, client, pod, "failed", inPhase(v1.PodFailed))
	state := ended.Status.ContainerStatuses[0].State.Terminated
	begun := ended.Status.StartTime.Time
	if state.ExitCode != 5 || !state.StartedAt.Time.Equal(begun.Add(time.Second)) || !state.FinishedAt.Time.Equal(begun.Add(3*time.Second)) {
		t.Errorf("pod started %v, container %+v", begun, state)
	}
	if held := meter.FactsOf(ended).Held; !held.Ended || held.EndUnknown || held.End.Sub(held.Start) != 3*time.Second {
		t.Errorf("held time is read as %+v", held)
	}
	if held := listed(t, folder, "life-0"); len(held) != 0 {
		t.Errorf("after its end %v hold GPUs", held)
	}
}

func TestDevicesAreExclusive(t *testing.T) {
	t.Parallel()
	cp := clustertest.ControlPlane(t)
	client, folder := cp.Client(), shortDir(t)
	namespace(t, cp, "exclusive")
	start(t, cp, folder, nodesim.NodeSpec{Name: "exclusive-0", GPUs: 4})
	var pods []*v1.Pod
	for i := range 4 {
		pods = append(pods, create(t, client, gpuPod("exclusive", fmt.Sprint("one-", i), "exclusive-0", 1, nil)))
	}
	for _, pod := range pods {
		await(t, client, pod, "running", inPhase(v1.PodRunning))
	}
	var ids []string
	for _, held := range listed(t, folder, "exclusive-0") {
		ids = append(ids, held...)
	}
	slices.Sort(ids)
	if len(ids) != 4 || len(slices.Compact(ids)) != 4 {
		t.Errorf("held: %v", ids)
	}
	// The kubelet rejects what does not fit; nobody may be charged for it.
	late := await(t, client, create(t, client, gpuPod("exclusive", "late", "exclusive-0", 1, nil)), "rejected", inPhase(v1.PodFailed))
	if !meter.FactsOf(late).Held.NeverHeld() {
		t.Errorf("a rejected pod held %+v", meter.FactsOf(late).Held)
	}
	// A deleted pod stops, says so, and goes; its device is free again.
	if err := client.CoreV1().Pods("exclusive").Delete(t.Context(), "one-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, client, pods[0], "gone", gone)
	await(t, client, create(t, client, gpuPod("exclusive", "next", "exclusive-0", 1, nil)), "running", inPhase(v1.PodRunning))
}

// G33: two pods on one time-sliced GPU hold half of it each.
func TestSharedDevices(t *testing.T) {
	t.Parallel()
	cp := clustertest.ControlPlane(t)
	client, folder := cp.Client(), shortDir(t)
	namespace(t, cp, "shared")
	start(t, cp, folder, nodesim.NodeSpec{Name: "shared-0", GPUs: 1, Replicas: 2})
	for _, name := range []string{"one", "two"} {
		await(t, client, create(t, client, gpuPod("shared", name, "shared-0", 1, nil)), "running", inPhase(v1.PodRunning))
	}
	kubelet, err := meter.NewKubelet(nodesim.SocketPath(folder, "shared-0"), []string{"nvidia.com/*"})
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	listing, err := kubelet.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uuid := nodesim.GPUUUID("shared-0", 0)
	var ids []string
	for _, pod := range listing.Pods {
		ids = append(ids, pod.DeviceIDs...)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{uuid + "::0", uuid + "::1"}) || listing.Replicas[uuid] != 2 {
		t.Errorf("held %v of %v", ids, listing.Replicas)
	}
}

func TestDeletedPodKeptByAFinalizerShowsItsFinish(t *testing.T) {
	t.Parallel()
	cp := clustertest.ControlPlane(t)
	client := cp.Client()
	namespace(t, cp, "finalizer")
	start(t, cp, shortDir(t), nodesim.NodeSpec{Name: "finalizer-0", GPUs: 4})
	pod := gpuPod("finalizer", "kept", "finalizer-0", 1, map[string]string{nodesim.TermSecondsAnnotation: "1"})
	pod.Finalizers = []string{"gpubank.io/metering"}
	pod = create(t, client, pod)
	await(t, client, pod, "running", inPhase(v1.PodRunning))
	if err := client.CoreV1().Pods("finalizer").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	confirmed := await(t, client, pod, "confirmed", func(pod *v1.Pod) bool {
		return pod != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	})
	if state := confirmed.Status.ContainerStatuses[0].State.Terminated; state == nil || state.ExitCode != 143 {
		t.Errorf("container is %+v", confirmed.Status.ContainerStatuses[0].State)
	}
	confirmed.Finalizers = nil
	if _, err := client.CoreV1().Pods("finalizer").Update(t.Context(), confirmed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, client, pod, "gone", gone)
}

func TestSimulatorThatStartsAgainGoesOn(t *testing.T) {
	t.Parallel()
	cp := clustertest.ControlPlane(t)
	client, folder := cp.Client(), shortDir(t)
	namespace(t, cp, "again")
	node := nodesim.NodeSpec{Name: "again-0", GPUs: 4}
	_, stop := start(t, cp, folder, node)
	pod := create(t, client, gpuPod("again", "long", "again-0", 2, map[string]string{nodesim.RunSecondsAnnotation: "3"}))
	running := await(t, client, pod, "running", inPhase(v1.PodRunning))
	before := listed(t, folder, "again-0")
	stop()
	simulator, _ := start(t, cp, folder, node)
	if after := listed(t, folder, "again-0"); !slices.Equal(before["long"], after["long"]) {
		t.Errorf("held %v before, %v after", before, after)
	}
	// A node that is silent for a while tells the finish that was, not the moment it came back.
	simulator.Silence("again-0")
	if err := simulator.Revive(t.Context(), "again-0"); err != nil {
		t.Fatal(err)
	}
	ended := await(t, client, pod, "succeeded", inPhase(v1.PodSucceeded))
	if held := meter.FactsOf(ended).Held; !held.Start.Equal(running.Status.StartTime.Time) || held.End.Sub(held.Start) != 3*time.Second {
		t.Errorf("held %+v, started %v", held, running.Status.StartTime)
	}
}
