package gpubestfit

import (
	"math/rand/v2"
	"slices"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
)

// Ranks, against the obvious: groups are counted from the best down, each beginning where the one before ends.
func TestRank(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		scores := make(fwk.NodeScoreList, random.IntN(300))
		raw := make([]int64, len(scores))
		for i := range scores {
			raw[i] = random.Int64N([]int64{3, 5 * alike, 500 * alike}[random.IntN(3)]) - 200*alike
			scores[i].Score = raw[i]
		}
		rank(scores)

		order := slices.Clone(raw)
		slices.Sort(order)
		slices.Reverse(order)
		want, group, top := map[int64]int64{}, int64(-1), int64(0)
		for _, each := range order {
			if group < 0 || top-each >= alike {
				group, top = group+1, each
			}
			want[each] = max(fwk.MinNodeScore, fwk.MaxNodeScore-group)
		}
		for i := range scores {
			if scores[i].Score != want[raw[i]] {
				t.Fatalf("seed %d: raw %d ranked %d, want %d", seed, raw[i], scores[i].Score, want[raw[i]])
			}
		}
	}
}

// A cost that is terrible leaves the order of the others as it is.
func TestOneBadNodeDoesNotHideTheBest(t *testing.T) {
	scores := fwk.NodeScoreList{{Name: "good", Score: rawScore(1.0)}, {Name: "better", Score: rawScore(0.9)}, {Name: "bad", Score: rawScore(worstCost)}}
	rank(scores)
	if scores[0].Score != 99 || scores[1].Score != 100 || scores[2].Score != 98 {
		t.Errorf("%+v", scores)
	}
}
