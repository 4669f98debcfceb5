package accounts

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Reasons of the conditions that show a ledger row.
const (
	reasonFrozen    = "Frozen"
	reasonInOrder   = "InOrder"
	reasonOverdrawn = "BelowOverdraftLimit"
	reasonWithin    = "WithinOverdraftLimit"
)

// project writes a ledger row into a status and reports whether that changed anything. A row older than what the status
// shows changes nothing.
func project(status *v1alpha1.CreditAccountStatus, row ledger.Account, now time.Time) bool {
	if row.Revision < status.LedgerRevision {
		return false
	}
	before := status.DeepCopy()
	status.LedgerRevision = row.Revision
	status.Available = credits(row.Available())
	status.Balance = credits(row.Balance)
	status.Reserved = credits(row.Reserved)
	status.Charged = credits(row.Charged)
	status.Held = credits(row.Held)
	status.Running = row.SubtreeRunning
	status.Spending = spendingStatus(row)
	for _, condition := range []metav1.Condition{frozenCondition(row), overdrawnCondition(row)} {
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return !equality.Semantic.DeepEqual(before, status)
}

func credits(amount ledger.Microcredits) v1alpha1.Credits {
	return v1alpha1.Credits(ledger.FormatCredits(amount))
}

func spendingStatus(row ledger.Account) *v1alpha1.SpendingStatus {
	limit := row.Policy.Spending
	if limit.Period == "" {
		return nil
	}
	return &v1alpha1.SpendingStatus{
		Since: metav1.NewTime(row.SpentSince), Spent: credits(row.SubtreeSpent), Held: credits(row.SubtreeHeld),
		Left: credits(limit.Amount - row.SubtreeSpent - row.SubtreeHeld),
	}
}

func frozenCondition(row ledger.Account) metav1.Condition {
	if row.Frozen == "" {
		return metav1.Condition{Type: v1alpha1.ConditionFrozen, Status: metav1.ConditionFalse, Reason: reasonInOrder, Message: "the account is in order"}
	}
	return metav1.Condition{Type: v1alpha1.ConditionFrozen, Status: metav1.ConditionTrue, Reason: reasonFrozen, Message: row.Frozen}
}

func overdrawnCondition(row ledger.Account) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionOverdrawn, Status: metav1.ConditionFalse, Reason: reasonWithin, Message: "the account is within its overdraft limit",
	}
	if overspent := row.Overspent(); overspent > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonOverdrawn
		condition.Message = fmt.Sprintf("%s credits below its overdraft limit of %s: it can pay for no new hold until it is granted more or open holds end",
			ledger.DisplayCredits(overspent), ledger.DisplayCredits(row.Policy.OverdraftLimit))
	}
	return condition
}

// gotFrozen reports whether the account is frozen now and was not before.
func gotFrozen(before, after v1alpha1.CreditAccountStatus) bool {
	return !meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionFrozen) &&
		meta.IsStatusConditionTrue(after.Conditions, v1alpha1.ConditionFrozen)
}
