package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func grant(name, account, credits string) *v1alpha1.CreditGrant {
	return &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CreditGrantSpec{Account: account, Credits: v1alpha1.Credits(credits), Reason: "test"},
	}
}

func transfer(name, from, to, credits string) *v1alpha1.CreditTransfer {
	return &v1alpha1.CreditTransfer{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CreditTransferSpec{From: from, To: to, Credits: v1alpha1.Credits(credits), Reason: "test"},
	}
}

func adjustment(name, account, credits string) *v1alpha1.CreditAdjustment {
	return &v1alpha1.CreditAdjustment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CreditAdjustmentSpec{Account: account, Credits: v1alpha1.Credits(credits), Reason: "test"},
	}
}

// posted waits for the answer that an object's condition shows: reason InLedger, or why it is not posted.
func (s *suite) posted(t *testing.T, object client.Object, status *v1alpha1.PostingStatus, reason, says string) {
	t.Helper()
	s.eventually(t, func(ctx context.Context) string {
		if err := s.get(ctx, object); err != nil {
			return err.Error()
		}
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPosted)
		return unless(condition != nil && condition.Reason == reason && strings.Contains(condition.Message, says) &&
			(condition.Status == metav1.ConditionTrue) == (reason == "InLedger"), "%s: %+v, want %s: %s", object.GetName(), condition, reason, says)
	})
}

// Credits move once, whatever becomes of the objects that moved them.
func testMovements(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "giver", 100)
	moved := transfer("moved", "giver", "receiver", "40")
	must(t, s.admin.Create(ctx, moved))
	s.posted(t, moved, &moved.Status, "UnknownAccount", "account receiver does not exist")
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "receiver"}}))
	s.posted(t, moved, &moved.Status, "InLedger", "moved 40 credits from giver to receiver")
	s.shows(t, "giver", "60", "0", "0")
	s.shows(t, "receiver", "40", "0", "0")

	tooMuch := transfer("too-much", "giver", "receiver", "60.000001")
	must(t, s.admin.Create(ctx, tooMuch))
	s.posted(t, tooMuch, &tooMuch.Status, "InsufficientCredits", "this answer is final")

	statement, err := s.ledger.Statement(ctx, "giver", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	must(t, err)
	corrected := adjustment("corrected", "giver", "-10")
	corrected.Spec.Corrects = statement.Lines[0].EntryID
	must(t, s.admin.Create(ctx, corrected))
	s.posted(t, corrected, &corrected.Status, "InLedger", "adjusted giver by -10 credits")
	s.shows(t, "giver", "50", "0", "0")
	another := adjustment("another", "receiver", "1")
	another.Spec.Corrects = statement.Lines[0].EntryID // the grant, which is not the receiver's
	must(t, s.admin.Create(ctx, another))
	s.posted(t, another, &another.Status, "UnknownEntry", fmt.Sprint("no entry ", another.Spec.Corrects))

	_, err = s.ledger.KeepDiscrepancies(ctx, []ledger.Discrepancy{{
		Key: "unknown-allocation:nobody:n1", Kind: ledger.UnknownAllocation, PodUID: "nobody", Ledger: "nothing", Other: "a pod", FoundAt: time.Now(),
	}})
	must(t, err)
	closing := adjustment("closing", "giver", "0")
	closing.Spec.Discrepancy = "unknown-allocation:nobody:n1"
	must(t, s.admin.Create(ctx, closing))
	s.posted(t, closing, &closing.Status, "InLedger", "")
	found, err := s.ledger.Discrepancies(ctx)
	must(t, err)
	closed := false
	for _, each := range found {
		closed = closed || each.Key == closing.Spec.Discrepancy && !each.ResolvedAt.IsZero() && each.Resolution == "test"
	}
	if !closed {
		t.Errorf("the discrepancy is open: %+v", found)
	}

	again := closing.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: "closing-again"}
	again.Status = v1alpha1.PostingStatus{}
	must(t, s.admin.Create(ctx, again))
	s.posted(t, again, &again.Status, "AlreadyResolved", "Z: test (this answer is final; to ask again, create another CreditAdjustment)")

	// The objects go, the money stays; the next entry shows that the controller has seen it all.
	for _, object := range []client.Object{moved, tooMuch, corrected, another, closing, grant("giver", "", "")} {
		must(t, s.admin.Delete(ctx, object))
		s.eventually(t, func(ctx context.Context) string {
			return unless(apierrors.IsNotFound(s.get(ctx, object)), "%s stays", object.GetName())
		})
	}
	must(t, s.admin.Create(ctx, transfer("back", "receiver", "giver", "1")))
	s.shows(t, "giver", "51", "0", "0")
	s.shows(t, "receiver", "39", "0", "0")
}

// The API server says what is wrong where it is written.
func testRefusedByAPIServer(t *testing.T, s *suite) {
	ctx := t.Context()
	account := func(policy v1alpha1.AccountPolicy) client.Object {
		return &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}, Spec: v1alpha1.CreditAccountSpec{Policy: policy}}
	}
	hour := metav1.Duration{Duration: time.Hour}
	for says, object := range map[string]client.Object{
		`supported values: "Own", "Ancestor"`:                                         account(v1alpha1.AccountPolicy{Funding: "Nobody"}),
		`supported values: "Submission", "Admission", "Placement"`:                    account(v1alpha1.AccountPolicy{HoldAt: "Never"}),
		"spending.credits must be more than 0":                                        account(v1alpha1.AccountPolicy{Spending: &v1alpha1.SpendingLimit{Credits: "0", Period: "Day"}}),
		"overrun.action Renew needs overrun.step":                                     account(v1alpha1.AccountPolicy{Overrun: v1alpha1.OverrunPolicy{Action: v1alpha1.OverrunRenew}}),
		"overrun.lead must be whole seconds from 0s to 87600h, such as 10m":           account(v1alpha1.AccountPolicy{Overrun: v1alpha1.OverrunPolicy{Lead: &metav1.Duration{Duration: time.Millisecond}}}),
		"refill.cap must be at most 1000 times refill.credits":                        account(v1alpha1.AccountPolicy{Refill: &v1alpha1.RefillPolicy{Credits: "1", Period: hour, Cap: "1001"}}),
		"should be less than or equal to 100":                                         account(v1alpha1.AccountPolicy{Refunds: &v1alpha1.RefundPolicy{FailedPercent: 101}}),
		"Duplicate value":                                                             account(v1alpha1.AccountPolicy{GPUs: []v1alpha1.GPULimit{{Class: "h100"}, {Class: "h100"}}}),
		"from and to must be two accounts":                                            transfer("wrong", "a", "a", "1"),
		"from must be the name of a CreditAccount":                                    transfer("wrong", "Team A", "b", "1"),
		"credits must be more than 0":                                                 transfer("wrong", "a", "b", "-1"),
		"credits may be 0 only where discrepancy names":                               adjustment("wrong", "a", "0"),
		"credits must be within ±4000000000000":                                       adjustment("wrong", "a", "-4000000000000.000001"),
		"expiresAt must be a time such as 2027-04-01T00:00:00Z, in the years 2000 to": expiring("wrong", "a", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		if err := s.admin.Create(ctx, object, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("want a refusal that says %q, got %v", says, err)
		}
	}
	s.team(t, "fixed", 1)
	must(t, s.admin.Create(ctx, transfer("fixed", "fixed", "elsewhere", "1")))
	must(t, s.admin.Create(ctx, adjustment("fixed", "elsewhere", "1")))
	for _, object := range []client.Object{grant("fixed", "", ""), transfer("fixed", "", "", ""), adjustment("fixed", "", "")} {
		err := s.admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"credits": "2"}}`)))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("%T was changed: %v", object, err)
		}
	}
}

func expiring(name, account string, at time.Time) *v1alpha1.CreditGrant {
	g := grant(name, account, "50")
	g.Spec.ExpiresAt = ptr.To(metav1.NewTime(at))
	return g
}

// Expiries and refills show by themselves; holds show against the limit that they count for.
func testPolicies(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "short-lived", 7)
	must(t, s.admin.Create(ctx, expiring("short-lived-lot", "short-lived", time.Now().Add(7*time.Second)))) // long enough to be seen
	s.shows(t, "short-lived", "57", "0", "0")
	late := expiring("late", "short-lived", time.Now().Add(-time.Hour))
	must(t, s.admin.Create(ctx, late))
	s.posted(t, late, &late.Status, "AlreadyExpired", "this answer is final")

	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "refilled"},
		Spec: v1alpha1.CreditAccountSpec{Policy: v1alpha1.AccountPolicy{
			Refill: &v1alpha1.RefillPolicy{Credits: "10", Period: metav1.Duration{Duration: time.Second}, Cap: "25"},
		}},
	}))
	s.shows(t, "refilled", "25", "0", "0")

	s.team(t, "limited", 10_000)
	limited := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}
	must(t, s.get(ctx, limited))
	base := limited.DeepCopy()
	limited.Spec.Policy.Spending = &v1alpha1.SpendingLimit{Credits: "3000", Period: v1alpha1.PeriodYear}
	must(t, s.admin.Patch(ctx, limited, client.MergeFrom(base)))
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, limited))
		return unless(limited.Status.Spending != nil && limited.Status.Spending.Left == "3000", "spending: %+v", limited.Status.Spending)
	})
	job, _ := s.job(t, "limited", "train")
	s.hold(t, job.UID, "limited", "Job", "train")
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, limited))
		got := limited.Status
		return unless(got.Held == "2400" && got.Spending.Held == "2400" && got.Spending.Spent == "0" && got.Spending.Left == "600" &&
			got.Spending.Since.UTC().Equal(ledger.PeriodYear.Start(time.Now())), "status: %+v, spending %+v", got, got.Spending)
	})
	s.shows(t, "short-lived", "7", "0", "0")
}

// A frozen account says so, to whoever watches its events too; what was refused meanwhile is posted when it opens.
func testFrozen(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "frozen", 5)
	account := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "frozen"}}
	s.submit(t, ledger.FreezeAccount{Key: "freeze:test", Account: "frozen", Reason: "under inquiry"})
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, account))
		condition := meta.FindStatusCondition(account.Status.Conditions, v1alpha1.ConditionFrozen)
		return unless(condition != nil && condition.Status == metav1.ConditionTrue && condition.Message == "under inquiry", "account: %+v", account.Status)
	})
	s.eventually(t, func(ctx context.Context) string {
		var events corev1.EventList
		must(t, s.admin.List(ctx, &events))
		for _, event := range events.Items {
			if event.Type == corev1.EventTypeWarning && event.Reason == "Frozen" && event.InvolvedObject.UID == account.UID && strings.Contains(event.Message, "under inquiry") {
				return ""
			}
		}
		return "no event says that the account is frozen"
	})
	waiting := grant("frozen-meanwhile", "frozen", "3")
	must(t, s.admin.Create(ctx, waiting))
	s.posted(t, waiting, &waiting.Status, "AccountFrozen", "under inquiry")
	s.submit(t, ledger.UnfreezeAccount{Key: "unfreeze:test", Account: "frozen", Reason: "found in order", Actor: "test"})
	s.shows(t, "frozen", "8", "0", "0")
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, account))
		return unless(meta.IsStatusConditionFalse(account.Status.Conditions, v1alpha1.ConditionFrozen), "account: %+v", account.Status)
	})
}

// Whoever rules a namespace can neither create nor read credits; viewers read, and bankers create.
func testRights(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "ruled", 0)
	bind := func(role, user string) {
		must(t, s.admin.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}))
	}
	must(t, s.admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ruled", Name: "ruler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ruler"}},
	}))
	bind("edit", "editor") // of the whole cluster
	bind("gpubank-viewer", "auditor")
	bind("gpubank-banker", "treasurer")
	as := func(user string) client.Client {
		c, err := client.New(s.UserRESTConfig(user), client.Options{Scheme: s.admin.Scheme()})
		must(t, err)
		return c
	}
	// The ruler rules: RBAC has taken effect.
	ruler := as("ruler")
	s.eventually(t, func(ctx context.Context) string {
		err := ruler.Create(ctx, gpuPod("ruled", "dry"), client.DryRunAll)
		return unless(err == nil, "a pod in the own namespace: %v", err)
	})
	creates := func() []client.Object {
		return []client.Object{
			grant("own", "ruled", "5"), transfer("own", "giver", "ruled", "5"), adjustment("own", "ruled", "5"),
			&v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "own"}},
		}
	}
	for _, who := range []struct {
		user          string
		reads, prints bool
	}{{"ruler", false, false}, {"editor", true, false}, {"auditor", true, false}, {"treasurer", true, true}} {
		c := as(who.user)
		s.eventually(t, func(ctx context.Context) string { // roles are aggregated a moment later
			err := c.List(ctx, &v1alpha1.CreditAccountList{})
			return unless((err == nil) == who.reads && (err == nil || apierrors.IsForbidden(err)), "%s reads: %v, want %v", who.user, err, who.reads)
		})
		for _, object := range creates() {
			err := c.Create(ctx, object, client.DryRunAll)
			if (err == nil) != who.prints || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s creates %T: %v, want %v", who.user, object, err, who.prints)
			}
		}
	}
}
