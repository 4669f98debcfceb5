package checkpointpreemption

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// evaluation hands what was decided to upstream's evaluator, which fetches the pod again, asks extenders, nominates and has its
// executor evict. It gets one node to look at and the victims on it.
type evaluation struct{}

var _ preemption.Interface = evaluation{}

const decisionKey fwk.StateKey = "PostFilter" + Name

// Clone returns the decision itself: it is one, whoever carries it out.
func (d *decision) Clone() fwk.StateData { return d }

// GetOffsetAndNumCandidates: all that it is given.
func (evaluation) GetOffsetAndNumCandidates(nodes int32) (int32, int32) { return 0, nodes }

// CandidatesToVictimsMap is upstream's.
func (evaluation) CandidatesToVictimsMap(candidates []preemption.Candidate) map[string]*extenderv1.Victims {
	m := make(map[string]*extenderv1.Victims, len(candidates))
	for _, c := range candidates {
		m[c.Name()] = c.Victims()
	}
	return m
}

// PodEligibleToPreemptOthers: that was decided before.
func (evaluation) PodEligibleToPreemptOthers(context.Context, *corev1.Pod, *fwk.Status) (bool, string) {
	return true, ""
}

// SelectVictimsOnNode returns the victims that were decided on.
func (evaluation) SelectVictimsOnNode(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo, _ []*preemption.DomainVictim, _ []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	data, err := state.Read(decisionKey)
	if err != nil {
		return nil, 0, fwk.AsStatus(err)
	}
	d := data.(*decision)
	if node.Node().Name != d.node {
		return nil, 0, fwk.NewStatus(fwk.Unschedulable, "another node was decided on")
	}
	return d.victims, int(d.cost.Violations), nil
}

// OrderedScoreFuncs: there is one candidate.
func (evaluation) OrderedScoreFuncs(context.Context, map[string]*extenderv1.Victims) []func(node string) int64 {
	return nil
}

// only is a cycle's verdicts on nodes as if one node alone were worth looking at.
type only struct {
	fwk.NodeToStatusReader
	node fwk.NodeInfo
}

func (o only) NodesForStatusCode(fwk.NodeInfoLister, fwk.Code) ([]fwk.NodeInfo, error) {
	return []fwk.NodeInfo{o.node}, nil
}
