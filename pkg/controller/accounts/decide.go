package accounts

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Reasons of conditions that are not a ledger refusal code.
const (
	reasonInLedger      = "InLedger"
	reasonParentUnknown = "ParentUnknown"
	reasonInvalid       = "Invalid"
)

// setAccount is the command that makes the ledger know the account as specified.
func setAccount(account *v1alpha1.CreditAccount, key string) (ledger.SetAccount, error) {
	policy, err := policyOf(account.Spec.Policy)
	return ledger.SetAccount{Key: key, Account: account.Name, Parent: account.Spec.Parent, Policy: policy}, err
}

func accountKey(account *v1alpha1.CreditAccount) string {
	return fmt.Sprintf("account:%s:%d", account.UID, account.Generation)
}

// setRate is the command that makes the ledger know the class's price.
func setRate(class *v1alpha1.GPUClass, key string) (ledger.SetRate, error) {
	price, err := ledger.ParseCredits(string(class.Spec.CreditsPerGPUSecond))
	if err != nil {
		return ledger.SetRate{}, fmt.Errorf("spec.creditsPerGPUSecond: %w", err)
	}
	return ledger.SetRate{Key: key, Class: class.Name, Rate: ledger.Rate(price)}, nil
}

func rateKey(class *v1alpha1.GPUClass) string {
	return fmt.Sprintf("rate:%s:%d", class.UID, class.Generation)
}

// readyCondition reports what the ledger said to an account's or a class's specification.
func readyCondition(generation int64, refusal *ledger.Refusal, parent string) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: reasonInLedger, Message: "the ledger knows this specification",
	}
	if refusal == nil {
		return condition
	}
	condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, string(refusal.Code), refusal.Message
	if refusal.Code == ledger.UnknownAccount && parent != "" {
		condition.Reason = reasonParentUnknown
		condition.Message = fmt.Sprintf("the ledger does not know the parent account %q yet; create it, or correct spec.parent", parent)
	}
	return condition
}

// invalid is the refusal of a specification that cannot even be put to the ledger.
func invalid(err error) *ledger.Refusal {
	return &ledger.Refusal{Code: ledger.RefusalCode(reasonInvalid), Message: err.Error()}
}

// postedCondition reports whether the ledger has what the object asks for.
func postedCondition(wanted posting, generation int64, refusal *ledger.Refusal) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionPosted, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: reasonInLedger, Message: wanted.done,
	}
	if refusal == nil {
		return condition
	}
	condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, string(refusal.Code), refusal.Message
	if !refusal.Code.Retryable() {
		condition.Message += fmt.Sprintf(" (this answer is final; to ask again, create another %s)", wanted.kind)
	}
	return condition
}

// retryAfter is when to put a refused posting to the ledger again, 0 for never: after as long as it has been refused, so
// that what is often only a moment early is posted soon and what waits for months costs nothing.
func retryAfter(refusal *ledger.Refusal, since, now time.Time) time.Duration {
	if !refusal.Code.Retryable() {
		return 0
	}
	return min(max(now.Sub(since), retryRefused), retryRefusedMost)
}

// isOver reports whether nothing is left to do for an object: it is posted, or is being deleted. What is deleted before it
// was posted never is.
func isOver(wanted posting, object client.Object) bool {
	return !object.GetDeletionTimestamp().IsZero() || isTrueFor(wanted.status.Conditions, v1alpha1.ConditionPosted, object.GetGeneration())
}

// awaits reports whether an object is not posted and concerns the account.
func awaits(wanted posting, object client.Object, account string) bool {
	return slices.Contains(wanted.accounts, account) && !isOver(wanted, object)
}

// deletableCondition says why an account stays.
func deletableCondition(generation int64, refusal *ledger.Refusal) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionDeletable, Status: metav1.ConditionFalse, ObservedGeneration: generation,
		Reason: string(refusal.Code), Message: refusal.Message,
	}
}

// isTrueFor reports whether the condition holds for this generation, so that there is nothing left to do.
func isTrueFor(conditions []metav1.Condition, conditionType string, generation int64) bool {
	condition := meta.FindStatusCondition(conditions, conditionType)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == generation
}
