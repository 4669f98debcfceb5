package accounts

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// policyOf is an account's policy as the ledger keeps it. A default that is written out and one that is left out are the
// same policy, the zero value of its field, so that neither makes a new version of the other.
func policyOf(spec v1alpha1.AccountPolicy) (ledger.Policy, error) {
	var f fields
	policy := ledger.Policy{
		OverdraftLimit:           f.credits("overdraftLimit", spec.OverdraftLimit),
		DefaultMaxRuntimeSeconds: f.seconds("defaultMaxRuntime", spec.DefaultMaxRuntime),
		Funding:                  orZero(ledger.Funding(spec.Funding), ledger.FundingOwn),
		RunningJobs:              spec.RunningJobs,
		GPUs:                     gpuLimits(spec.GPUs),
		HoldAt:                   orZero(ledger.HoldMoment(spec.HoldAt), ledger.HoldAtSubmission),
		Overrun: ledger.Overrun{
			Action:      orZero(ledger.OverrunAction(spec.Overrun.Action), ledger.OverrunStop),
			LeadSeconds: f.seconds("overrun.lead", spec.Overrun.Lead),
			StepSeconds: f.seconds("overrun.step", spec.Overrun.Step),
		},
	}
	if limit := spec.Spending; limit != nil {
		policy.Spending = ledger.SpendingLimit{Amount: f.credits("spending.credits", limit.Credits), Period: ledger.Period(limit.Period)}
	}
	if refunds := spec.Refunds; refunds != nil {
		policy.Refunds = ledger.RefundPolicy(*refunds)
	}
	if refill := spec.Refill; refill != nil {
		policy.Refill = ledger.Refill{
			Amount: f.credits("refill.credits", refill.Credits), Cap: f.credits("refill.cap", refill.Cap),
			PeriodSeconds: f.seconds("refill.period", &refill.Period),
		}
	}
	return policy, f.problem
}

func orZero[T ~string](value, byDefault T) T {
	if value == byDefault {
		return ""
	}
	return value
}

func gpuLimits(limits []v1alpha1.GPULimit) ledger.GPULimits {
	var converted []ledger.GPULimit
	for _, limit := range limits {
		converted = append(converted, ledger.GPULimit(limit))
	}
	return ledger.FormatGPULimits(converted)
}

// fields reads the texts of a policy and keeps the first problem. The API server lets none through; an object that was
// stored before a rule existed may have one.
type fields struct{ problem error }

func (f *fields) fail(field string, err error) {
	if f.problem == nil {
		f.problem = fmt.Errorf("spec.policy.%s: %w", field, err)
	}
}

func (f *fields) credits(field string, text v1alpha1.Credits) ledger.Microcredits {
	if text == "" {
		return 0
	}
	amount, err := ledger.ParseCredits(string(text))
	if err != nil {
		f.fail(field, err)
	}
	return amount
}

func (f *fields) seconds(field string, duration *metav1.Duration) int64 {
	if duration == nil {
		return 0
	}
	if duration.Duration%time.Second != 0 {
		f.fail(field, fmt.Errorf("%s is not whole seconds", duration.Duration))
	}
	return int64(duration.Duration / time.Second)
}
