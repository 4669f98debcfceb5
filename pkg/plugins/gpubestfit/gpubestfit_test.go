package gpubestfit

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/workload"
)

func TestMessageCarriesTheNumbers(t *testing.T) {
	demand := workload.Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 8}
	for want, free := range map[string][]int64{
		"Placement: 8 GPUs of class h100 on one node; 24 free on 5 nodes, largest free block 6":                                            {6, 6, 6, 4, 2, 0},
		"Placement: 8 GPUs of class h100 on one node; none free on its 2 nodes":                                                            {0, -1},
		"Placement: 8 GPUs of class h100 on one node; the class has no nodes":                                                              {},
		"Placement: 8 GPUs of class h100 on one node; 8 free on 1 node, largest free block 8: the GPUs would fit, something else does not": {8},
	} {
		var space freeSpace
		for _, gpus := range free {
			space.add(gpus)
		}
		if got := space.message(demand, 0); got != want {
			t.Errorf("free %v:\n got %s\nwant %s", free, got, want)
		}
	}
}

func demandOf(gpus int64) workload.Demand {
	return workload.Demand{Resource: gpu, Class: "h100", GPUs: gpus}
}
