package gang

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// EventsToRegister returns what can help a member that this plugin refused. PodGroups and Jobs are not among them: kube-scheduler would
// wait for ever for an API that is not served, and has no event for Jobs; their watches wake the members themselves (Source).
func (pl *Gang) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// It may be the member that was missing. The event comes only where kube-scheduler's own gang scheduling is on; see rouse.
		{Event: fwk.ClusterEvent{Resource: fwk.UnscheduledPod, ActionType: fwk.Add}, QueueingHintFn: pl.afterMember},
		// A member that has a node now makes the others fewer.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Add}, QueueingHintFn: pl.afterMember},
		// It leaves room.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown}, QueueingHintFn: pl.afterRoom},
		// It is room, or may be used now.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint}, QueueingHintFn: pl.afterRoom},
	}, nil
}

func (pl *Gang) afterMember(_ klog.Logger, pod *corev1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	_, added, err := util.As[*corev1.Pod](nil, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if sameGroup(pod, added) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func (pl *Gang) afterRoom(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) {
	pl.changes.Add(1) // what was found before is not believed any more
	return fwk.Queue, nil
}
