package gpubestfit

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/workload"
)

func TestScorePrefersTheFullestNodeThatFits(t *testing.T) {
	for _, tc := range []struct{ free, asked, want int64 }{
		{free: 4, asked: 4, want: 100}, // nothing left over
		{free: 5, asked: 4, want: 99},
		{free: 8, asked: 1, want: 93},
		{free: 8, asked: 8, want: 100},
		{free: 500, asked: 1, want: 0}, // clamped, never negative
		{free: 3, asked: 4, want: 100}, // does not fit: Filter's matter, but no score above the range
	} {
		if got := score(tc.free, tc.asked); got != tc.want {
			t.Errorf("score(free %d, asked %d) = %d, want %d", tc.free, tc.asked, got, tc.want)
		}
	}
}

func TestScoreOrdersNodesByFreeGPUs(t *testing.T) {
	for free := int64(1); free < 100; free++ {
		if score(free, 1) <= score(free+1, 1) {
			t.Fatalf("a node with %d free does not beat one with %d", free, free+1)
		}
	}
}

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
		if got := space.message(demand); got != want {
			t.Errorf("free %v:\n got %s\nwant %s", free, got, want)
		}
	}
}
