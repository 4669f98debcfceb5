package preemption

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/bench/report"
)

// moment is when everything happens: results depend on seeds alone.
var moment = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// waste compares the work that both sides destroy, seed by seed.
func waste(ctx context.Context, o Options, sizes mix, days int, silent bool) (report.Figure, error) {
	name := fmt.Sprintf("waste_%s_%dd", sizes.name, days)
	if silent {
		name += "_silent"
	}
	var pairs []report.Pair
	for seed := range o.Seeds {
		var pair report.Pair
		for which, lost := range map[side]*float64{ours: &pair.Value, upstream: &pair.Against} {
			var err error
			if *lost, err = destroyed(ctx, o, which, uint64(seed), sizes, days, silent); err != nil {
				return report.Figure{}, fmt.Errorf("%s, seed %d, %s: %w", name, seed, which, err)
			}
		}
		pairs = append(pairs, pair)
	}
	return report.Compare(name, "GPU-seconds destroyed", "DefaultPreemption of the same version, same seeds", pairs), nil
}

// destroyed is what the preemptors of one seed destroy, in GPU-seconds.
func destroyed(ctx context.Context, o Options, which side, seed uint64, sizes mix, days int, silent bool) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := rand.New(rand.NewPCG(seed, 1))
	nodes := make([]*corev1.Node, o.Nodes)
	for i := range nodes {
		nodes[i] = newNode(i)
	}
	truth := map[types.UID]float64{}
	var pods []*corev1.Pod
	for _, j := range fill(r, nodes, sizes, time.Duration(days)*24*time.Hour, moment, silent) {
		truth[j.pod.UID] = j.truth
		pods = append(pods, j.pod)
	}
	rig, err := newRig(ctx, which, nodes, pods, moment)
	if err != nil {
		return 0, err
	}
	lost := 0.0
	for i := range o.Preemptors {
		preemptor := newPod(fmt.Sprintf("preemptor-%03d", i), evenMix.draw(r), 1000)
		node, victims, _, err := rig.preempt(ctx, preemptor)
		if err != nil {
			return 0, err
		}
		freed := int64(0)
		for _, victim := range victims {
			lost += truth[victim.UID]
			freed += gpusOf(victim)
			if err := rig.remove(ctx, victim); err != nil {
				return 0, err
			}
		}
		if err := rig.place(preemptor, node); err != nil {
			return 0, err
		}
		// What is freed beyond the need is taken at once by somebody of the preemptors' priority: the cluster stays saturated.
		if more := freed - gpusOf(preemptor); more > 0 {
			rest := newPod(fmt.Sprintf("rest-%03d", i), more, 1000)
			if err := rig.place(rest, node); err != nil {
				return 0, err
			}
		}
	}
	return lost, nil
}

func gpusOf(pod *corev1.Pod) int64 {
	count := pod.Spec.Containers[0].Resources.Limits[gpuName]
	return count.Value()
}

// decision compares how long one decision takes on so many full nodes, the two sides taking turns.
func decision(ctx context.Context, o Options, count int) (report.Figure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := rand.New(rand.NewPCG(uint64(count), 2))
	nodes := make([]*corev1.Node, count)
	for i := range nodes {
		nodes[i] = newNode(i)
	}
	var pods []*corev1.Pod
	for _, j := range fill(r, nodes, evenMix, 24*time.Hour, moment, false) {
		pods = append(pods, j.pod)
	}
	rigs := map[side]*rig{}
	for _, which := range []side{ours, upstream} {
		var err error
		if rigs[which], err = newRig(ctx, which, nodes, pods, moment); err != nil {
			return report.Figure{}, err
		}
	}
	var pairs []report.Pair
	for i := range o.Decisions + 1 {
		preemptor := newPod(fmt.Sprintf("preemptor-%03d", i), evenMix.draw(r), 1000)
		var pair report.Pair
		for which, ms := range map[side]*float64{ours: &pair.Value, upstream: &pair.Against} {
			_, _, took, err := rigs[which].preempt(ctx, preemptor.DeepCopy())
			if err != nil {
				return report.Figure{}, fmt.Errorf("decide on %d nodes, %s: %w", count, which, err)
			}
			*ms = float64(took.Microseconds()) / 1000
		}
		if i > 0 { // the first warms up both
			pairs = append(pairs, pair)
		}
	}
	return report.Compare(fmt.Sprintf("decision_%d_nodes", count), "ms", "DefaultPreemption of the same version, same snapshot", pairs), nil
}
