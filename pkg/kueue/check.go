package kueue

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// checkReconciler tells Kueue that somebody answers our admission checks; until then their ClusterQueues admit nothing.
type checkReconciler struct {
	client client.Client
}

// Reconcile implements reconcile.Reconciler.
func (r *checkReconciler) Reconcile(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
	check := &kueuev1beta2.AdmissionCheck{}
	if err := r.client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if check.Spec.ControllerName != ControllerName {
		return ctrl.Result{}, nil
	}
	base := check.DeepCopy()
	if !apimeta.SetStatusCondition(&check.Status.Conditions, activity(check)) {
		return ctrl.Result{}, nil
	}
	// The conditions are written as a whole.
	err := r.client.Status().Patch(ctx, check, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("say of admission check %s that it is answered: %w", check.Name, err)
	}
	return ctrl.Result{}, nil
}

// activity is what Kueue is told of a check.
func activity(check *kueuev1beta2.AdmissionCheck) metav1.Condition {
	condition := metav1.Condition{
		Type: kueuev1beta2.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active",
		Message: "gpubank sets credits aside for what is admitted", ObservedGeneration: check.Generation,
	}
	if parameters := check.Spec.Parameters; parameters != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, "ParametersUnknown"
		condition.Message = fmt.Sprintf("spec.parameters: %s %s is not known here; what is to be held is the account's policy, so leave it out", parameters.Kind, parameters.Name)
	}
	return condition
}
