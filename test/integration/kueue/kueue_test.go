package kueue_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// otherCheck is an admission check that the test answers, or does not.
const otherCheck kueuev1beta2.AdmissionCheckReference = "other"

func TestKueue(t *testing.T) {
	w := newWorld(t)
	w.makeOtherCheck(t)
	t.Run("admitted, run, charged and settled", func(t *testing.T) { admitted(t, w) })
	t.Run("what cannot pay waits with the numbers, and starts by itself", func(t *testing.T) { unaffordable(t, w) })
	t.Run("evicted while it runs, and admitted again", func(t *testing.T) { evicted(t, w) })
	t.Run("evicted before it ran", func(t *testing.T) { evictedBeforeItRan(t, w) })
	t.Run("deleted before it ran", func(t *testing.T) { deletedBeforeItRan(t, w) })
	t.Run("controller killed between the hold and its answer", func(t *testing.T) { killedAfterHold(t, w) })
	t.Run("controller killed after a hold was given back", func(t *testing.T) { killedAfterPause(t, w) })
	t.Run("held at submission, and at placement", func(t *testing.T) { otherMoments(t, w) })
	t.Run("an elastic Job's slices are one hold", func(t *testing.T) { elastic(t, w) })
	t.Run("Kueue and the controller are started again", func(t *testing.T) { startedAgain(t, w) })
	w.audit(t)
}

func (w *world) makeOtherCheck(t *testing.T) {
	t.Helper()
	object := &kueuev1beta2.AdmissionCheck{
		ObjectMeta: metav1.ObjectMeta{Name: string(otherCheck)}, Spec: kueuev1beta2.AdmissionCheckSpec{ControllerName: "example.com/other"},
	}
	must(t, w.client.Create(t.Context(), object))
	eventually(t, "it is said to be answered", func(ctx context.Context) bool { // Kueue writes into it too
		if w.client.Get(ctx, client.ObjectKeyFromObject(object), object) != nil {
			return false
		}
		apimeta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{Type: kueuev1beta2.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"})
		return w.client.Status().Update(ctx, object) == nil
	})
}

func admitted(t *testing.T, w *world) {
	n := w.newTenant(t, "admitted", 10_000, v1alpha1.HoldAtAdmission)
	n.evict(t) // nothing has quota at first
	job := n.submit(t, "train", 2, 4)
	eventually(t, "Kueue has a Workload for it", func(ctx context.Context) bool { return n.workloadOf(ctx, job) != nil })
	if row, found := n.reservation(t.Context(), job); found {
		t.Errorf("a Job that waits in its queue holds %+v", row)
	}
	n.resume(t)
	n.says(t, job, kueuev1beta2.CheckStateReady, "240 credits of account admitted are set aside for up to 240 GPU-seconds of class h100")
	row := n.settled(t, job)
	if row.Amount != credits(2*holdSeconds) || row.Class != "h100" || row.MaxGPUs != 2 || row.Workload.Kind != "Job" {
		t.Errorf("its hold was %+v", row)
	}
	n.addsUp(t, job)
}

func unaffordable(t *testing.T, w *world) {
	n := w.newTenant(t, "poor", 100, v1alpha1.HoldAtAdmission)
	job := n.submit(t, "train", 1, 3)
	n.says(t, job, kueuev1beta2.CheckStatePending, "needs 120 credits, 100 available on account poor")
	if account := n.account(t.Context()); account.Reserved != 0 {
		t.Errorf("refused, and %d are set aside", account.Reserved)
	}
	n.grant(t, "more", 50)
	n.settled(t, job)
	n.addsUp(t, job)
}

func evicted(t *testing.T, w *world) {
	n := w.newTenant(t, "evicted", 10_000, v1alpha1.HoldAtAdmission)
	job := n.submit(t, "train", 1, 15)
	eventually(t, "some of its run is charged", func(ctx context.Context) bool {
		row, _ := n.reservation(ctx, job)
		return row.Charged > 0
	})
	n.evict(t)
	first := n.holds(t, job, 0)
	if !first.Open() || first.Charged == 0 {
		t.Errorf("evicted after it ran, its reservation is %+v", first)
	}
	eventually(t, "its check waits again", func(ctx context.Context) bool {
		return check(n.workloadOf(ctx, job)).State == kueuev1beta2.CheckStatePending
	})
	n.resume(t)
	n.running(t, job, 1)
	if row, _ := n.reservation(t.Context(), job); row.Amount-first.Charged < credits(holdSeconds) {
		t.Errorf("admitted again, it holds less than it may use: %+v, %d were charged before", row, first.Charged)
	}
	row := n.settled(t, job)
	if row.Charged <= first.Charged {
		t.Errorf("settled as %+v", row)
	}
	n.addsUp(t, job)
}

func evictedBeforeItRan(t *testing.T, w *world) {
	n := w.newTenant(t, "idle", 10_000, v1alpha1.HoldAtAdmission, otherCheck)
	job := n.submit(t, "train", 3, 3)
	n.holds(t, job, 3*holdSeconds) // quota is reserved, and the other check says nothing
	n.says(t, job, kueuev1beta2.CheckStateReady, "360 credits")
	workload := n.workloadOf(t.Context(), job)
	must(t, w.client.Patch(t.Context(), workload, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":false}}`))))
	row := n.holds(t, job, 0)
	if row.State != ledger.Held || row.Amount != 0 || row.Charged != 0 {
		t.Errorf("deactivated before it ran, its reservation is %+v", row)
	}
	must(t, w.client.Patch(t.Context(), workload, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":true}}`))))
	n.holds(t, job, 3*holdSeconds)
	must(t, w.client.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	n.released(t, job)
	n.addsUp(t)
}

// released waits until the Job's hold has ended without any use of it.
func (n *tenant) released(t *testing.T, job *batchv1.Job) {
	t.Helper()
	eventually(t, "the hold of "+job.Name+" is released", func(ctx context.Context) bool {
		row, _ := n.reservation(ctx, job)
		return row.State == ledger.Released && n.account(ctx).Reserved == 0
	})
}

func deletedBeforeItRan(t *testing.T, w *world) {
	n := w.newTenant(t, "deleted", 100, v1alpha1.HoldAtAdmission, otherCheck)
	refused := n.submit(t, "refused", 1, 3)
	n.says(t, refused, kueuev1beta2.CheckStatePending, "needs 120 credits")
	must(t, w.client.Delete(t.Context(), refused, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	held := n.submit(t, "held", 1, 3, func(job *batchv1.Job) { job.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To(int64(60)) })
	n.holds(t, held, 60)
	must(t, w.client.Delete(t.Context(), held, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	n.released(t, held)
	if row, found := n.reservation(t.Context(), refused); found {
		t.Errorf("refused and deleted, it has %+v", row)
	}
	n.addsUp(t)
}

func killedAfterHold(t *testing.T, w *world) {
	n := w.newTenant(t, "killed", 10_000, v1alpha1.HoldAtAdmission)
	w.arm(t, "kueue.after-hold=kill")
	job := n.submit(t, "train", 1, 3)
	w.dies(t)
	n.settled(t, job)
	n.addsUp(t, job)
}

func killedAfterPause(t *testing.T, w *world) {
	n := w.newTenant(t, "paused", 10_000, v1alpha1.HoldAtAdmission, otherCheck)
	job := n.submit(t, "train", 2, 3)
	n.holds(t, job, 2*holdSeconds)
	w.arm(t, "kueue.after-pause=kill")
	n.evict(t)
	w.dies(t)
	n.holds(t, job, 0)
	n.resume(t)
	n.holds(t, job, 2*holdSeconds)
	n.answerOther(t, job)
	n.settled(t, job)
	n.addsUp(t, job)
}

// answerOther says yes to the other check.
func (n *tenant) answerOther(t *testing.T, job *batchv1.Job) {
	t.Helper()
	eventually(t, "the other check is Ready", func(ctx context.Context) bool {
		workload := n.workloadOf(ctx, job)
		if workload == nil {
			return false
		}
		for i := range workload.Status.AdmissionChecks {
			if each := &workload.Status.AdmissionChecks[i]; each.Name == otherCheck {
				each.State, each.LastTransitionTime = kueuev1beta2.CheckStateReady, metav1.Now()
			}
		}
		return n.w.client.Status().Update(ctx, workload) == nil
	})
}

func otherMoments(t *testing.T, w *world) {
	submission := w.newTenant(t, "submission", 10_000, v1alpha1.HoldAtSubmission)
	early := submission.submit(t, "train", 1, 3, ofClass("h100"))
	if row, found := submission.reservation(t.Context(), early); !found || row.Amount != credits(holdSeconds) {
		t.Errorf("submitted, it holds %+v", row)
	}
	if row := submission.settled(t, early); row.Amount != credits(holdSeconds) {
		t.Errorf("what was held at submission became %+v", row)
	}
	submission.addsUp(t, early)

	unmanaged := w.newTenant(t, "unmanaged", 10_000, v1alpha1.HoldAtAdmission)
	free := unmanaged.submit(t, "train", 1, 3, ofClass("h100"), func(job *batchv1.Job) { job.Labels, job.Spec.Suspend = nil, nil })
	if row, found := unmanaged.reservation(t.Context(), free); !found || row.Amount != credits(holdSeconds) {
		t.Errorf("a Job that no queue has holds %+v", row)
	}
	unmanaged.settled(t, free)
	unmanaged.addsUp(t, free)

	placement := w.newTenant(t, "placement", 10_000, v1alpha1.HoldAtPlacement)
	late := placement.submit(t, "train", 1, 3, ofClass("h100"))
	placement.says(t, late, kueuev1beta2.CheckStateReady, "Each pod sets its own credits aside")
	eventually(t, "its pod has run under a hold of its own", func(ctx context.Context) bool {
		for _, pod := range placement.pods(ctx) {
			row, found, err := w.ledger.Reservation(ctx, string(pod.UID))
			return err == nil && found && row.State == ledger.Settled && row.Charged > 0
		}
		return false
	})
	if row, found := placement.reservation(t.Context(), late); found {
		t.Errorf("held at placement, the Job has %+v", row)
	}
}

// startedAgain: what is over stays over (A1), what is admitted stays held for, once (A2).
func startedAgain(t *testing.T, w *world) {
	n := w.newTenant(t, "again", 10_000, v1alpha1.HoldAtAdmission, otherCheck)
	last := w.newTenant(t, "last", 100, v1alpha1.HoldAtAdmission)
	waits := n.submit(t, "waits", 2, 3)
	n.holds(t, waits, 2*holdSeconds)
	before := w.everything(t)
	must(t, w.kueue.Manager.Kill())
	must(t, w.bank.Controller.Kill())
	must(t, w.kueue.Manager.Start(t.Context()))
	must(t, w.bank.Controller.Start(t.Context()))
	// A Job that comes now has been through everybody's queue after all that there was before.
	late := last.submit(t, "late", 1, 3)
	last.says(t, late, kueuev1beta2.CheckStatePending, "needs 120 credits, 100 available")
	if diff := cmp.Diff(before, w.everything(t)); diff != "" {
		t.Errorf("the ledger has changed by a restart (-before +after):\n%s", diff)
	}
	n.answerOther(t, waits)
	n.settled(t, waits)
	n.addsUp(t, waits)
}

func elastic(t *testing.T, w *world) {
	n := w.newTenant(t, "elastic", 10_000, v1alpha1.HoldAtAdmission)
	job := n.submit(t, "train", 2, 40, func(job *batchv1.Job) {
		job.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
		job.Spec.Completions = nil
	})
	n.running(t, job, 2)
	must(t, w.client.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parallelism":3}}`))))
	n.running(t, job, 3)
	row, _ := n.reservation(t.Context(), job)
	// One hold for three pods; what the two had used by then is the only thing on top of it.
	if row.MaxGPUs != 3 || row.Amount < credits(3*holdSeconds) || row.Amount > credits(3*holdSeconds+2*41) {
		t.Errorf("its slices hold %+v", row)
	}
	n.settled(t, job)
	n.addsUp(t, job)
}
