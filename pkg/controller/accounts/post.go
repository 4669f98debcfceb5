package accounts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
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

// PostingReconciler posts each object of one kind once. Deleting one moves nothing back: entries are append-only (I8).
type PostingReconciler struct {
	Kind     PostingKind
	Client   client.Client
	Ledger   submission.Ledger
	Recorder events.EventRecorder
	// Sweeper is told that something may fall due that did not before.
	Sweeper *Sweeper
	Clock   clock.PassiveClock
}

// SetupWithManager registers the reconciler.
func (r *PostingReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named(r.Kind.name).
		For(r.Kind.object(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A grant is often applied together with its account, and may come first.
		Watches(&v1alpha1.CreditAccount{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor), builder.WithPredicates(opened)).
		Complete(r)
}

// opened passes the moments at which an account begins to take entries: the ledger knows it, or it is frozen no more.
var opened = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasAccount := e.ObjectOld.(*v1alpha1.CreditAccount)
		after, isAccount := e.ObjectNew.(*v1alpha1.CreditAccount)
		return wasAccount && isAccount && !takesEntries(before) && takesEntries(after)
	},
}

func takesEntries(account *v1alpha1.CreditAccount) bool {
	return meta.IsStatusConditionTrue(account.Status.Conditions, v1alpha1.ConditionReady) &&
		!meta.IsStatusConditionTrue(account.Status.Conditions, v1alpha1.ConditionFrozen)
}

// waitingFor lists what concerns an account and is not posted.
func (r *PostingReconciler) waitingFor(ctx context.Context, account client.Object) []ctrl.Request {
	list := r.Kind.list()
	if err := r.Client.List(ctx, list); err != nil {
		return nil // from memory; each of them is tried again by itself
	}
	var requests []ctrl.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // our own error, of which there is none
		object := item.(client.Object)
		if awaits(readPosting(object), object, account.GetName()) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *PostingReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := r.Kind.object()
	if err := r.Client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wanted := readPosting(object)
	if isOver(wanted, object) {
		return ctrl.Result{}, nil
	}
	base := object.DeepCopyObject().(client.Object)
	verdict, err := r.submit(ctx, wanted)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("post %s %s: %w", wanted.kind, object.GetName(), err)
	}
	meta.SetStatusCondition(&wanted.status.Conditions, postedCondition(wanted, object.GetGeneration(), verdict.Refusal))
	if err := patchStatus(ctx, r.Client, object, base); err != nil {
		return ctrl.Result{}, err
	}
	if verdict.Refusal != nil {
		since := meta.FindStatusCondition(wanted.status.Conditions, v1alpha1.ConditionPosted).LastTransitionTime
		return ctrl.Result{RequeueAfter: retryAfter(verdict.Refusal, since.Time, r.Clock.Now())}, nil
	}
	r.Sweeper.Wake()
	if !verdict.Replayed {
		r.announce(ctx, object, wanted)
	}
	return ctrl.Result{}, nil
}

func (r *PostingReconciler) submit(ctx context.Context, wanted posting) (ledger.Verdict, error) {
	if wanted.problem != nil {
		return ledger.Verdict{Refusal: invalid(wanted.problem)}, nil
	}
	return r.Ledger.Submit(ctx, wanted.command)
}

// announce tells readers of the accounts. Best effort: the statement is the record.
func (r *PostingReconciler) announce(ctx context.Context, object client.Object, done posting) {
	for _, name := range done.accounts {
		account := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if r.Client.Get(ctx, client.ObjectKeyFromObject(account), account) == nil {
			r.Recorder.Eventf(account, object, corev1.EventTypeNormal, done.event, "Post", "%s", done.note)
		}
	}
}
