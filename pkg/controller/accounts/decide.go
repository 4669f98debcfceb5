package accounts

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	overdraft := ledger.Microcredits(0)
	if text := string(account.Spec.Policy.OverdraftLimit); text != "" {
		var err error
		if overdraft, err = ledger.ParseCredits(text); err != nil {
			return ledger.SetAccount{}, fmt.Errorf("spec.policy.overdraftLimit: %w", err)
		}
	}
	seconds := int64(0)
	if limit := account.Spec.Policy.DefaultMaxRuntime; limit != nil {
		if seconds = int64(limit.Duration / time.Second); time.Duration(seconds)*time.Second != limit.Duration {
			return ledger.SetAccount{}, fmt.Errorf("spec.policy.defaultMaxRuntime: %s is not whole seconds", limit.Duration)
		}
	}
	return ledger.SetAccount{
		Key: key, Account: account.Name, Parent: account.Spec.Parent,
		Policy: ledger.Policy{OverdraftLimit: overdraft, DefaultMaxRuntimeSeconds: seconds},
	}, nil
}

func accountKey(account *v1alpha1.CreditAccount) string {
	return fmt.Sprintf("account:%s:%d", account.UID, account.Generation)
}

// postGrant is the command that gives the grant's credits. Its key is the grant's UID and nothing else, so that they are
// given once (L12).
func postGrant(grant *v1alpha1.CreditGrant) (ledger.PostGrant, error) {
	amount, err := ledger.ParseCredits(string(grant.Spec.Credits))
	if err != nil {
		return ledger.PostGrant{}, fmt.Errorf("spec.credits: %w", err)
	}
	return ledger.PostGrant{
		Key: "grant:" + string(grant.UID), Account: grant.Spec.Account, Amount: amount, Reason: grant.Spec.Reason,
		Actor: "CreditGrant/" + grant.Name,
	}, nil
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

// postedCondition reports whether the ledger has the grant.
func postedCondition(grant *v1alpha1.CreditGrant, refusal *ledger.Refusal) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionPosted, Status: metav1.ConditionTrue, ObservedGeneration: grant.Generation,
		Reason: reasonInLedger, Message: fmt.Sprintf("the ledger has given %s credits to %s", grant.Spec.Credits, grant.Spec.Account),
	}
	if refusal != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, string(refusal.Code), refusal.Message
	}
	return condition
}

// deletableCondition says why an account stays.
func deletableCondition(generation int64, refusal *ledger.Refusal) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionDeletable, Status: metav1.ConditionFalse, ObservedGeneration: generation,
		Reason: string(refusal.Code), Message: refusal.Message,
	}
}

// project writes a ledger row into a status and reports whether that changed anything. A row that is not newer than
// what the status shows changes nothing.
func project(status *v1alpha1.CreditAccountStatus, row ledger.Account) bool {
	if row.Revision <= status.LedgerRevision {
		return false
	}
	status.LedgerRevision = row.Revision
	status.Available = v1alpha1.Credits(ledger.FormatCredits(row.Available()))
	status.Balance = v1alpha1.Credits(ledger.FormatCredits(row.Balance))
	status.Reserved = v1alpha1.Credits(ledger.FormatCredits(row.Reserved))
	status.Charged = v1alpha1.Credits(ledger.FormatCredits(row.Charged))
	return true
}

// isTrueFor reports whether the condition holds for this generation, so that there is nothing left to do.
func isTrueFor(conditions []metav1.Condition, conditionType string, generation int64) bool {
	condition := meta.FindStatusCondition(conditions, conditionType)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == generation
}
