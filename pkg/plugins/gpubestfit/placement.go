package gpubestfit

import (
	"fmt"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// freeSpace is what a class has free.
type freeSpace struct {
	nodes   int   // nodes of the class
	free    int64 // GPUs free on them
	holding int   // nodes with at least one free
	largest int64 // most free on one node
}

func (s *freeSpace) add(free int64) {
	s.nodes++
	if free <= 0 {
		return
	}
	s.free += free
	s.holding++
	s.largest = max(s.largest, free)
}

// message tells a pod that fits nowhere why, with the numbers.
func (s freeSpace) message(d workload.Demand, memoryMiB int64) string {
	asked := fmt.Sprintf("Placement: %d %s of class %s on one node; ", d.GPUs, plural(int(d.GPUs), "GPU"), d.Class)
	if memoryMiB > 0 {
		asked = fmt.Sprintf("Placement: %d %s of class %s with %d MiB each on one node; ", d.GPUs, plural(int(d.GPUs), "GPU"), d.Class, memoryMiB)
	}
	switch {
	case s.nodes == 0 && memoryMiB > 0:
		return asked + fmt.Sprintf("no node of the class states as much (label %s)", v1alpha1.NodeMemoryLabel)
	case s.nodes == 0:
		return asked + "the class has no nodes"
	case s.free == 0:
		return asked + fmt.Sprintf("none free on its %d %s", s.nodes, plural(s.nodes, "node"))
	case s.largest >= d.GPUs:
		return asked + fmt.Sprintf("%d free on %d %s, largest free block %d: the GPUs would fit, something else does not",
			s.free, s.holding, plural(s.holding, "node"), s.largest)
	}
	return asked + fmt.Sprintf("%d free on %d %s, largest free block %d", s.free, s.holding, plural(s.holding, "node"), s.largest)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
