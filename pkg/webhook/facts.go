package webhook

import (
	"slices"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Facts are everything a decision rests on, besides the object itself.
type Facts struct {
	Namespace string
	// Enrolled: the namespace carries the account label, whose value is AccountName.
	Enrolled    bool
	AccountName string
	// Account is nil when there is no such CreditAccount.
	Account *v1alpha1.CreditAccount
	Classes []v1alpha1.GPUClass
	// User is who creates or changes the object.
	User string
	// JobReservation is the reservation of the Job itself, or of the Job that owns the pod; nil when there is none or it was not
	// asked for.
	JobReservation *ledger.Reservation
}

// accountPays reports whether both sides agree: the namespace names the account and the account lists the namespace.
func (f Facts) accountPays() bool {
	return f.Account != nil && slices.Contains(f.Account.Spec.Namespaces, f.Namespace)
}

// holdsAtPlacement, holdsAtAdmission and mayOutlastHold read the account's object, as both steps of one admission do: what the ledger knows
// may be a moment older.
func (f Facts) holdsAtPlacement() bool {
	return f.Account != nil && f.Account.Spec.Policy.HoldAt == v1alpha1.HoldAtPlacement
}

func (f Facts) holdsAtAdmission() bool {
	return f.Account != nil && f.Account.Spec.Policy.HoldAt == v1alpha1.HoldAtAdmission
}

// mayOutlastHold reports whether the account's workloads may run on when their hold is used up, so that no deadline must
// be written for them.
func (f Facts) mayOutlastHold() bool {
	if f.Account == nil {
		return false
	}
	action := f.Account.Spec.Policy.Overrun.Action
	return action == v1alpha1.OverrunRenew || action == v1alpha1.OverrunOverdraft
}

// jobControllers are the users as which kube-controller-manager creates a Job's pods: with a service account per
// controller, and without.
var jobControllers = []string{
	"system:serviceaccount:kube-system:job-controller",
	"system:kube-controller-manager",
}

// byJobController reports whether the object comes from the job controller, whose owner references are true.
func (f Facts) byJobController() bool { return slices.Contains(jobControllers, f.User) }
