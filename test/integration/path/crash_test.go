package path_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

// TestCrashTable tells the worked example, and then tells it again for each row of the crash table in ARCHITECTURE.md,
// killing the real process at that point with SIGKILL. Each time the ledger must be the undisturbed run's to the row.
func TestCrashTable(t *testing.T) {
	w := newWorld(t, 0)
	undisturbed := tellUndisturbed(t, w, "undisturbed")
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("the undisturbed run's ledger:\n%s", undisturbed)

	t.Run("webhook after the hold is committed", func(t *testing.T) {
		s := w.newStory(t, "webhook")
		w.arm(t, "webhook.after-hold=kill")
		job := s.gpuJob()
		if err := w.client.Create(t.Context(), job); err == nil {
			t.Fatal("the Job was stored without an answer of the webhook")
		}
		s.expect(t, "the webhook died", 10000, 2400, 7600)
		w.dies(t, w.bank.Webhook)
		eventually(t, "the hold without an object has expired", func(ctx context.Context) bool {
			row, _, err := w.ledger.Account(ctx, s.name)
			return err == nil && row.Reserved == 0
		})
		s.submit(t)
		s.placed(t)
		s.run(t)
		s.endsAs(t, undisturbed)
	})

	t.Run("scheduler after the allocation is committed, before Bind", func(t *testing.T) {
		s := w.newStory(t, "unbound")
		w.arm(t, "scheduler.after-allocate=kill")
		s.submit(t)
		w.waitDead(t, w.bank.Scheduler)
		pod := s.onlyPod(t.Context())
		if pod == nil || pod.Spec.NodeName != "" {
			t.Fatalf("the pod was to be unbound: %+v", pod)
		}
		allocation, found, err := w.ledger.Allocation(t.Context(), string(pod.UID))
		must(t, err)
		if !found || allocation.State != ledger.AllocationIntended {
			t.Fatalf("the allocation was to be intended: %+v", allocation)
		}
		w.dies(t, w.bank.Scheduler)
		s.placed(t)
		s.run(t)
		s.endsAs(t, undisturbed)
	})

	// A4: what was set aside for a workload that never ran goes back whole.
	t.Run("scheduler after the allocation is committed, and the pod is deleted meanwhile", func(t *testing.T) {
		s := w.newStory(t, "deleted")
		w.arm(t, "scheduler.after-allocate=kill")
		s.submit(t)
		w.waitDead(t, w.bank.Scheduler)
		s.pod = s.onlyPod(t.Context())
		must(t, w.client.Delete(t.Context(), s.job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		s.closes(t, ledger.Settled)
		s.reaches(t, ledger.AllocationReleased)
		s.expect(t, "released", 10000, 0, 10000)
		w.dies(t, w.bank.Scheduler)
	})

	t.Run("scheduler after Bind, before it is recorded", func(t *testing.T) {
		s := w.newStory(t, "bound")
		w.arm(t, "scheduler.after-bind=kill")
		s.submit(t)
		w.dies(t, w.bank.Scheduler)
		s.placed(t)
		s.reaches(t, ledger.AllocationBound)
		s.run(t)
		s.endsAs(t, undisturbed)
	})

	t.Run("controller after the charge is committed, before the acknowledgement", func(t *testing.T) {
		s := w.newStory(t, "unacknowledged")
		s.submit(t)
		s.placed(t)
		s.start(t)
		w.arm(t, "controller.after-charge-before-ack=kill")
		if _, err := s.node.agent.Report(t.Context(), s.node.request(s.pod, s.started, piece{0, 60}, piece{60, 137})); err == nil {
			t.Fatal("the intake answered although it was killed before")
		}
		w.dies(t, w.bank.Controller)
		s.meter(t)
		s.endsAs(t, undisturbed)
	})

	t.Run("controller after the last interval, before settlement", func(t *testing.T) {
		s := w.newStory(t, "unsettled")
		s.submit(t)
		s.placed(t)
		s.run(t)
		w.arm(t, "controller.before-settle=kill")
		s.finish(t)
		w.dies(t, w.bank.Controller)
		s.settled(t)
		s.sameAs(t, undisturbed)
	})

	t.Run("controller after the end is committed, before the pod is let go", func(t *testing.T) {
		s := w.newStory(t, "kept")
		s.submit(t)
		s.placed(t)
		s.run(t)
		w.arm(t, "controller.after-end-before-finalizer=kill")
		s.finish(t)
		w.dies(t, w.bank.Controller)
		s.settled(t)
		s.podMayGo(t)
		s.sameAs(t, undisturbed)
	})

	t.Run("the node dies for good", func(t *testing.T) { nodeDies(t, w) })

	t.Run("an old leader wakes up", func(t *testing.T) {
		s := w.newStory(t, "oldleader")
		oldLeaderWakesUp(t, s)
		s.run(t)
		s.endsAs(t, undisturbed)
	})

	w.audit(t)
}

// nodeDies: nothing is released while the node is only silent; once it is deleted, its time ends at the last renewal of
// its lease, and its pod's object may go.
func nodeDies(t *testing.T, w *world) {
	s := w.newStory(t, "lostnode")
	s.submit(t)
	s.placed(t)
	s.started = time.Now().Add(-time.Minute).Truncate(time.Second)
	s.node.run(t, s.pod, s.started)
	s.reaches(t, ledger.AllocationMetering)
	s.node.fallSilent()
	last := s.node.lastRenewal(t)
	s.reaches(t, ledger.AllocationSuspect)
	must(t, w.client.Delete(t.Context(), s.pod, client.GracePeriodSeconds(0)))
	s.expect(t, "the node is silent and the pod deleted by force", 10000, 2400, 7600)
	if s.onlyPod(t.Context()) == nil {
		t.Error("the pod's object is gone, and its GPUs look free, while its node is only silent")
	}
	must(t, w.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}))
	s.reaches(t, ledger.AllocationEnded)
	allocation, _, err := w.ledger.Allocation(t.Context(), string(s.pod.UID))
	must(t, err)
	if !allocation.EndedAt.Equal(ledger.Instant(last)) {
		t.Errorf("ended at %s, the lease was last renewed at %s", allocation.EndedAt, last)
	}
	price, err := ledger.Price(ledger.Rate(ledger.Credit), 4, allocation.EndedAt.Sub(s.started))
	must(t, err)
	if allocation.Charged != price {
		t.Errorf("charged %d, want %d for 4 GPUs until the last renewal", allocation.Charged, price)
	}
	eventually(t, "the pod is gone", func(ctx context.Context) bool {
		return apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(s.pod), &corev1.Pod{}))
	})
}

// oldLeaderWakesUp: the leading scheduler is stopped in the middle of an allocation, as by a long pause of its machine;
// another one takes over and places the pod; then the first one goes on. Its write must change nothing, and it must end.
func oldLeaderWakesUp(t *testing.T, s *story) {
	t.Helper()
	ctx := t.Context()
	old := s.w.bank.Scheduler
	s.w.arm(t, "scheduler.before-allocate=pause")
	s.submit(t)
	eventually(t, "the scheduler waits with the pod in hand", func(context.Context) bool {
		_, err := os.Stat(s.w.failpoints() + ".scheduler.before-allocate")
		return err == nil
	})
	must(t, old.Pause())
	s.w.arm(t, "")
	next, err := s.w.bank.NewScheduler(ctx, parts.Scheduler+"-next", nil)
	must(t, err)
	must(t, next.Start(ctx))
	s.placed(t)
	before, _, err := s.w.ledger.Allocation(ctx, string(s.pod.UID))
	must(t, err)
	must(t, old.Resume())
	s.w.waitDead(t, old)
	after, _, err := s.w.ledger.Allocation(ctx, string(s.pod.UID))
	must(t, err)
	if after.LeaderEpoch != before.LeaderEpoch || after.Node != before.Node {
		t.Errorf("the old leader changed the allocation from %+v to %+v", before, after)
	}
	s.w.bank.Scheduler = next
}
