package gang

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

func node(gpus, cpu int64) amounts { return amounts{gpu: gpus, corev1.ResourceCPU: cpu * 1000} }

// mostPlaced tries every node for every member: the dumb answer, for few of both.
func mostPlaced(free []amounts, shapes []shape) int {
	for i, s := range shapes {
		if s.members == 0 {
			continue
		}
		rest := append([]shape(nil), shapes...)
		rest[i].members--
		best := mostPlaced(free, rest) // this one stays out
		for n := range free {
			if s.may[n] && free[n].copies(s.each) > 0 {
				after := append([]amounts(nil), free...)
				after[n] = maps.Clone(free[n])
				after[n].take(s.each)
				best = max(best, 1+mostPlaced(after, rest))
			}
		}
		return best
	}
	return 0
}

func drawNodes(t *rapid.T, most int) (free []amounts) {
	for range rapid.IntRange(1, most).Draw(t, "nodes") {
		free = append(free, node(rapid.Int64Range(0, 8).Draw(t, "free GPUs"), rapid.Int64Range(0, 16).Draw(t, "free CPUs")))
	}
	return free
}

func drawShape(t *rapid.T, nodes, members int) shape {
	s := shape{each: node(rapid.Int64Range(0, 8).Draw(t, "GPUs"), rapid.Int64Range(1, 8).Draw(t, "CPUs")), members: members, may: make([]bool, nodes)}
	for i := range s.may {
		s.may[i] = rapid.IntRange(0, 3).Draw(t, "may") > 0
	}
	return s
}

func copyOf(free []amounts) (c []amounts) {
	for _, one := range free {
		c = append(c, maps.Clone(one))
	}
	return c
}

// For members of one shape, fit is what trying everything finds.
func TestFitOfOneShapeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := drawNodes(t, 3)
		members := rapid.IntRange(1, 4).Draw(t, "members")
		shapes := []shape{drawShape(t, len(free), members)}
		if want, got := mostPlaced(free, shapes), fit(copyOf(free), shapes, members); got != want {
			t.Fatalf("%d fit, found %d", want, got)
		}
	})
}

// For several shapes, what fit finds is possible.
func TestFitOfSeveralShapesIsPossible(t *testing.T) {
	missed, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		free := drawNodes(t, 3)
		var shapes []shape
		all := 0
		for range rapid.IntRange(2, 3).Draw(t, "shapes") {
			members := rapid.IntRange(1, 2).Draw(t, "members")
			all += members
			shapes = append(shapes, drawShape(t, len(free), members))
		}
		needed := rapid.IntRange(1, all).Draw(t, "needed")
		most, got := mostPlaced(free, shapes), fit(copyOf(free), shapes, needed)
		if got > most || got > needed {
			t.Fatalf("found %d of %d, possible are %d", got, needed, most)
		}
		tried++
		if got < min(most, needed) {
			missed++
		}
	})
	t.Logf("missed %d of %d", missed, tried)
	if missed*10 > tried {
		t.Errorf("missed %d of %d: placing the largest first is too bad an approximation", missed, tried)
	}
}

// However the members are placed one by one, wherever each fits, all find a node that the look said would: one shape has no dead ends.
func TestOneShapeHasNoDeadEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := drawNodes(t, 6)
		s := drawShape(t, len(free), rapid.IntRange(1, 8).Draw(t, "members"))
		if fit(copyOf(free), []shape{s}, s.members) < s.members {
			return
		}
		for member := range s.members {
			var open []int
			for i := range free {
				if s.may[i] && free[i].copies(s.each) > 0 {
					open = append(open, i)
				}
			}
			if len(open) == 0 {
				t.Fatalf("member %d of %d finds no node", member, s.members)
			}
			free[rapid.SampledFrom(open).Draw(t, "node")].take(s.each)
		}
	})
}

func TestScarce(t *testing.T) {
	for _, each := range []struct {
		asked amounts
		want  string
	}{
		{node(2, 4), "[nvidia.com/gpu]"},
		{node(0, 4), "[]"},
	} {
		if got := fmt.Sprint(each.asked.scarce()); got != each.want {
			t.Errorf("%v: %s", each.asked, got)
		}
	}
}
