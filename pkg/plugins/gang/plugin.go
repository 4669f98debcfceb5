package gang

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Gang places pods that belong together at once or not at all.
type Gang struct {
	args   configv1.GangArgs
	handle fwk.Handle
	groups *Groups
	rounds *rounds
	clock  clock.WithTicker
	// changes counts events that may have made room.
	changes *atomic.Int64
	// upstreamPlaces: kube-scheduler itself places the gangs of Kubernetes' own PodGroups.
	upstreamPlaces bool
}

var _ fwk.PreEnqueuePlugin = &Gang{}
var _ fwk.PreFilterPlugin = &Gang{}
var _ fwk.FilterPlugin = &Gang{}
var _ fwk.PostFilterPlugin = &Gang{}
var _ fwk.ReservePlugin = &Gang{}
var _ fwk.PermitPlugin = &Gang{}
var _ fwk.EnqueueExtensions = &Gang{}
var _ fwk.SignPlugin = &Gang{}

const (
	// Name of the plugin in the registry and in configurations.
	Name = "Gang"

	roundKey  fwk.StateKey = "Round" + Name
	trialKey  fwk.StateKey = "Trial" + Name
	shieldKey fwk.StateKey = "Shield" + Name
)

// membership is what a member's scheduling cycle knows of its gang.
type membership struct {
	group Group
	round *Round
}

// Clone returns the membership itself: its round is one, whoever looks at it.
func (m *membership) Clone() fwk.StateData { return m }

// RoundOf is the round in which a pod is placed, nil for one that is placed by itself.
func RoundOf(cycle fwk.CycleState) *Round {
	data, err := cycle.Read(roundKey)
	if err != nil {
		return nil
	}
	return data.(*membership).round
}

// Trying reports whether filters are only asked for a member while another one's cycle runs: its own has not begun.
func Trying(cycle fwk.CycleState) bool {
	_, err := cycle.Read(trialKey)
	return err == nil
}

// Name returns the plugin's name.
func (pl *Gang) Name() string { return Name }

// PreEnqueue keeps members of an incomplete gang out of the queue.
func (pl *Gang) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	g, ok := pl.groups.of(pod)
	if !ok || g.Problem != "" || pl.placedByUpstream(pod) {
		return nil
	}
	t := pl.groups.tally(g)
	if t.complete() || !pl.rounds.silent(g.Key, pod.UID, pl.clock.Now()) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, incomplete(g, t))
}

func incomplete(g Group, t tally) string {
	return fmt.Sprintf("Gang: %d of the %d pods that %s places together exist; the others have to be made", len(t.pending), t.together, g.Title)
}

// PreFilter lets a member into its gang's round, opening one if the whole gang fits. Others pass, past an open round with care (Filter).
func (pl *Gang) PreFilter(ctx context.Context, cycle fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if Trying(cycle) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	g, ok := pl.groups.of(pod)
	if !ok {
		return nil, pl.passBy(cycle, "", pod, nodes)
	}
	if g.Problem != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Gang: "+g.Problem)
	}
	round, status := pl.roundFor(ctx, g, pod, nodes)
	if round == nil && status == nil {
		return nil, pl.passBy(cycle, g.Key, pod, nodes)
	}
	if status != nil {
		return nil, status
	}
	cycle.Write(roundKey, &membership{group: g, round: round})
	return nil, pl.passBy(cycle, g.Key, pod, nodes)
}

// roundFor is the round that a member joins; neither a round nor a status for one that need not wait for others.
func (pl *Gang) roundFor(ctx context.Context, g Group, pod *corev1.Pod, nodes []fwk.NodeInfo) (*Round, *fwk.Status) {
	if round := pl.rounds.running(g.Key); round != nil {
		return round, nil
	}
	now := pl.clock.Now()
	t := pl.groups.tally(g)
	switch {
	case t.together == 0:
		return nil, nil
	case pl.placedByUpstream(pod):
		round := &Round{gang: g, needed: t.together}
		pl.rounds.open(round, now, pl.timeout(g))
		return round, nil
	case !t.complete():
		pl.rounds.said(g.Key, pod.UID)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, incomplete(g, t))
	}
	if pl.rounds.rouse(g.Key) {
		pl.handle.Activate(klog.FromContext(ctx), podsByUID(t.pending))
	}
	scarce := askedBy(pod).scarce()
	changes := pl.changes.Load()
	if why := pl.rounds.hindrance(g, scarce, now, changes); why != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	look, status := pl.look(ctx, t, nodes)
	if status != nil {
		return nil, status
	}
	if placed := fit(look.free, look.shapes, t.together); placed < t.together {
		why := doesNotFit(g, t, placed, look.shapes)
		pl.rounds.refuse(g, why, asks(g, t), now, changes)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	round := &Round{gang: g, needed: t.together, shapes: look.shapes, shapeOf: look.shapeOf, nodes: look.index, scarce: scarce}
	pl.rounds.open(round, now, pl.timeout(g))
	return round, nil
}

func (pl *Gang) timeout(g Group) time.Duration {
	if g.Timeout > 0 {
		return g.Timeout
	}
	return pl.args.CollectTimeout.Duration
}

func (pl *Gang) placedByUpstream(pod *corev1.Pod) bool {
	return pl.upstreamPlaces && workload.GroupOf(pod).Kind == workload.UpstreamGroup
}

// PreFilterExtensions do not exist: preemption does not make a gang.
func (pl *Gang) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PostFilter gives the round of a member up that found no node, so that the others wait for nothing.
func (pl *Gang) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	round := RoundOf(cycle)
	if round == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	why := fmt.Sprintf("Gang: %s gave its nodes back: %d of %d pods had one, and pod %s found none that the others left; it is tried again",
		round.gang.Title, pl.rounds.has(round), round.needed, pod.Name)
	if members, gaveUp := pl.rounds.abandon(round, pl.clock.Now(), why); gaveUp {
		pl.giveBack(ctx, round, members, why, "no_node")
	}
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why) // nobody is preempted for a part of a gang
}

// Reserve counts the member.
func (pl *Gang) Reserve(_ context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	round := RoundOf(cycle)
	if round == nil || cycle.IsPodGroupSchedulingCycle() { // there kube-scheduler only tries it out
		return nil
	}
	if !pl.rounds.join(round, pod) {
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("Gang: the round in which %s was placed is over; the pod is tried again", round.gang.Title))
	}
	return nil
}

// Unreserve gives the round up, if it still collects. It may be called twice, and without Reserve.
func (pl *Gang) Unreserve(ctx context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ string) {
	round := RoundOf(cycle)
	if round == nil || cycle.IsPodGroupSchedulingCycle() {
		return
	}
	why := fmt.Sprintf("Gang: %s gave its nodes back: %d of %d pods had one, and pod %s could not keep its own; it is tried again",
		round.gang.Title, pl.rounds.has(round), round.needed, pod.Name)
	if others, gaveUp := pl.rounds.leave(round, pod.UID, pl.clock.Now(), why); gaveUp {
		pl.giveBack(ctx, round, others, why, "member_left")
	}
}

// Permit waits until all members have a node.
func (pl *Gang) Permit(ctx context.Context, cycle fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	round := RoundOf(cycle)
	if round == nil {
		return nil, 0
	}
	now := pl.clock.Now()
	waited, closed := pl.rounds.admit(round, now)
	if !closed {
		pl.callOthers(ctx, round, pod)
		// The sweep gives the round up in time, with the numbers; this is for a sweep that does not come.
		return fwk.NewStatus(fwk.Wait, "Gang: waits for the other members"), max(0, round.until.Sub(now)) + 2*pl.args.SweepPeriod.Duration
	}
	observeAdmitted(waited)
	for _, uid := range round.members {
		if waiting := pl.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Allow(Name)
		}
	}
	pl.wakeBlocked(ctx, round)
	return nil, 0
}

// callOthers brings the members that have no node yet to the head of the queue, when the first one has.
func (pl *Gang) callOthers(ctx context.Context, round *Round, pod *corev1.Pod) {
	if round.shapes == nil || pl.rounds.has(round) > 1 {
		return
	}
	t := pl.groups.tally(round.gang)
	others := map[string]*corev1.Pod{}
	for _, other := range t.pending {
		if other.UID != pod.UID {
			others[string(other.UID)] = other
		}
	}
	pl.handle.Activate(klog.FromContext(ctx), others)
}

// giveBack sends those away who wait for others that do not come.
func (pl *Gang) giveBack(ctx context.Context, round *Round, members []*corev1.Pod, why, result string) {
	observeGivenUp(result)
	for _, pod := range members {
		if waiting := pl.handle.GetWaitingPod(pod.UID); waiting != nil {
			waiting.Reject(Name, why)
		}
	}
	pl.wakeBlocked(ctx, round)
}

// SignPod adds nothing to the pod's signature: which nodes fit a member does not depend on this plugin, and what does for
// others is asked for each.
func (pl *Gang) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// NewFactory returns what makes the plugin, for kube-scheduler's registry. All profiles share the rounds, since they place on the same nodes.
func NewFactory(source *Source) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*configv1.GangArgs)
		if !ok {
			return nil, fmt.Errorf("plugin %s wants arguments of type GangArgs, got %T", Name, object)
		}
		if err := configv1.ValidateGangArgs(args); err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
		if _, ok := handle.(framework.Framework); !ok {
			return nil, fmt.Errorf("plugin %s has to run all filters to see whether a gang fits, and %T cannot", Name, handle)
		}
		registerMetrics()
		groups, err := source.Get(ctx, handle)
		if err != nil {
			return nil, err
		}
		pl := &Gang{
			args: *args, handle: handle, groups: groups, rounds: groups.rounds, clock: source.clock(), changes: &source.changes,
			upstreamPlaces: upstreamPlaces(),
		}
		go pl.sweep(ctx)
		return pl, nil
	}
}

func podsByUID(pods []*corev1.Pod) map[string]*corev1.Pod {
	byUID := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byUID[string(pod.UID)] = pod
	}
	return byUID
}

// sameGroup reports whether two pods name the same group.
func sameGroup(a, b *corev1.Pod) bool {
	key := workload.GroupOf(a).Key()
	return key != "" && key == workload.GroupOf(b).Key()
}
