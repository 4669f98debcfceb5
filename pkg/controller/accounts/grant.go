package accounts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// GrantReconciler posts each CreditGrant once. Deleting a CreditGrant takes nothing back: entries are append-only (I8).
type GrantReconciler struct {
	Client   client.Client
	Ledger   submission.Ledger
	Recorder events.EventRecorder
}

// SetupWithManager registers the reconciler.
func (r *GrantReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named("creditgrant").
		For(&v1alpha1.CreditGrant{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A grant is often applied together with its account, and may come first.
		Watches(&v1alpha1.CreditAccount{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor), builder.WithPredicates(becameReady)).
		Complete(r)
}

// becameReady passes the moment at which the ledger knows an account, and no other change of it.
var becameReady = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasAccount := e.ObjectOld.(*v1alpha1.CreditAccount)
		after, isAccount := e.ObjectNew.(*v1alpha1.CreditAccount)
		return wasAccount && isAccount &&
			!meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionReady) &&
			meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionReady)
	},
}

// waitingFor lists the grants to an account that are not posted.
func (r *GrantReconciler) waitingFor(ctx context.Context, account client.Object) []ctrl.Request {
	grants := &v1alpha1.CreditGrantList{}
	if err := r.Client.List(ctx, grants); err != nil {
		return nil // from memory; each of them is tried again by itself
	}
	var requests []ctrl.Request
	for i := range grants.Items {
		grant := &grants.Items[i]
		if grant.Spec.Account == account.GetName() && !isTrueFor(grant.Status.Conditions, v1alpha1.ConditionPosted, grant.Generation) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(grant)})
		}
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *GrantReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	grant := &v1alpha1.CreditGrant{}
	if err := r.Client.Get(ctx, request.NamespacedName, grant); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if isTrueFor(grant.Status.Conditions, v1alpha1.ConditionPosted, grant.Generation) {
		return ctrl.Result{}, nil
	}
	refusal, posted, err := r.post(ctx, grant)
	if err != nil {
		return ctrl.Result{}, err
	}
	base := grant.DeepCopy()
	meta.SetStatusCondition(&grant.Status.Conditions, postedCondition(grant, refusal))
	if err := patchStatus(ctx, r.Client, grant, base); err != nil {
		return ctrl.Result{}, err
	}
	if refusal != nil {
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	}
	if posted {
		r.announce(ctx, grant)
	}
	return ctrl.Result{}, nil
}

// post returns the refusal, if any, and whether the grant was posted now rather than before.
func (r *GrantReconciler) post(ctx context.Context, grant *v1alpha1.CreditGrant) (*ledger.Refusal, bool, error) {
	command, err := postGrant(grant)
	if err != nil {
		return invalid(err), false, nil
	}
	verdict, err := r.Ledger.Submit(ctx, command)
	if err != nil {
		return nil, false, fmt.Errorf("post grant %s: %w", grant.Name, err)
	}
	return verdict.Refusal, verdict.Refusal == nil && !verdict.Replayed, nil
}

// announce tells readers of the account. Best effort: the statement is the record.
func (r *GrantReconciler) announce(ctx context.Context, grant *v1alpha1.CreditGrant) {
	account := &v1alpha1.CreditAccount{}
	if r.Client.Get(ctx, client.ObjectKey{Name: grant.Spec.Account}, account) != nil {
		return
	}
	r.Recorder.Eventf(account, grant, corev1.EventTypeNormal, "Granted", "Grant",
		"%s credits granted by %s: %s", grant.Spec.Credits, grant.Name, grant.Spec.Reason)
}
