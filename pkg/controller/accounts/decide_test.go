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
	account.Spec.Policy = v1alpha1.AccountPolicy{OverdraftLimit: "12.5", DefaultMaxRuntime: &metav1.Duration{Duration: 90 * time.Minute}}
	got, err := setAccount(account, accountKey(account))
	if err != nil {
		t.Fatal(err)
	}
	want := ledger.SetAccount{
		Key: "account:u1:3", Account: "team-a", Parent: "lab",
		Policy: ledger.Policy{OverdraftLimit: 12_500_000, DefaultMaxRuntimeSeconds: 5400},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	account.Spec.Policy.DefaultMaxRuntime.Duration += time.Millisecond
	if _, err := setAccount(account, "k"); err == nil {
		t.Error("a fraction of a second was dropped silently")
	}
}

func TestPostGrantIsKeyedByUID(t *testing.T) {
	grant := &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{Name: "march", UID: "u2", Generation: 1},
		Spec:       v1alpha1.CreditGrantSpec{Account: "team-a", Credits: "10000", Reason: "March budget"},
	}
	got, err := postGrant(grant)
	if err != nil {
		t.Fatal(err)
	}
	want := ledger.PostGrant{Key: "grant:u2", Account: "team-a", Amount: 10_000 * ledger.Credit, Reason: "March budget", Actor: "CreditGrant/march"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
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

func TestProjectNeverGoesBack(t *testing.T) {
	row := ledger.Account{Name: "team-a", Balance: 8_320 * ledger.Credit, Reserved: 500_000, Charged: 1_680 * ledger.Credit, Revision: 9}
	var status v1alpha1.CreditAccountStatus
	if !project(&status, row) {
		t.Fatal("a newer row changed nothing")
	}
	want := v1alpha1.CreditAccountStatus{Available: "8319.5", Balance: "8320", Reserved: "0.5", Charged: "1680", LedgerRevision: 9}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	row.Balance, row.Revision = 0, 8
	if project(&status, row) || status.Balance != "8320" {
		t.Error("an older row went over a newer one")
	}
}
