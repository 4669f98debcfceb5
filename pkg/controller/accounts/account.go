package accounts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// retryRefused is how soon a refused account, class or posting is put to the ledger again: what was missing (a parent, an
	// account) is usually being created at the same moment.
	retryRefused = 5 * time.Second
	// retryRefusedMost is how seldom at least: what is missing appears by somebody's hand.
	retryRefusedMost = 5 * time.Minute
	// retryConflicted is soon after the watch has brought what somebody else wrote.
	retryConflicted = 100 * time.Millisecond
)

// retryDeletion is how often a refused deletion is tried again; history does not go away, open reservations do.
const retryDeletion = 30 * time.Second

// AccountReconciler makes the ledger know each CreditAccount as specified.
type AccountReconciler struct {
	Client    client.Client
	Ledger    submission.Ledger
	Projector *Projector
	Sweeper   *Sweeper
	Recorder  events.EventRecorder
	// Resync is how often an unchanged account is put to the ledger again, against a ledger restored from a backup.
	Resync time.Duration
	Clock  clock.PassiveClock
}

// SetupWithManager registers the reconciler.
func (r *AccountReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named("creditaccount").
		// Status changes every second on a busy account and concerns nobody here.
		For(&v1alpha1.CreditAccount{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *AccountReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	account := &v1alpha1.CreditAccount{}
	if err := r.Client.Get(ctx, request.NamespacedName, account); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !account.DeletionTimestamp.IsZero() {
		return r.remove(ctx, account)
	}
	if !controllerutil.ContainsFinalizer(account, v1alpha1.AccountFinalizer) {
		// Before the ledger learns of the account, so that it cannot be deleted behind the ledger's back.
		base := account.DeepCopy()
		controllerutil.AddFinalizer(account, v1alpha1.AccountFinalizer)
		if err := r.Client.Patch(ctx, account, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, fmt.Errorf("add finalizer to account %s: %w", account.Name, err)
		}
	}
	refusal, err := r.set(ctx, account)
	if err != nil {
		return ctrl.Result{}, err
	}
	base := account.DeepCopy()
	meta.SetStatusCondition(&account.Status.Conditions, readyCondition(account.Generation, refusal, account.Spec.Parent))
	account.Status.ObservedGeneration = account.Generation
	if err := r.patchStatus(ctx, account, base); err != nil {
		return retryConflict(err)
	}
	if refusal != nil {
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	}
	return ctrl.Result{RequeueAfter: r.Resync}, nil
}

func (r *AccountReconciler) set(ctx context.Context, account *v1alpha1.CreditAccount) (*ledger.Refusal, error) {
	key := accountKey(account)
	if _, err := setAccount(account, key); err != nil {
		return invalid(err), nil
	}
	verdict, err := submission.Anew(ctx, r.Ledger, r.Clock.Now(), key, func(key string) ledger.Command {
		command, _ := setAccount(account, key) // checked above; only the key differs
		return command
	})
	if err != nil {
		return nil, fmt.Errorf("set account %s: %w", account.Name, err)
	}
	if verdict.Refusal != nil {
		log.FromContext(ctx).Info("Ledger refused the account", "code", verdict.Refusal.Code, "message", verdict.Refusal.Message)
		return verdict.Refusal, nil
	}
	r.Projector.Recheck()
	r.Sweeper.Wake()
	return nil, nil
}

// remove lets the account go if the ledger has no history for it; otherwise it stays and says why.
func (r *AccountReconciler) remove(ctx context.Context, account *v1alpha1.CreditAccount) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(account, v1alpha1.AccountFinalizer) {
		return ctrl.Result{}, nil
	}
	verdict, err := submission.Anew(ctx, r.Ledger, r.Clock.Now(), "remove:"+string(account.UID), func(key string) ledger.Command {
		return ledger.RemoveAccount{Key: key, Account: account.Name}
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("remove account %s: %w", account.Name, err)
	}
	base := account.DeepCopy()
	if refusal := verdict.Refusal; refusal != nil {
		changed := meta.SetStatusCondition(&account.Status.Conditions, deletableCondition(account.Generation, refusal))
		if err := r.patchStatus(ctx, account, base); err != nil {
			return retryConflict(err)
		}
		if changed {
			r.Recorder.Eventf(account, nil, corev1.EventTypeWarning, "DeletionRefused", "Delete", "%s", refusal.Message)
		}
		return ctrl.Result{RequeueAfter: retryDeletion}, nil
	}
	controllerutil.RemoveFinalizer(account, v1alpha1.AccountFinalizer)
	if err := r.Client.Patch(ctx, account, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return ctrl.Result{}, fmt.Errorf("remove finalizer from account %s: %w", account.Name, client.IgnoreNotFound(err))
	}
	r.Projector.Forget(account.Name)
	return ctrl.Result{}, nil
}

// patchStatus writes an account's conditions. They are one list, of which the projector writes others: the patch is
// refused when the account has changed since it was read, so that neither takes away what the other wrote.
func (r *AccountReconciler) patchStatus(ctx context.Context, account, base *v1alpha1.CreditAccount) error {
	if equality.Semantic.DeepEqual(base.Status, account.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, account, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of account %s: %w", account.Name, err)
	}
	return nil
}

// retryConflict has an account read again that somebody else has written meanwhile, which is no failure.
func retryConflict(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retryConflicted}, nil
	}
	return ctrl.Result{}, err
}

// patchStatus writes the status of an object of which nobody else writes any.
func patchStatus(ctx context.Context, c client.Client, object, base client.Object) error {
	if err := c.Status().Patch(ctx, object, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of %s: %w", object.GetName(), err)
	}
	return nil
}
