package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// wakeUp is a key that no pod has.
const wakeUp = ""

// feed hands keys from the queue, which outlives a silent node, to this life of it.
func (n *node) feed(ctx context.Context, keys chan<- string) {
	for {
		key, _ := n.queue.Get()
		n.queue.Done(key)
		select {
		case <-ctx.Done():
			n.queue.Add(key)
			return
		case keys <- key:
		}
	}
}

func (n *node) work(ctx context.Context, keys <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-keys:
			if key == wakeUp {
				continue
			}
			after, err := n.sync(ctx, key)
			switch {
			case err != nil && ctx.Err() == nil:
				if !apierrors.IsConflict(err) {
					klog.FromContext(ctx).Error(err, "Pod was not synced; it is tried again", "pod", key)
				}
				n.queue.AddRateLimited(key)
			case err == nil:
				n.queue.Forget(key)
				if after > 0 {
					n.queue.AddAfter(key, after)
				}
			}
		}
	}
}

// sync does the next step with a pod and returns when to look again, 0 for not before something changes.
func (n *node) sync(ctx context.Context, key string) (time.Duration, error) {
	if err := n.releaseGone(); err != nil {
		return 0, err
	}
	object, exists, err := n.indexer.GetByKey(key)
	if err != nil || !exists {
		return 0, err
	}
	pod := object.(*v1.Pod)
	if pod.Spec.NodeName != n.spec.Name {
		return 0, nil
	}
	now := time.Now().Truncate(time.Second)
	what, until, end := next(pod, now)
	switch what {
	case admit:
		return 0, n.admit(ctx, pod, now)
	case run:
		// Re-adopted pods have their devices in the checkpoint; should that be lost, they get others, as after a lost
		// kubelet checkpoint.
		if _, _, _, err := n.devices.assign(pod); err != nil {
			return 0, err
		}
		return 0, n.report(ctx, pod, runningStatus(pod))
	case finish:
		if err := n.report(ctx, pod, finishedStatus(pod, end)); err != nil {
			return 0, err
		}
		return 0, n.devices.release(pod.UID)
	case remove:
		if err := n.devices.release(pod.UID); err != nil {
			return 0, err
		}
		return 0, n.remove(ctx, pod)
	}
	if pod.Status.Phase == v1.PodRunning {
		if _, _, _, err := n.devices.assign(pod); err != nil {
			return 0, err
		}
	}
	if until.IsZero() {
		return 0, nil
	}
	return max(time.Until(until), time.Millisecond), nil
}

func (n *node) admit(ctx context.Context, pod *v1.Pod, now time.Time) error {
	ok, wanted, free, err := n.devices.assign(pod)
	if err != nil {
		return err
	}
	if !ok {
		return n.report(ctx, pod, rejectedStatus(now, n.spec.ResourceName, wanted, free))
	}
	return n.report(ctx, pod, admittedStatus(pod, now))
}

// report writes the pod's status. The UID in the patch keeps it from reaching a pod recreated under the same name, the
// version from overwriting a start that the cache does not show yet.
func (n *node) report(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report pod %s/%s as %s: %w", pod.Namespace, pod.Name, status.Phase, err)
	}
	return nil
}

// remove confirms that nothing of the pod runs any more.
func (n *node) remove(ctx context.Context, pod *v1.Pod) error {
	now := int64(0)
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("confirm deletion of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// releaseGone takes devices back from pods whose objects are gone (a forced deletion) or ended: the kubelet kills what
// the API server no longer has.
func (n *node) releaseGone() error {
	holding := map[types.UID]bool{}
	for _, pod := range n.pods() {
		if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			holding[pod.UID] = true
		}
	}
	for _, uid := range n.devices.holders() {
		if !holding[uid] {
			if err := n.devices.release(uid); err != nil {
				return err
			}
		}
	}
	return nil
}
