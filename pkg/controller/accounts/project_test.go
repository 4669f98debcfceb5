package accounts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

var now = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func TestProject(t *testing.T) {
	row := ledger.Account{
		Name: "team-a", Balance: 8_320 * ledger.Credit, Reserved: 500_000, Charged: 1_680 * ledger.Credit, Held: 20 * ledger.Credit, SubtreeRunning: 3, Revision: 9,
		Policy:     ledger.Policy{Spending: ledger.SpendingLimit{Amount: 100 * ledger.Credit, Period: ledger.PeriodMonth}},
		SpentSince: now.AddDate(0, 0, -1), SubtreeSpent: 90 * ledger.Credit, SubtreeHeld: 30 * ledger.Credit,
	}
	var status v1alpha1.CreditAccountStatus
	if !project(&status, row, now) {
		t.Fatal("a newer row changed nothing")
	}
	at := metav1.NewTime(now)
	want := v1alpha1.CreditAccountStatus{
		Available: "8319.5", Balance: "8320", Reserved: "0.5", Charged: "1680", Held: "20", Running: 3, LedgerRevision: 9,
		Spending: &v1alpha1.SpendingStatus{Since: metav1.NewTime(row.SpentSince), Spent: "90", Held: "30", Left: "-20"},
		Conditions: []metav1.Condition{
			{Type: "Frozen", Status: "False", Reason: "InOrder", Message: "the account is in order", LastTransitionTime: at},
			{Type: "Overdrawn", Status: "False", Reason: "WithinOverdraftLimit", Message: "the account is within its overdraft limit", LastTransitionTime: at},
		},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if project(&status, row, now.Add(time.Hour)) {
		t.Error("the same row changed something")
	}
	older := row
	older.Balance, older.Revision = 0, 8
	if project(&status, older, now) || status.Balance != "8320" {
		t.Error("an older row went over a newer one")
	}
	status.Held = "" // as a status is that was written before the field existed
	if !project(&status, row, now) || status.Held != "20" {
		t.Error("what the same row has to say besides was not written")
	}
}

func TestProjectSaysWhatStopsAnAccount(t *testing.T) {
	row := ledger.Account{Name: "team-a", Revision: 9, Balance: -130 * ledger.Credit, Frozen: "entry 7 differs", Policy: ledger.Policy{OverdraftLimit: 10 * ledger.Credit}}
	var before, after v1alpha1.CreditAccountStatus
	project(&after, row, now)
	frozen := meta.FindStatusCondition(after.Conditions, "Frozen")
	if frozen.Status != metav1.ConditionTrue || frozen.Message != "entry 7 differs" {
		t.Errorf("frozen: %+v", frozen)
	}
	overdrawn := meta.FindStatusCondition(after.Conditions, "Overdrawn")
	const want = "120 credits below its overdraft limit of 10: it can pay for no new hold until it is granted more or open holds end"
	if overdrawn.Status != metav1.ConditionTrue || overdrawn.Message != want {
		t.Errorf("overdrawn: %+v", overdrawn)
	}
	if !gotFrozen(before, after) || gotFrozen(after, after) || gotFrozen(after, before) {
		t.Error("an account is announced as frozen when it becomes so, once")
	}
}
