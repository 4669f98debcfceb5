package gang

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Members with a node count, and those whose node a round keeps; not the pod itself, nor one that is over.
func TestPlacedOn(t *testing.T) {
	pods, _ := jobPods("bound bound failed pending pending")
	for i, node := range []string{"a", "b", "c"} {
		pods[i].Spec.NodeName = node
	}
	gs := watched(t, pods, theJob(5, nil, 0))
	if got := gs.PlacedOn(pods[3]); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	g, ok := gs.of(pods[3])
	if !ok {
		t.Fatal("no gang")
	}
	collected := pods[4].DeepCopy()
	collected.Spec.NodeName = "a"
	gs.rounds.mu.Lock()
	gs.rounds.of(g.Key).round = &Round{gang: g, reserved: []*corev1.Pod{collected}}
	gs.rounds.mu.Unlock()
	if got := gs.PlacedOn(pods[3]); !slices.Equal(got, []string{"a", "a", "b"}) {
		t.Errorf("with a round: %v", got)
	}
	if got := gs.PlacedOn(pods[0]); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("of a member itself: %v", got)
	}
}
