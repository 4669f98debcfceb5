package gpubestfit

import (
	"strings"
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// A pod that needs 40 GiB on each GPU goes where nodes state as much, waits where none do, and is tried again when one states it.
func TestGPUMemory(t *testing.T) {
	memory := func(mib string) map[string]string { return map[string]string{v1alpha1.NodeMemoryLabel: mib} }
	pl, nodes := newPlugin(t, nil, node("small", 8, memory("24576")), node("large", 8, memory("81559")), node("silent", 8, nil))
	pod := gpuPod("pod", "", 1, 8)
	pod.Labels = map[string]string{v1alpha1.MemoryLabel: "40Gi"}
	cycle := framework.NewCycleState()
	if _, status := pl.PreFilter(t.Context(), cycle, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	for _, info := range nodes {
		status := pl.Filter(t.Context(), cycle, pod, info)
		if got, want := status.IsSuccess(), info.Node().Name == "large"; got != want {
			t.Errorf("%s: %v", info.Node().Name, status)
		}
	}
	if _, status := pl.PostFilter(t.Context(), cycle, pod, nil); !strings.HasPrefix(status.Message(), "Placement: 1 GPU of class h100 with 40960 MiB each on one node; 8 free on 1 node") {
		t.Errorf("%v", status)
	}

	for _, tc := range []struct {
		before, after map[string]string
		want          fwk.QueueingHint
	}{
		{nil, memory("81559"), fwk.Queue}, {memory("24576"), memory("81559"), fwk.Queue},
		{memory("81559"), memory("81559"), fwk.QueueSkip}, {memory("81559"), memory("24576"), fwk.QueueSkip}, {nil, nil, fwk.QueueSkip},
	} {
		hint, err := pl.afterNodeChange(klog.Background(), pod, node("n", 8, tc.before), node("n", 8, tc.after))
		if err != nil || hint != tc.want {
			t.Errorf("from %v to %v: %v, %v; want %v", tc.before, tc.after, hint, err, tc.want)
		}
	}

	other := pod.DeepCopy()
	other.Labels[v1alpha1.MemoryLabel] = "16Gi"
	first, _ := pl.SignPod(t.Context(), pod)
	second, _ := pl.SignPod(t.Context(), other)
	if first[0].Value == second[0].Value {
		t.Error("pods that need different memory are batched as one")
	}

	for _, bad := range []string{"much", "-1Gi", "0"} {
		pod.Labels[v1alpha1.MemoryLabel] = bad
		_, status := pl.PreFilter(t.Context(), framework.NewCycleState(), pod, nodes)
		if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "set one such as 40Gi") {
			t.Errorf("%q: %v", bad, status)
		}
	}
}
