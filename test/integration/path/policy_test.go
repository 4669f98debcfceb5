package path_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/nvml"
	"github.com/gpubank/gpubank/pkg/workload"
	"github.com/gpubank/gpubank/test/cluster/parts"
	"github.com/gpubank/gpubank/test/nodesim"
)

// TestPolicies runs Jobs in real time under accounts whose policies differ, on all parts of gpubank.
func TestPolicies(t *testing.T) {
	w := newWorld(t, 2)
	t.Run("each pod brings its hold when it is placed", func(t *testing.T) { holdAtPlacement(t, w) })
	t.Run("a hold is renewed until that is refused, then its pod is stopped", func(t *testing.T) { renewUntilRefused(t, w) })
	t.Run("a pod runs on in its payer's overdraft, then it is stopped", func(t *testing.T) { runOnInOverdraft(t, w) })
	t.Run("what no deadline stops is stopped when the hold is used up", func(t *testing.T) { stopAtTheEnd(t, w) })
	t.Run("part of a failed attempt is given back", func(t *testing.T) { refundFailed(t, w) })
	t.Run("a preempted attempt is given back its time since the checkpoint", func(t *testing.T) { refundPreempted(t, w) })
	t.Run("all of an attempt that met a device fault is given back", func(t *testing.T) { refundDeviceFault(t, w) })
	t.Run("a job waits for the quota of running jobs", func(t *testing.T) { waitForQuota(t, w) })
	w.audit(t)
}

func (w *world) newTenantUnder(t *testing.T, name string, credits v1alpha1.Credits, policy v1alpha1.AccountPolicy) *tenant {
	t.Helper()
	w.enrolUnder(t, name, credits, policy)
	return &tenant{w: w, name: name}
}

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// priced replaces a Job's own deadline by what it asks to be priced for.
func priced(job *batchv1.Job, seconds int) *batchv1.Job {
	job.Spec.Template.Spec.ActiveDeadlineSeconds = nil
	job.Spec.Template.Annotations[v1alpha1.MaxRuntimeAnnotation] = fmt.Sprint(seconds)
	return job
}

func holdAtPlacement(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenantUnder(t, "placement", "10000", v1alpha1.AccountPolicy{HoldAt: v1alpha1.HoldAtPlacement})
	two := n.job("two", 1, 4)
	two.Spec.Parallelism, two.Spec.Completions = ptr.To(int32(2)), ptr.To(int32(2))
	retried := n.job("retried", 2, 3)
	retried.Spec.BackoffLimit = ptr.To(int32(1))
	retried.Spec.Template.Annotations[nodesim.ExitCodeAnnotation] = "1"
	for _, job := range []*batchv1.Job{two, retried} {
		must(t, w.client.Create(ctx, job))
		if row, found, err := w.ledger.Reservation(ctx, string(job.UID)); err != nil || found {
			t.Fatalf("submission placed a hold: %+v, %v", row, err)
		}
	}
	eventually(t, "all four pods have run and are settled, each by its own hold", func(ctx context.Context) bool {
		pods := n.pods(ctx)
		for _, pod := range pods {
			row, found, err := w.ledger.Reservation(ctx, string(pod.UID))
			if err != nil || !found || row.State != ledger.Settled || row.Workload.Kind != "Pod" {
				return false
			}
		}
		return len(pods) == 4
	})
	for _, pod := range n.pods(ctx) {
		held := workload.Held(&pod)
		gpus := pod.Spec.Containers[0].Resources.Limits[gpuResource]
		want, err := ledger.Price(ledger.Rate(ledger.Credit), gpus.Value(), held.End.Sub(held.Start))
		must(t, err)
		row, _, err := w.ledger.Reservation(ctx, string(pod.UID))
		must(t, err)
		if row.Charged != want || row.Amount != 120*ledger.Microcredits(gpus.Value())*ledger.Credit {
			t.Errorf("pod %s: held %d, charged %d; want 120 s of %d GPUs and %d", pod.Name, row.Amount, row.Charged, gpus.Value(), want)
		}
	}
	if row, _, err := w.ledger.Account(ctx, n.name); err != nil || row.Reserved != 0 || row.Running != 0 {
		t.Errorf("the account is %+v, %v", row, err)
	}
}

// renewUntilRefused: 24 credits are three times 8 s of one GPU.
func renewUntilRefused(t *testing.T, w *world) {
	n := w.newTenantUnder(t, "renewing", "24", v1alpha1.AccountPolicy{
		Overrun: v1alpha1.OverrunPolicy{Action: v1alpha1.OverrunRenew, Lead: seconds(4), Step: seconds(8)},
		Refunds: &v1alpha1.RefundPolicy{FailedPercent: 100}, // nothing: it is stopped, and does not fail by itself
	})
	job := priced(n.job("train", 1, 300), 8)
	job.Spec.BackoffLimit = ptr.To(int32(1))
	must(t, w.client.Create(t.Context(), job))
	pod := n.stopped(t, job, 24)
	for _, object := range []client.Object{job, pod} {
		n.hears(t, object, "RenewalRefused", "needs 8 credits, 0 available on account renewing")
		n.hears(t, object, "HoldEndsAt", "the 24 credits set aside for this Job are used up at ")
	}
	n.hears(t, job, "HoldRenewed", "the credits for 8 GPU-seconds more are set aside")
	n.retryWaits(t, "Credit: the reservation of workload "+string(job.UID)+" is used up: 24 credits were held")
}

// runOnInOverdraft: 6 s are held of 10 credits with an overdraft of 8, which lasts for 18 s of one GPU.
func runOnInOverdraft(t *testing.T, w *world) {
	n := w.newTenantUnder(t, "overdraft", "10", v1alpha1.AccountPolicy{
		OverdraftLimit: "8", Overrun: v1alpha1.OverrunPolicy{Action: v1alpha1.OverrunOverdraft, Lead: seconds(5)},
	})
	job := priced(n.job("train", 1, 300), 6)
	must(t, w.client.Create(t.Context(), job))
	pod := n.stopped(t, job, 18)
	n.hears(t, pod, "HoldEndsAt", "the 6 credits set aside for this Job and the overdraft of account overdraft are used up at ")
	row, _, err := w.ledger.Reservation(t.Context(), string(job.UID))
	must(t, err)
	if row.Amount != 6*ledger.Credit || row.Overrun() < 12*ledger.Credit {
		t.Errorf("the reservation is %+v", row)
	}
}

// stopAtTheEnd: a first attempt takes 6 s of 12, so that its retry is stopped before its own deadline.
func stopAtTheEnd(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenantUnder(t, "stopping", "1000", v1alpha1.AccountPolicy{Overrun: v1alpha1.OverrunPolicy{Lead: seconds(4)}})
	job := priced(n.job("train", 1, 6), 12)
	job.Spec.BackoffLimit = ptr.To(int32(4))
	job.Spec.Template.Annotations[nodesim.ExitCodeAnnotation] = "1"
	must(t, w.client.Create(ctx, job))
	var first, second corev1.Pod
	eventually(t, "the second attempt is stopped", func(ctx context.Context) bool {
		for _, pod := range n.pods(ctx) {
			switch held := workload.Held(&pod); {
			case pod.Spec.NodeName == "" || !held.Ended:
			case first.UID == "" || first.UID == pod.UID:
				first = pod
			case pod.Status.StartTime.Before(first.Status.StartTime):
				first, second = pod, first
			default:
				second = pod
			}
		}
		return second.UID != ""
	})
	if deadline := first.Spec.ActiveDeadlineSeconds; deadline == nil || *deadline != 12 {
		t.Errorf("under Stop the kubelet has a deadline: %v", deadline)
	}
	n.hears(t, &second, "HoldEndsAt", "the 12 credits set aside for this Job are used up at ")
	n.hears(t, job, "HoldEndsAt", "its pods are then stopped")
	eventually(t, "the hold is used up, and little more", func(ctx context.Context) bool {
		row, _, err := w.ledger.Reservation(ctx, string(job.UID))
		return err == nil && row.Charged >= 12*ledger.Credit && row.Charged <= 20*ledger.Credit
	})
	n.retryWaits(t, "Credit: the reservation of workload "+string(job.UID)+" is used up: 12 credits were held")
}

func refundFailed(t *testing.T, w *world) {
	n := w.newTenantUnder(t, "failing", "1000", v1alpha1.AccountPolicy{Refunds: &v1alpha1.RefundPolicy{FailedPercent: 50}})
	job := n.job("train", 4, 5)
	job.Spec.Template.Annotations[nodesim.ExitCodeAnnotation] = "3"
	must(t, w.client.Create(t.Context(), job))
	fine := n.job("fine", 4, 5)
	must(t, w.client.Create(t.Context(), fine))
	pod := n.podOf(t, job)
	row := n.refunded(t, pod)
	if row.RefundedFor != ledger.RefundFailed || row.Refunded != row.Charged/2 {
		t.Errorf("%d of %d are given back because it %s", row.Refunded, row.Charged, row.RefundedFor)
	}
	n.hears(t, pod, "Refunded", "credits charged are given back: Failed")
	eventually(t, "what ran to its end is settled", func(ctx context.Context) bool {
		row, _, err := w.ledger.Reservation(ctx, string(fine.UID))
		return err == nil && row.State == ledger.Settled
	})
	if row, _, err := w.ledger.Allocation(t.Context(), string(n.podOf(t, fine).UID)); err != nil || row.RefundedFor != "" {
		t.Errorf("an attempt that succeeded is given back: %+v, %v", row, err)
	}
}

// refundPreempted: the scheduler itself preempts, for a pod of a higher priority.
func refundPreempted(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenantUnder(t, "preempted", "100000", v1alpha1.AccountPolicy{Refunds: &v1alpha1.RefundPolicy{PreemptedSinceCheckpoint: true}})
	urgent := w.newTenant(t, "urgent", "100000")
	must(t, w.client.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}))
	onFirst := map[string]string{corev1.LabelHostname: parts.NodeName(0)}
	job := n.job("train", 8, 300)
	job.Spec.Template.Spec.NodeSelector = onFirst
	must(t, w.client.Create(ctx, job))
	pod := n.podOf(t, job)
	eventually(t, "it has run for some seconds", func(ctx context.Context) bool {
		row, found, err := w.ledger.Allocation(ctx, string(pod.UID))
		return err == nil && found && row.State == ledger.AllocationMetering && time.Since(row.StartedAt) > 3*time.Second
	})
	row, _, err := w.ledger.Allocation(ctx, string(pod.UID))
	must(t, err)
	checkpoint := row.StartedAt.Add(2 * time.Second)
	must(t, w.client.Patch(ctx, pod, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"annotations":{%q:%q}}}`, workload.CheckpointedAtAnnotation, checkpoint.Format(time.RFC3339)))))
	other := urgent.job("now", 8, 2)
	other.Spec.Template.Spec.NodeSelector, other.Spec.Template.Spec.PriorityClassName = onFirst, "urgent"
	must(t, w.client.Create(ctx, other))
	row = n.refunded(t, pod)
	want, err := ledger.Price(ledger.Rate(ledger.Credit), 8, row.EndedAt.Sub(checkpoint))
	must(t, err)
	if row.RefundedFor != ledger.RefundPreempted || row.Refunded != want || row.Refunded >= row.Charged {
		t.Errorf("%d of %d are given back because it was %s, want %d", row.Refunded, row.Charged, row.RefundedFor, want)
	}
	urgent.finished(t, 1)
}

// refundDeviceFault: two attempts fail. One's GPU raises an XID error meanwhile, which its node's agent reports; the other's raises
// none but what a program's own mistake brings about.
func refundDeviceFault(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenantUnder(t, "faulty", "10000", v1alpha1.AccountPolicy{Refunds: &v1alpha1.RefundPolicy{DeviceFault: true, FailedPercent: 25}})
	for name, c := range map[string]struct {
		xid  uint64
		want ledger.RefundCause
	}{"hardware": {79, ledger.RefundDeviceFault}, "program": {31, ledger.RefundFailed}} {
		job := n.job(name, 2, 12)
		job.Spec.Template.Annotations[nodesim.ExitCodeAnnotation] = "1"
		must(t, w.client.Create(ctx, job))
		pod := n.podOf(t, job)
		var row ledger.Allocation
		eventually(t, "it is known which GPUs the pod holds", func(ctx context.Context) bool {
			var err error
			row, _, err = w.ledger.Allocation(ctx, string(pod.UID))
			return err == nil && len(row.GPUUUIDs) == 2
		})
		w.raise(t, row.Node, row.GPUUUIDs[1], c.xid)
		row = n.refunded(t, pod)
		want := row.Charged
		if c.want == ledger.RefundFailed {
			want = row.Charged / 4
		}
		if row.RefundedFor != c.want || row.Refunded != want || row.Charged < 20*ledger.Credit {
			t.Errorf("XID %d: %d of %d are given back: %s", c.xid, row.Refunded, row.Charged, row.RefundedFor)
		}
	}
}

// raise lets a node's driver raise an XID error of one of its GPUs.
func (w *world) raise(t *testing.T, node, gpuUUID string, xid uint64) {
	t.Helper()
	path := w.bank.SimulatedGPUs(node)
	content, err := os.ReadFile(path)
	must(t, err)
	var file nvml.SimulatedFile
	must(t, yaml.Unmarshal(content, &file))
	for i := range file.GPUs {
		if file.GPUs[i].UUID == gpuUUID {
			file.GPUs[i].XIDs = append(file.GPUs[i].XIDs, xid)
		}
	}
	content, err = yaml.Marshal(file)
	must(t, err)
	must(t, os.WriteFile(path+".raised", content, 0o600))
	must(t, os.Rename(path+".raised", path))
}

func waitForQuota(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenantUnder(t, "one-by-one", "10000", v1alpha1.AccountPolicy{RunningJobs: 1})
	must(t, w.client.Create(ctx, n.job("first", 1, 10)))
	eventually(t, "the first Job runs", func(ctx context.Context) bool { return len(n.bound(ctx)) == 1 })
	second := n.job("second", 1, 2)
	must(t, w.client.Create(ctx, second)) // no reason to deny it
	eventually(t, "the second one waits for the quota", func(ctx context.Context) bool {
		return n.waitsWith(ctx, "Quota: account one-by-one runs 1 of at most 1 jobs at once")
	})
	n.finished(t, 2)
}

// podOf waits for a Job's first pod.
func (n *tenant) podOf(t *testing.T, job *batchv1.Job) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	eventually(t, "Job "+job.Name+" has a pod", func(ctx context.Context) bool {
		err := n.w.client.List(ctx, &pods, client.InNamespace(n.name), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
		return err == nil && len(pods.Items) > 0
	})
	return &pods.Items[0]
}

// stopped waits until the Job's first pod was deleted by the controller and is settled, having used at least so many
// credits and not many seconds more.
func (n *tenant) stopped(t *testing.T, job *batchv1.Job, credits ledger.Microcredits) *corev1.Pod {
	t.Helper()
	pod := n.podOf(t, job)
	if pod.Spec.ActiveDeadlineSeconds != nil {
		t.Errorf("a pod that may outlast its hold has a deadline of %d s", *pod.Spec.ActiveDeadlineSeconds)
	}
	eventually(t, "the pod has been stopped and settled", func(ctx context.Context) bool {
		row, found, err := n.w.ledger.Allocation(ctx, string(pod.UID))
		return err == nil && found && row.State == ledger.AllocationEnded
	})
	row, _, err := n.w.ledger.Allocation(t.Context(), string(pod.UID))
	must(t, err)
	if row.Charged < credits*ledger.Credit || row.Charged > (credits+8)*ledger.Credit {
		t.Errorf("it was stopped after %s, charged %s credits; want %d, and at most a few more", row.EndedAt.Sub(row.StartedAt), ledger.FormatCredits(row.Charged), credits)
	}
	if row.RefundedFor != "" {
		t.Errorf("a pod that was stopped is given back %d", row.Refunded)
	}
	return pod
}

func (n *tenant) refunded(t *testing.T, pod *corev1.Pod) ledger.Allocation {
	t.Helper()
	var row ledger.Allocation
	eventually(t, "pod "+pod.Name+" is given back something", func(ctx context.Context) bool {
		var err error
		row, _, err = n.w.ledger.Allocation(ctx, string(pod.UID))
		return err == nil && row.RefundedFor != ""
	})
	return row
}

// hears waits for an event about an object that says something.
func (n *tenant) hears(t *testing.T, about client.Object, reason, says string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an event %s about %s says %q", reason, about.GetName(), says), func(ctx context.Context) bool {
		var list eventsv1.EventList
		if err := n.w.client.List(ctx, &list, client.InNamespace(n.name)); err != nil {
			return false
		}
		for _, event := range list.Items {
			if event.Regarding.UID == about.GetUID() && event.Reason == reason && strings.Contains(event.Note, says) {
				return true
			}
		}
		return false
	})
}

// retryWaits waits until the Job has made another attempt, and its pod says why it is not placed.
func (n *tenant) retryWaits(t *testing.T, says string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the next attempt waits, saying %q", says), func(ctx context.Context) bool { return n.waitsWith(ctx, says) })
}

func (n *tenant) waitsWith(ctx context.Context, says string) bool {
	for _, pod := range n.pods(ctx) {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && strings.Contains(condition.Message, says) {
				return true
			}
		}
	}
	return false
}
