package gpubestfit

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// costUnit is how much of a device's worth one point of a raw score is: costs are compared as integers.
	costUnit = 1e-6
	// alike is the difference in raw score below which nodes are as good as each other, so that other plugins (images, the pod's
	// own preferences) choose among them. A hundredth of a device's worth is far below what the futures' luck makes of it.
	alike = 10_000
	// worstCost is more than any placement costs.
	worstCost = 1e9
)

// rawScore is the framework's larger-is-better of a cost.
func rawScore(cost float64) int64 { return -int64(cost / costUnit) }

// rank turns raw scores into the framework's range: the best node and those alike get the most, the next group one less, and so
// on. Scaling would not do, since one bad node would make all good ones equal; what is beyond the hundredth group is out of the
// question anyhow.
func rank(scores fwk.NodeScoreList) {
	if len(scores) == 0 {
		return
	}
	order := make([]int64, len(scores))
	for i := range scores {
		order[i] = scores[i].Score
	}
	slices.SortFunc(order, func(a, b int64) int { // best first
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	// tops are the best raw scores of each group.
	tops := order[:0]
	for _, raw := range order {
		if len(tops) == 0 || tops[len(tops)-1]-raw >= alike {
			if tops = append(tops, raw); int64(len(tops)) > fwk.MaxNodeScore-fwk.MinNodeScore {
				break
			}
		}
	}
	for i := range scores {
		// The group is the last whose best is not worse than this node.
		group, found := slices.BinarySearchFunc(tops, scores[i].Score, func(top, raw int64) int {
			switch {
			case top > raw:
				return -1
			case top < raw:
				return 1
			}
			return 0
		})
		if !found {
			group--
		}
		scores[i].Score = fwk.MaxNodeScore - int64(group)
	}
}
