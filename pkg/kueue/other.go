package kueue

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// answerOther answers for a Workload that is not a batch/v1 Job's.
func (r *reconciler) answerOther(ctx context.Context, key Key) error {
	w := &kueuev1beta2.Workload{}
	err := r.live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Workload}, w)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Workload %s/%s: %w", key.Namespace, key.Workload, err)
	}
	ours, err := r.ourChecks(ctx)
	if err != nil {
		return err
	}
	a := admissionOf(w, ours)
	if _, ofJob := jobOwner(w); ofJob || !a.active() || len(a.checks) == 0 {
		return nil
	}
	return r.answer(ctx, []*kueuev1beta2.Workload{w}, []answer{decideOther(a, w.OwnerReferences)})
}

// decideOther answers for a Workload by its owners. Whatever they are, gpubank's webhook holds for each Job and pod that comes of them, so there
// is nothing to set aside for the whole.
func decideOther(a admission, owners []metav1.OwnerReference) answer {
	if len(owners) == 0 {
		return answer{workload: a, state: kueuev1beta2.CheckStatePending,
			message: "This Workload has no owner, so nobody is to pay for it; Kueue makes the Workloads of Jobs itself"}
	}
	owner := owners[0]
	for _, each := range owners {
		if each.Controller != nil && *each.Controller {
			owner = each
		}
	}
	return answer{workload: a, state: kueuev1beta2.CheckStateReady,
		message: fmt.Sprintf("Credits are set aside for each Job or pod of %s %s when it is created", owner.Kind, owner.Name)}
}
