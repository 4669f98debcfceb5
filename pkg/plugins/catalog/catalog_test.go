package catalog

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func creditAccount(name, parent string, available, overdraft v1alpha1.Credits) *v1alpha1.CreditAccount {
	return &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CreditAccountSpec{Parent: parent, Policy: v1alpha1.AccountPolicy{OverdraftLimit: overdraft}},
		Status:     v1alpha1.CreditAccountStatus{Available: available},
	}
}

func TestAffordableChecksEveryAncestor(t *testing.T) {
	c := New()
	c.SetAccount(creditAccount("org", "", "-500", "500"))
	c.SetAccount(creditAccount("spent", "org", "-5000", "")) // beyond its limit: stops itself, not its siblings (L24)
	c.SetAccount(creditAccount("team-a", "org", "1000", ""))
	c.SetAccount(creditAccount("team-b", "org", "200", "100"))
	c.SetAccount(creditAccount("team-c", "org", "0", "5000"))
	for _, tc := range []struct {
		account string
		needed  ledger.Microcredits
		want    bool
	}{
		{"team-a", 1000 * ledger.Credit, true}, // its own
		{"team-a", 1000*ledger.Credit + 1, false},
		{"team-c", 1200 * ledger.Credit, true}, // org's subtree: -500 + 1000 + 200 + 0 + overdraft 500
		{"team-c", 1200*ledger.Credit + 1, false},
		{"spent", 1, false},
		{"team-b", 300 * ledger.Credit, true}, // its own 200 and overdraft 100 bind first
		{"team-b", 300*ledger.Credit + 1, false},
		{"nobody", 1, true}, // unknown: the ledger will tell
	} {
		if got := c.Affordable(tc.account, tc.needed); got != tc.want {
			t.Errorf("Affordable(%s, %d) = %v, want %v", tc.account, tc.needed, got, tc.want)
		}
	}
}

func TestAffordableIsThePayers(t *testing.T) {
	byAncestor := func(name, parent string, available v1alpha1.Credits) *v1alpha1.CreditAccount {
		account := creditAccount(name, parent, available, "")
		account.Spec.Policy.Funding = v1alpha1.FundingAncestor
		return account
	}
	c := New()
	c.SetAccount(creditAccount("org", "", "5000", ""))
	c.SetAccount(creditAccount("lab", "org", "300", ""))
	c.SetAccount(byAncestor("team", "lab", "0"))
	c.SetAccount(byAncestor("intern", "team", "7"))
	c.SetAccount(byAncestor("orphan", "", "9"))
	for account, most := range map[string]ledger.Microcredits{"team": 300, "intern": 300, "lab": 300, "orphan": 9} {
		if !c.Affordable(account, most*ledger.Credit) || c.Affordable(account, most*ledger.Credit+1) {
			t.Errorf("%s can hold other than %d credits", account, most)
		}
	}
}

func TestMayRunMoreChecksEveryAncestor(t *testing.T) {
	limited := func(name, parent string, running, most int64) *v1alpha1.CreditAccount {
		account := creditAccount(name, parent, "0", "")
		account.Status.Running, account.Spec.Policy.RunningJobs = running, most
		return account
	}
	c := New()
	c.SetAccount(limited("org", "", 4, 5))
	c.SetAccount(limited("lab", "org", 3, 3))
	c.SetAccount(limited("team-a", "lab", 1, 2))
	c.SetAccount(limited("team-b", "org", 1, 0))
	for account, want := range map[string]bool{"org": true, "lab": false, "team-a": false, "team-b": true, "nobody": true} {
		if got := c.MayRunMore(account); got != want {
			t.Errorf("MayRunMore(%s) = %v", account, got)
		}
	}
	c.SetAccount(limited("lab", "org", 2, 3))
	if !c.MayRunMore("team-a") {
		t.Error("a job of lab has ended, and team-a may still run none")
	}
}

func TestChangedSinceFollowsTheTree(t *testing.T) {
	c := New()
	c.SetAccount(creditAccount("org", "", "0", ""))
	c.SetAccount(creditAccount("team-a", "org", "0", ""))
	c.SetAccount(creditAccount("team-b", "org", "0", ""))
	c.SetAccount(creditAccount("other", "", "0", ""))
	since := c.Change()

	again := creditAccount("team-b", "org", "0", "")
	again.Status.Conditions = []metav1.Condition{{Type: "Ready", LastTransitionTime: metav1.Now()}}
	c.SetAccount(again)
	if c.ChangedSince("team-a", since) {
		t.Error("a condition's time counts as a change")
	}
	c.SetAccount(creditAccount("team-b", "org", "5", ""))
	if !c.ChangedSince("team-a", since) {
		t.Error("a sibling's new balance does not count as a change")
	}
	if c.ChangedSince("other", since) {
		t.Error("another tree's change counts")
	}
	c.SetClass(v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: "h100"}})
	if !c.ChangedSince("other", since) {
		t.Error("a new class does not count as a change")
	}
}

func TestParentCycleEnds(t *testing.T) {
	c := New()
	c.SetAccount(creditAccount("a", "b", "1", ""))
	c.SetAccount(creditAccount("b", "a", "1", ""))
	if !c.Affordable("a", ledger.Credit) || c.Affordable("a", 2*ledger.Credit) {
		t.Error("a cycle of parents hides the account's own limit")
	}
}

func TestNodesOfAClass(t *testing.T) {
	labels := map[string]string{"gpu": "h100", "zone": "a"}
	for _, tc := range []struct {
		selector map[string]string
		want     bool
	}{
		{nil, true},
		{map[string]string{"gpu": "h100"}, true},
		{map[string]string{"gpu": "a100"}, false},
		{map[string]string{"missing": ""}, false},
	} {
		if got := OfClass(labels, tc.selector); got != tc.want {
			t.Errorf("OfClass(%v) = %v, want %v", tc.selector, got, tc.want)
		}
	}
}
