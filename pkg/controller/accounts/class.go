package accounts

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// ClassReconciler makes the ledger know each GPUClass's price. Deleting a class changes no price: what was held under
// it keeps its rate version.
type ClassReconciler struct {
	Client client.Client
	Ledger submission.Ledger
	// Resync is as in AccountReconciler.
	Resync time.Duration
	Clock  clock.PassiveClock
}

// SetupWithManager registers the reconciler.
func (r *ClassReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named("gpuclass").
		For(&v1alpha1.GPUClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *ClassReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	class := &v1alpha1.GPUClass{}
	if err := r.Client.Get(ctx, request.NamespacedName, class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	base := class.DeepCopy()
	refusal, err := r.set(ctx, class)
	if err != nil {
		return ctrl.Result{}, err
	}
	meta.SetStatusCondition(&class.Status.Conditions, readyCondition(class.Generation, refusal, ""))
	if err := patchStatus(ctx, r.Client, class, base); err != nil {
		return ctrl.Result{}, err
	}
	if refusal != nil {
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	}
	return ctrl.Result{RequeueAfter: r.Resync}, nil
}

func (r *ClassReconciler) set(ctx context.Context, class *v1alpha1.GPUClass) (*ledger.Refusal, error) {
	key := rateKey(class)
	if _, err := setRate(class, key); err != nil {
		return invalid(err), nil
	}
	verdict, err := submission.Anew(ctx, r.Ledger, r.Clock.Now(), key, func(key string) ledger.Command {
		command, _ := setRate(class, key) // checked above; only the key differs
		return command
	})
	if err != nil {
		return nil, fmt.Errorf("set rate of class %s: %w", class.Name, err)
	}
	if verdict.Refusal == nil {
		class.Status.RateVersion = verdict.RateVersion
	}
	return verdict.Refusal, nil
}
