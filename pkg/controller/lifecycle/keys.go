package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// PodKey names one attempt. A pod that was created again under the same name has another key (G34).
type PodKey struct {
	UID, Namespace, Name string
}

func podKeyOf(allocation ledger.Allocation) PodKey {
	return PodKey{UID: allocation.PodUID, Namespace: allocation.Pod.Namespace, Name: allocation.Pod.Name}
}

func podKeyOfPod(pod *corev1.Pod) PodKey {
	return PodKey{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
}

// WorkloadKey names one reservation by its workload's UID; the rest is in the ledger's row.
type WorkloadKey struct {
	UID string
	// Seen: a watch reported the object's deletion, so it did exist. It decides between Released and Expired, and
	// travels with the key so that a retry does not forget it.
	Seen bool
}

// inboxSize lets a sweep run ahead of the controller's queue; a full inbox makes the sender wait.
const inboxSize = 1024

// inbox carries keys from one part of the package to a controller's queue, where repeats merge.
type inbox[key comparable] chan event.TypedGenericEvent[key]

func newInbox[key comparable]() inbox[key] { return make(inbox[key], inboxSize) }

// put queues a key; it waits while the inbox is full, until ctx ends.
func (i inbox[key]) put(ctx context.Context, k key) {
	select {
	case i <- event.TypedGenericEvent[key]{Object: k}:
	case <-ctx.Done():
	}
}

func (i inbox[key]) source() source.TypedSource[key] {
	each := func(_ context.Context, k key) []key { return []key{k} }
	return source.TypedChannel((<-chan event.TypedGenericEvent[key])(i), handler.TypedEnqueueRequestsFromMapFunc(each))
}
