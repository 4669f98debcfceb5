package gpubestfit

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpubank/gpubank/pkg/placement"
)

// requestOf is what the score knows of a pod; computed is nil for one without GPUs. A unit of a resource counts as a device,
// also where it is a share of one: all units of a pool are equal, so nothing smaller is ever left over.
func requestOf(pod *corev1.Pod, computed *state, known *pools) placement.Request {
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	request := placement.Request{
		MilliCPU:  clamp(asked.Cpu().MilliValue()),
		MemoryMiB: clamp((asked.Memory().Value() + 1<<20 - 1) >> 20),
	}
	if computed == nil {
		return request
	}
	request.Devices, request.Milli = int16(min(computed.demand.GPUs, math.MaxInt16)), placement.WholeDevice
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	request.Classes = known.admitting(computed.demand.Resource, func(labels map[string]string) bool {
		// A node of these labels alone: what a pod asks of nodes' names is not about pools.
		admitted, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
		return err == nil && admitted && computed.need.refusal(labels) == ""
	})
	return request
}
