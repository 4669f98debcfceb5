package fairqueue

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

const (
	// explainPeriod is how often waiting pods are looked over for one whose condition does not say why.
	explainPeriod = time.Second
	// renumberAfter is how long the numbers in a condition may stay although they have changed.
	renumberAfter = 5 * time.Minute
)

// reasonQuota is the condition's reason while a limit holds a pod back. It is not Unschedulable, since an autoscaler would add nodes
// for that, which do not help.
const reasonQuota = "Quota"

// saying is a condition to write.
type saying struct {
	pod  *corev1.Pod
	text string
}

// explain writes into waiting pods' conditions what they wait for, until ctx ends.
func (d *desk) explain(ctx context.Context) {
	ticker := d.clock.NewTicker(explainPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, each := range d.sayings() {
			d.say(ctx, each)
		}
	}
}

// sayings are the conditions to write now: first for pods whose reason is not said yet, at most ExplainPerSecond. A standby writes none.
func (d *desk) sayings() []saying {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open || !d.leading {
		return nil
	}
	now, most := d.clock.Now(), int(d.args.ExplainPerSecond)
	var urgent, stale []saying
	for uid, w := range d.waiting {
		if len(urgent) >= most {
			break
		}
		if uid == d.hand.uid || now.Sub(w.since) < d.args.ExplainAfter.Duration {
			continue
		}
		word := d.queue.Waits(uid)
		switch {
		case word == "":
			w.told = "" // something else is in its way, and kube-scheduler has said what
		case word != w.told:
			urgent = append(urgent, saying{w.pod, d.queue.Explain(uid)})
			w.told, w.toldAt = word, now
		case now.Sub(w.toldAt) >= renumberAfter && len(stale) < most:
			stale = append(stale, saying{w.pod, d.queue.Explain(uid)})
			w.toldAt = now
		}
	}
	return append(urgent, stale[:min(len(stale), most-len(urgent))]...)
}

// say writes one condition. The version of the pod guards against saying of a bound pod that it is not.
func (d *desk) say(ctx context.Context, s saying) {
	known := d.current(s.pod)
	if known == nil || known.Spec.NodeName != "" || s.text == "" {
		return
	}
	pod := known.DeepCopy()
	reason := corev1.PodReasonUnschedulable
	if strings.HasPrefix(s.text, turn.ByQuota) {
		reason = reasonQuota
	}
	changed := podutil.UpdatePodCondition(&pod.Status, &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: s.text,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, corev1.PodScheduled),
	})
	if !changed {
		return
	}
	_, err := d.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiting[string(pod.UID)]; w != nil {
		w.told = "" // again
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("What a pod waits for could not be written into its condition; it is tried again", "pod", klog.KObj(pod), "reason", err.Error())
	}
}
