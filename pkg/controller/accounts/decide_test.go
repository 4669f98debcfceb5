package accounts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestSetAccount(t *testing.T) {
	account := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "u1", Generation: 3}}
	account.Spec.Parent = "lab"
	account.Spec.Policy = v1alpha1.AccountPolicy{
		OverdraftLimit: "12.5", DefaultMaxRuntime: &metav1.Duration{Duration: 90 * time.Minute},
		Funding: v1alpha1.FundingAncestor, Spending: &v1alpha1.SpendingLimit{Credits: "100", Period: v1alpha1.PeriodQuarter}, RunningJobs: 3,
		GPUs:   []v1alpha1.GPULimit{{Class: "h100", Guaranteed: 16}, {Class: "a100", Guaranteed: 8, Borrowable: 4}},
		HoldAt: v1alpha1.HoldAtPlacement,
		Overrun: v1alpha1.OverrunPolicy{
			Action: v1alpha1.OverrunRenew, Lead: &metav1.Duration{Duration: time.Minute}, Step: &metav1.Duration{Duration: time.Hour},
		},
		Refunds: &v1alpha1.RefundPolicy{FailedPercent: 50, PreemptedPercent: 100, PreemptedSinceCheckpoint: true, DeviceFault: true},
		Refill:  &v1alpha1.RefillPolicy{Credits: "1.5", Period: metav1.Duration{Duration: 24 * time.Hour}, Cap: "30"},
	}
	got, err := setAccount(account, accountKey(account))
	if err != nil {
		t.Fatal(err)
	}
	want := ledger.SetAccount{
		Key: "account:u1:3", Account: "team-a", Parent: "lab",
		Policy: ledger.Policy{
			OverdraftLimit: 12_500_000, DefaultMaxRuntimeSeconds: 5400, Funding: ledger.FundingAncestor,
			Spending: ledger.SpendingLimit{Amount: 100 * ledger.Credit, Period: ledger.PeriodQuarter}, RunningJobs: 3,
			GPUs: "a100=8+4 h100=16+0", HoldAt: ledger.HoldAtPlacement,
			Overrun: ledger.Overrun{Action: ledger.OverrunRenew, LeadSeconds: 60, StepSeconds: 3600},
			Refunds: ledger.RefundPolicy{FailedPercent: 50, PreemptedPercent: 100, PreemptedSinceCheckpoint: true, DeviceFault: true},
			Refill:  ledger.Refill{Amount: 1_500_000, PeriodSeconds: 86_400, Cap: 30 * ledger.Credit},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	account.Spec.Policy.DefaultMaxRuntime.Duration += time.Millisecond
	if _, err := setAccount(account, "k"); err == nil {
		t.Error("a fraction of a second was dropped silently")
	}
}

func TestReadyConditionSaysWhatIsMissing(t *testing.T) {
	if got := readyCondition(2, nil, "lab"); got.Status != metav1.ConditionTrue || got.ObservedGeneration != 2 {
		t.Errorf("accepted: %+v", got)
	}
	missing := readyCondition(2, &ledger.Refusal{Code: ledger.UnknownAccount}, "lab")
	if missing.Status != metav1.ConditionFalse || missing.Reason != reasonParentUnknown {
		t.Errorf("parent unknown: %+v", missing)
	}
	if cycle := readyCondition(2, &ledger.Refusal{Code: ledger.Invalid, Message: "below itself"}, "lab"); cycle.Reason != "Invalid" || cycle.Message != "below itself" {
		t.Errorf("cycle: %+v", cycle)
	}
}
