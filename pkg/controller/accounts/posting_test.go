package accounts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// The key of each command is the object's UID and nothing else, and nobody is named who is not known.
func TestPostings(t *testing.T) {
	named := metav1.ObjectMeta{Name: "march", UID: "u2", Generation: 1}
	expiry := metav1.NewTime(time.Date(2026, 4, 1, 2, 0, 0, 0, time.FixedZone("", 7200)))
	for _, c := range []struct {
		object  client.Object
		command ledger.Command
		done    string
	}{
		{
			&v1alpha1.CreditGrant{ObjectMeta: named, Spec: v1alpha1.CreditGrantSpec{Account: "team-a", Credits: "10000", Reason: "March budget"}},
			ledger.PostGrant{Key: "grant:u2", Account: "team-a", Amount: 10_000 * ledger.Credit, Reason: "March budget", Actor: "CreditGrant/march"},
			"the ledger has given 10,000 credits to team-a",
		},
		{
			&v1alpha1.CreditGrant{ObjectMeta: named, Spec: v1alpha1.CreditGrantSpec{Account: "team-a", Credits: "1", ExpiresAt: &expiry, Reason: "r"}},
			ledger.PostGrant{Key: "grant:u2", Account: "team-a", Amount: ledger.Credit, ExpiresAt: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Reason: "r", Actor: "CreditGrant/march"},
			"the ledger has given 1 credits to team-a",
		},
		{
			&v1alpha1.CreditTransfer{ObjectMeta: named, Spec: v1alpha1.CreditTransferSpec{From: "team-a", To: "team-b", Credits: "0.5", Reason: "lent"}},
			ledger.Transfer{Key: "transfer:u2", From: "team-a", To: "team-b", Amount: 500_000, Reason: "lent"},
			"the ledger has moved 0.5 credits from team-a to team-b",
		},
		{
			&v1alpha1.CreditAdjustment{ObjectMeta: named, Spec: v1alpha1.CreditAdjustmentSpec{Account: "team-a", Credits: "-3", Corrects: 7, Discrepancy: "k", Reason: "typo"}},
			ledger.Adjust{Key: "adjustment:u2", Account: "team-a", Amount: -3 * ledger.Credit, Corrects: 7, Discrepancy: "k", Reason: "typo"},
			"the ledger has adjusted team-a by -3 credits",
		},
	} {
		got := readPosting(c.object)
		if diff := cmp.Diff(c.command, got.command); diff != "" || got.problem != nil {
			t.Errorf("%T: %v, -want +got\n%s", c.object, got.problem, diff)
		}
		if posted := postedCondition(got, 1, nil); posted.Status != metav1.ConditionTrue || posted.Message != c.done {
			t.Errorf("%T: %+v", c.object, posted)
		}
	}
	unreadable := &v1alpha1.CreditGrant{Spec: v1alpha1.CreditGrantSpec{Account: "team-a", Credits: "many"}}
	if readPosting(unreadable).problem == nil {
		t.Error("credits that are no number were read")
	}
}

func TestRefusedPosting(t *testing.T) {
	wanted := readPosting(&v1alpha1.CreditTransfer{Spec: v1alpha1.CreditTransferSpec{From: "a", To: "b", Credits: "5"}})
	final := &ledger.Refusal{Code: ledger.InsufficientCredits, Message: "needs 5 credits, 3 available on account a"}
	early := &ledger.Refusal{Code: ledger.UnknownAccount, Message: "account b does not exist"}
	if got := postedCondition(wanted, 2, early); got.Status != metav1.ConditionFalse || got.Reason != "UnknownAccount" || got.Message != early.Message || got.ObservedGeneration != 2 {
		t.Errorf("early: %+v", got)
	}
	const want = "needs 5 credits, 3 available on account a (this answer is final; to ask again, create another CreditTransfer)"
	if got := postedCondition(wanted, 2, final); got.Reason != "InsufficientCredits" || got.Message != want {
		t.Errorf("final: %+v", got)
	}
	for waited, want := range map[time.Duration]time.Duration{0: 5 * time.Second, -time.Hour: 5 * time.Second, time.Minute: time.Minute, time.Hour: 5 * time.Minute} {
		if got := retryAfter(early, now.Add(-waited), now); got != want {
			t.Errorf("refused for %s: asked again after %s, want %s", waited, got, want)
		}
		if got := retryAfter(final, now.Add(-waited), now); got != 0 {
			t.Errorf("a final answer is asked for again after %s", got)
		}
	}
}

// A posting is tried again when an account that it concerns opens, until it is posted; one that is being deleted never is.
func TestAwaits(t *testing.T) {
	transfer := &v1alpha1.CreditTransfer{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: v1alpha1.CreditTransferSpec{From: "a", To: "b", Credits: "5"}}
	waits := func(account string) bool { return awaits(readPosting(transfer), transfer, account) }
	if !waits("a") || !waits("b") || waits("c") {
		t.Error("a transfer waits for both its accounts, and for no other")
	}
	deleted := transfer.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	if !isOver(readPosting(deleted), deleted) {
		t.Error("what is being deleted would be posted")
	}
	transfer.Status.Conditions = []metav1.Condition{postedCondition(readPosting(transfer), 1, nil)}
	if waits("a") || !isOver(readPosting(transfer), transfer) {
		t.Error("what is posted would be posted again")
	}
}
