package creditreservation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/workload"
)

// EventsToRegister returns what can help a pod that this plugin refused. A namespace's label is not among them: kube-scheduler has no
// such event, and the sweep sees it within a second. Neither are grants: they reach a pod as their account's new balance.
func (pl *CreditReservation) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// The account, or another under the same limits, has more available, runs fewer jobs, has another policy or a new
		// period to spend in, is no longer frozen, or lists the namespace now.
		{Event: fwk.ClusterEvent{Resource: catalog.CreditAccounts, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: pl.afterChange},
		// A class may now list the pod's resource; a new rate may be one it can pay.
		{Event: fwk.ClusterEvent{Resource: catalog.GPUClasses, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: pl.afterChange},
		// A pod that drew on the same hold has ended, so the hold covers one more again.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: pl.afterPodEnded},
		// The pod's class label decides its class.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodLabel}, QueueingHintFn: pl.afterChange},
	}, nil
}

// afterChange queues the pods whose wait is over. Whose account did not change is not among them.
func (pl *CreditReservation) afterChange(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	w, waiting := pl.waits.get(pod.UID)
	if !waiting || pl.waitOver(&w, pod) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func (pl *CreditReservation) afterPodEnded(_ klog.Logger, pod *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	ended, _, err := util.As[*corev1.Pod](oldObj, nil)
	if err != nil {
		return fwk.Queue, err
	}
	w, waiting := pl.waits.get(pod.UID)
	if !waiting || w.reason != forChange || workload.HoldUID(ended) != workload.HoldUID(pod) {
		return fwk.QueueSkip, nil
	}
	pl.waits.poke(pod.UID, pl.clock.Now())
	return fwk.Queue, nil
}
