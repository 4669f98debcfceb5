package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestController(t *testing.T) {
	s := newSuite(t)
	t.Run("grant", func(t *testing.T) { testGrantOnce(t, s) })
	t.Run("largest amount", func(t *testing.T) { testLargestAmount(t, s) })
	t.Run("parent", func(t *testing.T) { testParentFirst(t, s) })
	t.Run("account deletion", func(t *testing.T) { testAccountDeletion(t, s) })
	t.Run("movements", func(t *testing.T) { testMovements(t, s) })
	t.Run("refused by the API server", func(t *testing.T) { testRefusedByAPIServer(t, s) })
	t.Run("policies", func(t *testing.T) { testPolicies(t, s) })
	t.Run("frozen", func(t *testing.T) { testFrozen(t, s) })
	t.Run("rights", func(t *testing.T) { testRights(t, s) })
	t.Run("settlement", func(t *testing.T) { testSettlement(t, s) })
	t.Run("while the controller was down", func(t *testing.T) { testWhileDown(t, s) })
	t.Run("waiting pod deleted", func(t *testing.T) { testWaitingPodDeleted(t, s) })
	t.Run("another scheduler", func(t *testing.T) { testAnotherScheduler(t, s) })
	t.Run("node", func(t *testing.T) { testNodeDeleted(t, s) })
	t.Run("intake", func(t *testing.T) { testIntake(t, s) })
	t.Run("hold expiry", func(t *testing.T) { testHoldExpiry(t, s) })
	t.Run("audit", func(t *testing.T) { testAudit(t, s) })
	s.sound(t)
}

// L12: one grant per CreditGrant, whatever restarts.
func testGrantOnce(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "granted", 10_000)
	grant := &v1alpha1.CreditGrant{ObjectMeta: metav1.ObjectMeta{Name: "granted"}}
	must(t, s.get(ctx, grant))
	if !meta.IsStatusConditionTrue(grant.Status.Conditions, v1alpha1.ConditionPosted) {
		t.Errorf("grant: %+v", grant.Status)
	}
	// As if the controller had died between the commit and the condition.
	grant.Status.Conditions = nil
	must(t, s.admin.Status().Update(ctx, grant))
	must(t, s.controller.Stop())
	must(t, s.controller.Start(ctx))
	s.eventually(t, func(ctx context.Context) string {
		err := s.get(ctx, grant)
		return unless(err == nil && meta.IsStatusConditionTrue(grant.Status.Conditions, v1alpha1.ConditionPosted), "grant: %+v, %v", grant.Status, err)
	})
	row, _, err := s.ledger.Account(ctx, "granted")
	must(t, err)
	if row.Balance != 10_000*ledger.Credit {
		t.Errorf("balance is %s credits", ledger.FormatCredits(row.Balance))
	}

	early := &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: v1alpha1.CreditGrantSpec{Account: "late-team", Credits: "5", Reason: "test"},
	}
	must(t, s.admin.Create(ctx, early))
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, early))
		condition := meta.FindStatusCondition(early.Status.Conditions, v1alpha1.ConditionPosted)
		return unless(condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == "UnknownAccount", "grant: %+v", early.Status)
	})
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "late-team"}}))
	s.shows(t, "late-team", "5", "0", "0")
}

// The API server's range is the ledger's: the most is posted and shown, more is refused where it is written.
func testLargestAmount(t *testing.T, s *suite) {
	s.team(t, "largest", int64(ledger.MaxAmount/ledger.Credit))
	for _, credits := range []v1alpha1.Credits{"4000000000000.000001", "-1", "0"} {
		err := s.admin.Create(t.Context(), &v1alpha1.CreditGrant{
			ObjectMeta: metav1.ObjectMeta{Name: "refused"}, Spec: v1alpha1.CreditGrantSpec{Account: "largest", Credits: credits, Reason: "test"},
		})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "credits must be") {
			t.Errorf("a grant of %s: %v", credits, err)
		}
	}
	// The least that can be available, which only usage beyond holds could bring about.
	account := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "largest"}}
	must(t, s.get(t.Context(), account))
	before := account.DeepCopy()
	account.Status.Available = v1alpha1.Credits(ledger.FormatCredits(1 - 2*ledger.MaxAmount))
	must(t, s.admin.Status().Patch(t.Context(), account, client.MergeFrom(before), client.DryRunAll))
}

func testParentFirst(t *testing.T, s *suite) {
	ctx := t.Context()
	child := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "child"}, Spec: v1alpha1.CreditAccountSpec{Parent: "parent"}}
	must(t, s.admin.Create(ctx, child))
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, child))
		condition := meta.FindStatusCondition(child.Status.Conditions, v1alpha1.ConditionReady)
		return unless(condition != nil && condition.Reason == "ParentUnknown", "child: %+v", child.Status)
	})
	must(t, s.admin.Create(ctx, &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "parent"}}))
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, child))
		return unless(meta.IsStatusConditionTrue(child.Status.Conditions, v1alpha1.ConditionReady), "child: %+v", child.Status)
	})
}

func testAccountDeletion(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "with-history", 1)
	kept := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "with-history"}}
	must(t, s.admin.Delete(ctx, kept))
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, kept))
		condition := meta.FindStatusCondition(kept.Status.Conditions, v1alpha1.ConditionDeletable)
		return unless(condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == "AccountInUse" &&
			strings.Contains(condition.Message, "history"), "account: %+v", kept.Status)
	})

	s.team(t, "without-history", 0)
	empty := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "without-history"}}
	must(t, s.admin.Delete(ctx, empty))
	s.eventually(t, func(ctx context.Context) string {
		return unless(apierrors.IsNotFound(s.get(ctx, empty)), "account is still there: %+v", empty.Status)
	})
	if _, known, err := s.ledger.Account(ctx, "without-history"); err != nil || known {
		t.Errorf("the ledger still has it: %v", err)
	}
}

// seconds is a moment in whole seconds before now, as pod status has them.
func secondsAgo(n int) time.Time {
	return time.Now().UTC().Truncate(time.Second).Add(-time.Duration(n) * time.Second)
}

// The worked example, without a node agent: the pod's own times are enough.
func testSettlement(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "settled", 10_000)
	job, pod := s.job(t, "settled", "train")
	s.hold(t, job.UID, "settled", "Job", "train")
	s.shows(t, "settled", "7600", "2400", "0")
	s.allocate(t, pod, job.UID, "n1")
	s.bind(t, pod, "n1")
	s.allocationIs(t, pod, ledger.AllocationBound)
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, pod))
		return unless(controllerutil.ContainsFinalizer(pod, v1alpha1.MeteringFinalizer), "no finalizer: %v", pod.Finalizers)
	})
	start := secondsAgo(500)
	s.reports(t, pod, start, time.Time{})
	if row := s.allocationIs(t, pod, ledger.AllocationMetering); !row.StartedAt.Equal(start) {
		t.Errorf("started %s, want %s", row.StartedAt, start)
	}
	s.reports(t, pod, start, start.Add(420*time.Second))
	s.reservationIs(t, job.UID, ledger.Settled)
	s.shows(t, "settled", "8320", "0", "1680")
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, pod))
		return unless(!controllerutil.ContainsFinalizer(pod, v1alpha1.MeteringFinalizer), "the finalizer stays: %v", pod.Finalizers)
	})
	s.eventually(t, func(ctx context.Context) string {
		var events corev1.EventList
		must(t, s.admin.List(ctx, &events, client.InNamespace("settled")))
		for _, event := range events.Items {
			if event.InvolvedObject.UID == job.UID && event.Message == "charged 1,680 of 2,400 credits held; 720 given back" {
				return ""
			}
		}
		return "no event on the Job says what it cost"
	})
	must(t, s.admin.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.eventually(t, func(ctx context.Context) string {
		return unless(apierrors.IsNotFound(s.get(ctx, pod)), "the pod stays")
	})
	s.shows(t, "settled", "8320", "0", "1680")
}

// A1, A2, B11: what ended, was deleted or was bound while no controller ran is found at start.
func testWhileDown(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "restart", 10_000)
	ended, endedPod := s.job(t, "restart", "ended")
	deleted, deletedPod := s.job(t, "restart", "deleted")
	for _, job := range []*batchv1.Job{ended, deleted} {
		s.hold(t, job.UID, "restart", "Job", job.Name)
	}
	s.allocate(t, endedPod, ended.UID, "n1")
	s.allocate(t, deletedPod, deleted.UID, "n1")
	must(t, s.controller.Stop())

	s.bind(t, endedPod, "n1")
	start := secondsAgo(100)
	s.reports(t, endedPod, start, start.Add(50*time.Second))
	must(t, s.admin.Delete(ctx, deleted, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.eventually(t, func(ctx context.Context) string {
		return unless(apierrors.IsNotFound(s.get(ctx, deleted)), "the Job stays")
	})

	must(t, s.controller.Start(ctx))
	if row := s.reservationIs(t, ended.UID, ledger.Settled); row.Charged != 200*ledger.Credit {
		t.Errorf("ended: charged %s credits, want 200", ledger.FormatCredits(row.Charged))
	}
	if row := s.allocationIs(t, deletedPod, ledger.AllocationReleased); row.Charged != 0 {
		t.Errorf("deleted before it was bound: %+v", row)
	}
	s.reservationIs(t, deleted.UID, ledger.Settled)
	s.shows(t, "restart", "9800", "0", "200")
}

// A pod that was never bound must vanish when its user deletes it, and its hold with it.
func testWaitingPodDeleted(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "waiting", 10_000)
	pod := gpuPod("waiting", "idle")
	pod.Finalizers = []string{v1alpha1.MeteringFinalizer}
	must(t, s.admin.Create(ctx, pod))
	s.hold(t, pod.UID, "waiting", "Pod", "idle")
	must(t, s.admin.Delete(ctx, pod))
	s.eventually(t, func(ctx context.Context) string {
		return unless(apierrors.IsNotFound(s.get(ctx, pod)), "the pod stays")
	})
	s.reservationIs(t, pod.UID, ledger.Released)
	s.shows(t, "waiting", "10000", "0", "0")
}

// I9: what another scheduler bound is charged, although nobody held for it and nothing is available.
func testAnotherScheduler(t *testing.T, s *suite) {
	s.team(t, "bypass", 100)
	pod := gpuPod("bypass", "sneaky")
	must(t, s.admin.Create(t.Context(), pod))
	s.bind(t, pod, "n1")
	start := secondsAgo(60)
	s.reports(t, pod, start, time.Time{})
	s.allocationIs(t, pod, ledger.AllocationMetering)
	s.reports(t, pod, start, start.Add(50*time.Second))
	s.reservationIs(t, pod.UID, ledger.Settled)
	s.shows(t, "bypass", "-100", "0", "200")
}

// A node that never comes back ends its allocations at its last lease renewal, once it is deleted; until then its pods,
// even force-deleted ones, stay (A8).
func testNodeDeleted(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "lost", 10_000)
	renewed := time.Now().UTC().Truncate(time.Microsecond).Add(-20 * time.Second)
	s.node(t, "doomed", renewed)
	job, pod := s.job(t, "lost", "train")
	s.hold(t, job.UID, "lost", "Job", "train")
	s.allocate(t, pod, job.UID, "doomed")
	s.bind(t, pod, "doomed")
	start := renewed.Truncate(time.Second).Add(-100 * time.Second)
	s.reports(t, pod, start, time.Time{})
	if row := s.allocationIs(t, pod, ledger.AllocationSuspect); !row.LastSeen.Equal(renewed) {
		t.Errorf("last seen %s, want %s", row.LastSeen, renewed)
	}
	s.eventually(t, func(ctx context.Context) string {
		must(t, s.get(ctx, pod))
		return unless(controllerutil.ContainsFinalizer(pod, v1alpha1.MeteringFinalizer), "no finalizer: %v", pod.Finalizers)
	})
	must(t, s.admin.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	if err := s.get(ctx, pod); err != nil || pod.DeletionTimestamp == nil {
		t.Fatalf("force-deleted on a silent node: %v", err)
	}
	must(t, s.admin.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}}))
	row := s.allocationIs(t, pod, ledger.AllocationEnded)
	if !row.EndedAt.Equal(renewed) {
		t.Errorf("ended %s, want the last renewal %s", row.EndedAt, renewed)
	}
	want, err := ledger.ChargeBetween(row.Rate, row.GPUs, start, start, renewed)
	must(t, err)
	if row.Charged != want {
		t.Errorf("charged %s, want %s", ledger.FormatCredits(row.Charged), ledger.FormatCredits(want))
	}
	s.eventually(t, func(ctx context.Context) string {
		return unless(apierrors.IsNotFound(s.get(ctx, pod)), "the pod stays")
	})
}

// A hold whose object does not exist expires, but only once the API server has said so; a suspended Job keeps its own.
func testHoldExpiry(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "expiring", 10_000)
	suspended := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "expiring", Name: "suspended"},
		Spec:       batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: gpuPod("", "").Spec}},
	}
	must(t, s.admin.Create(ctx, suspended))
	s.hold(t, suspended.UID, "expiring", "Job", "suspended")
	const ghost = types.UID("00000000-0000-0000-0000-00000000dead")
	must(t, s.APIServer.Kill()) // an orderly end would wait for watches, and the controller lose its lease
	s.hold(t, ghost, "expiring", "Job", "never-stored")
	// Nothing may happen, so there is nothing to wait for but time.
	old := time.Now().Add(2 * holdExpiry)
	s.eventually(t, func(ctx context.Context) string { return unless(time.Now().After(old), "the hold is young") })
	if row, _, err := s.ledger.Reservation(ctx, string(ghost)); err != nil || row.State != ledger.Held {
		t.Errorf("while the API server could not be asked: %+v, %v", row, err)
	}
	must(t, s.APIServer.Start(ctx))
	if !s.controller.Running() { // it ends when it loses the lease; its Deployment would start it again
		must(t, s.controller.Start(ctx))
	}
	s.reservationIs(t, ghost, ledger.Expired)
	if row, _, err := s.ledger.Reservation(ctx, string(suspended.UID)); err != nil || row.State != ledger.Held {
		t.Errorf("suspended: %+v, %v", row, err)
	}
	s.shows(t, "expiring", "7600", "2400", "0")
}
