package checkpointpreemption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// fate is what is to be done about a decision that is being carried out.
type fate int

const (
	stillRunning fate = iota
	// over: the preemptor is placed or gone.
	over
	// overdue: a victim has not stopped long after it should have.
	overdue
)

// fateOf decides it from the preemptor, nil if it is gone, and the victims as they are now, nil where one is gone.
func fateOf(preemptor *corev1.Pod, victims []*corev1.Pod, patience time.Duration, now time.Time) fate {
	if preemptor == nil || preemptor.Spec.NodeName != "" || preemptor.DeletionTimestamp != nil {
		return over
	}
	for _, victim := range victims {
		if victim != nil && victim.DeletionTimestamp != nil && now.After(victim.DeletionTimestamp.Add(patience)) {
			return overdue
		}
	}
	return stillRunning
}

func (pl *CheckpointPreemption) lookOver(ctx context.Context, uid types.UID, d *decision) {
	preemptor := pl.current(d.preemptor)
	now := make([]*corev1.Pod, len(d.victims))
	for i, victim := range d.victims {
		now[i] = pl.current(victim)
	}
	switch fateOf(preemptor, now, pl.args.StopPatience.Duration, pl.clock.Now()) {
	case over:
		pl.decisions.CompareAndDelete(uid, d)
	case overdue:
		pl.decisions.CompareAndDelete(uid, d)
		logger := klog.FromContext(ctx)
		logger.Info("Victims have not stopped in time; their GPUs stay taken, and the pod is tried elsewhere", "pod", klog.KObj(preemptor), "node", d.node)
		pl.handle.EventRecorder().WithLogger(logger).Eventf(preemptor, nil, corev1.EventTypeWarning, "VictimsDidNotStop", "Preempting",
			"pods stopped for this one on node %s are not over %v after their grace period; their GPUs stay taken until somebody knows that they have stopped, and this pod is tried elsewhere",
			d.node, pl.args.StopPatience.Duration)
		pl.handle.Activate(logger, map[string]*corev1.Pod{preemptor.Name: preemptor})
	}
}

// current is a pod as a watch shows it now, nil if it is gone or another has its name.
func (pl *CheckpointPreemption) current(pod *corev1.Pod) *corev1.Pod {
	now, err := pl.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID {
		return nil
	}
	return now
}
