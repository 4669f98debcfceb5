package path_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// policyStory is a story that an account's policy has a word in. Its Job is the worked example's, at most 600 s of four GPUs.
type policyStory struct {
	policy v1alpha1.AccountPolicy
	// ranFor is how long its pod runs in all, exitCode what it exits with then.
	ranFor   time.Duration
	exitCode int32
	// bounded: the pod has its own deadline of 600 s; otherwise it is only priced for it.
	bounded bool
	// stopped: the controller has to ask the pod to stop, before it ends.
	stopped bool
	// renewed is what the hold's GPU-seconds grow to; 0 when they stay.
	renewed int64
}

// TestPolicyCrashTable tells three stories undisturbed, and then again with the controller killed by SIGKILL at the worst
// moments of each. The ledger must come out as the undisturbed run's, to the row.
func TestPolicyCrashTable(t *testing.T) {
	w := newWorld(t, 0)
	for _, c := range []struct {
		name   string
		story  policyStory
		points []string
	}{
		{"renewed", policyStory{
			policy: v1alpha1.AccountPolicy{Overrun: v1alpha1.OverrunPolicy{Action: v1alpha1.OverrunRenew, Lead: seconds(60), Step: seconds(900)}},
			ranFor: 720 * time.Second, renewed: 2400 + 4*900,
		}, []string{"controller.before-renew", "controller.after-renew"}},
		{"stopped", policyStory{
			ranFor: 700 * time.Second, exitCode: 143, bounded: true, stopped: true,
		}, []string{"controller.before-stop", "controller.after-stop"}},
		{"refunded", policyStory{
			policy: v1alpha1.AccountPolicy{Refunds: &v1alpha1.RefundPolicy{FailedPercent: 50}},
			ranFor: 420 * time.Second, exitCode: 1, bounded: true,
		}, []string{"controller.before-refund", "controller.after-refund"}},
	} {
		var undisturbed string
		t.Run(c.name, func(t *testing.T) { undisturbed = c.story.tell(t, w, c.name, "") })
		if undisturbed == "" {
			t.FailNow()
		}
		t.Logf("the undisturbed run's ledger:\n%s", undisturbed)
		for i, point := range c.points {
			t.Run(c.name+", killed at "+point, func(t *testing.T) {
				name := c.name + []string{"-before", "-after"}[i]
				if got := c.story.tell(t, w, name, point); got != undisturbed {
					t.Errorf("the ledger differs from the undisturbed run's:\n%s\nwant\n%s", got, undisturbed)
				}
			})
		}
	}
	w.audit(t)
}

// tell lets the story happen for an account of its own, with the controller killed at the point if there is one, and returns
// the ledger that it leaves.
func (p policyStory) tell(t *testing.T, w *world, name, point string) string {
	t.Helper()
	ctx := t.Context()
	w.enrolUnder(t, name, "10000", p.policy)
	s := &story{w: w, name: name, node: w.newNode(t, name)}
	eventually(t, "the Job is created", func(ctx context.Context) bool {
		s.job = s.gpuJob()
		if !p.bounded {
			s.job.Spec.Template.Spec.ActiveDeadlineSeconds = nil
			s.job.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: "10m"}
		}
		return w.client.Create(ctx, s.job) == nil
	})
	s.placed(t)
	if point != "" {
		w.arm(t, point+"=kill")
	}
	s.started = time.Now().Add(-p.ranFor).Truncate(time.Second)
	s.node.run(t, s.pod, s.started)
	if point != "" && (p.stopped || p.renewed > 0) {
		w.dies(t, w.bank.Controller)
	}
	if p.renewed > 0 {
		eventually(t, "the hold is renewed", func(ctx context.Context) bool {
			row, _, err := w.ledger.Reservation(ctx, string(s.job.UID))
			return err == nil && row.GPUSeconds == p.renewed
		})
	}
	if p.stopped {
		eventually(t, "the pod is asked to stop", func(ctx context.Context) bool {
			var pod corev1.Pod
			return w.client.Get(ctx, client.ObjectKeyFromObject(s.pod), &pod) == nil && pod.UID == s.pod.UID && pod.DeletionTimestamp != nil
		})
	}
	s.reaches(t, ledger.AllocationMetering)
	s.node.finish(t, s.pod, s.started, s.started.Add(p.ranFor), p.exitCode)
	if point != "" && !p.stopped && p.renewed == 0 {
		w.dies(t, w.bank.Controller)
	}
	s.closes(t, ledger.Settled)
	s.podMayGo(t)
	row, _, err := w.ledger.Reservation(ctx, string(s.job.UID))
	must(t, err)
	if price := ledger.Microcredits(4*p.ranFor/time.Second) * ledger.Credit; row.Charged != price {
		t.Errorf("charged %d, want %d", row.Charged, price)
	}
	return s.snapshot(t)
}
