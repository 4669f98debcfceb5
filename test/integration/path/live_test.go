package path_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
	"github.com/gpubank/gpubank/test/cluster/parts"
	"github.com/gpubank/gpubank/test/nodesim"
)

// tenant is a namespace and its account, whose Jobs run in real time on nodes that nodesim plays, metered by real agents.
type tenant struct {
	w    *world
	name string
}

func (w *world) newTenant(t *testing.T, name string, credits v1alpha1.Credits) *tenant {
	t.Helper()
	w.enrol(t, name, credits)
	return &tenant{w: w, name: name}
}

// job is a Job of one pod with so many GPUs, which runs for some seconds of at most 120.
func (n *tenant) job(name string, gpus, seconds int) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.name, Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodesim.RunSecondsAnnotation: fmt.Sprint(seconds)}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To(int64(120)),
					Containers: []corev1.Container{{Name: "main", Image: "none.invalid/train", Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{gpuResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)},
					}}},
				},
			},
		},
	}
}

func (n *tenant) pods(ctx context.Context) []corev1.Pod {
	var pods corev1.PodList
	if err := n.w.client.List(ctx, &pods, client.InNamespace(n.name)); err != nil {
		return nil
	}
	return pods.Items
}

// bound are the names of the tenant's pods that are on a node.
func (n *tenant) bound(ctx context.Context) []string {
	var names []string
	for _, pod := range n.pods(ctx) {
		if pod.Spec.NodeName != "" {
			names = append(names, pod.Name)
		}
	}
	return names
}

// finished waits until so many of the tenant's Jobs are complete and every reservation is closed.
func (n *tenant) finished(t *testing.T, jobs int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d Jobs of %s are complete and settled", jobs, n.name), func(ctx context.Context) bool {
		var list batchv1.JobList
		if err := n.w.client.List(ctx, &list, client.InNamespace(n.name)); err != nil || len(list.Items) != jobs {
			return false
		}
		for _, job := range list.Items {
			row, found, err := n.w.ledger.Reservation(ctx, string(job.UID))
			if job.Status.Succeeded != 1 || err != nil || !found || row.State != ledger.Settled {
				return false
			}
		}
		return true
	})
}

// billed fails the test unless every pod has exactly one allocation, and the price of exactly the time that its own
// status shows was charged for it.
func (n *tenant) billed(t *testing.T, gpus int64) {
	t.Helper()
	var total ledger.Microcredits
	for _, pod := range n.pods(t.Context()) {
		held := workload.Held(&pod)
		if !held.Ended || held.EndUnknown {
			t.Errorf("pod %s has not ended: %+v", pod.Name, pod.Status)
			continue
		}
		want, err := ledger.Price(ledger.Rate(ledger.Credit), gpus, held.End.Sub(held.Start))
		must(t, err)
		allocation, found, err := n.w.ledger.Allocation(t.Context(), string(pod.UID))
		must(t, err)
		if !found || allocation.Charged != want || allocation.Node != pod.Spec.NodeName {
			t.Errorf("pod %s held %d GPUs on %s for %s, worth %d; its allocation is %+v", pod.Name, gpus, pod.Spec.NodeName, held.End.Sub(held.Start), want, allocation)
		}
		total += want
	}
	row, _, err := n.w.ledger.Account(t.Context(), n.name)
	must(t, err)
	if row.Charged != total || row.Reserved != 0 {
		t.Errorf("account %s: charged %d, reserved %d; its pods held GPUs worth %d", n.name, row.Charged, row.Reserved, total)
	}
}

// TestLiveFailures runs Jobs in real time, on nodes with real agents, while what gpubank stands on goes away.
func TestLiveFailures(t *testing.T) {
	w := newWorld(t, 2)

	t.Run("the agent dies before an interval is acknowledged", func(t *testing.T) {
		n := w.newTenant(t, "agents", "10000")
		w.arm(t, "meter.before-ack=kill")
		must(t, w.client.Create(t.Context(), n.job("train", 4, 8)))
		var dead string
		eventually(t, "the agent of the pod's node is killed", func(context.Context) bool {
			for name, agent := range w.bank.Agents {
				if !agent.Running() {
					dead = name
				}
			}
			return dead != ""
		})
		w.arm(t, "")
		must(t, w.bank.Agents[dead].Start(t.Context()))
		n.finished(t, 1)
		n.billed(t, 4)
		n.allMeasured(t)
	})

	t.Run("PostgreSQL is away for 30 s under load", func(t *testing.T) { postgresAway(t, w) })
	t.Run("the API server is away", func(t *testing.T) { apiServerAway(t, w) })
	w.audit(t)
}

// allMeasured waits until agents vouch for all held time: whatever was derived from pod status has been replaced.
func (n *tenant) allMeasured(t *testing.T) {
	t.Helper()
	eventually(t, "agents vouch for all held time of "+n.name, func(ctx context.Context) bool {
		statement, err := n.w.ledger.Statement(ctx, n.name, time.Time{}, time.Now().Add(time.Minute))
		if err != nil {
			return false
		}
		for _, summary := range statement.Workloads {
			if summary.DerivedCharge != 0 {
				return false
			}
		}
		return true
	})
}

// postgresAway: Jobs run, Jobs wait and Jobs are submitted while PostgreSQL is stopped for 30 s.
func postgresAway(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenant(t, "outage", "100000")
	const running, waiting = 6, 6
	for i := range running {
		must(t, w.client.Create(ctx, n.job(fmt.Sprintf("running-%d", i), 1, 15)))
	}
	eventually(t, "the first Jobs run", func(ctx context.Context) bool { return len(n.bound(ctx)) == running })
	w.cordon(t, true)
	for i := range waiting {
		must(t, w.client.Create(ctx, n.job(fmt.Sprintf("waiting-%d", i), 1, 10)))
	}
	eventually(t, "the waiting Jobs have pods", func(ctx context.Context) bool { return len(n.pods(ctx)) == running+waiting })

	must(t, w.pg.Stop())
	outage, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	w.cordon(t, false)
	eventually(t, "a waiting pod says that it waits for the ledger", func(ctx context.Context) bool {
		for _, pod := range n.pods(ctx) {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && strings.Contains(condition.Message, "Ledger:") {
					return true
				}
			}
		}
		return false
	})
	if err := w.client.Create(ctx, n.job("refused", 1, 5)); err == nil || !strings.Contains(err.Error(), "Ledger") || strings.Contains(err.Error(), "nsufficient") {
		t.Errorf("a Job without a ledger: %v", err)
	}
	<-outage.Done()
	if bound := n.bound(ctx); len(bound) != running {
		t.Errorf("pods were bound while the ledger was away: %v", bound)
	}
	must(t, w.pg.Start(ctx))

	n.finished(t, running+waiting)
	n.billed(t, 1)
	n.allMeasured(t)
}

func (w *world) cordon(t *testing.T, cordoned bool) {
	t.Helper()
	for i := range 2 {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
		must(t, w.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: parts.NodeName(i)}}, patch))
	}
}

// apiServerAway: a Job runs and ends, and a hold waits for its object, while nobody can ask whether the object exists.
func apiServerAway(t *testing.T, w *world) {
	ctx := t.Context()
	n := w.newTenant(t, "apiserver", "10000")
	must(t, w.client.Create(ctx, n.job("running", 2, 6)))
	eventually(t, "the Job runs", func(ctx context.Context) bool { return len(n.bound(ctx)) == 1 })
	suspended := n.job("suspended", 1, 5)
	suspended.Spec.Suspend = ptr.To(true)
	must(t, w.client.Create(ctx, suspended))
	orphan := ledger.PlaceHold{
		Key: "hold:no-such-object", UID: "no-such-object", Account: n.name, Class: "h100", MaxGPUs: 1, GPUSeconds: 60,
		Workload: ledger.WorkloadRef{Kind: "Job", Namespace: n.name, Name: "never-stored"},
	}
	verdict, err := w.ledger.Submit(ctx, orphan)
	must(t, err)
	if verdict.Refusal != nil {
		t.Fatal(verdict.Refusal)
	}

	must(t, w.cp.APIServer.Stop())
	away, end := context.WithTimeout(ctx, holdExpiry+4*time.Second)
	defer end()
	<-away.Done()
	for _, uid := range []string{orphan.UID, string(suspended.UID)} {
		row, _, err := w.ledger.Reservation(ctx, uid)
		must(t, err)
		if row.State != ledger.Held {
			t.Errorf("reservation %s is %s although nobody could ask whether its object exists", uid, row.State)
		}
	}
	must(t, w.cp.APIServer.Start(ctx))

	eventually(t, "the hold without an object has expired", func(ctx context.Context) bool {
		w.restart(t)
		row, _, err := w.ledger.Reservation(ctx, orphan.UID)
		return err == nil && row.State == ledger.Expired
	})
	row, _, err := w.ledger.Reservation(ctx, string(suspended.UID))
	must(t, err)
	if row.State != ledger.Held {
		t.Errorf("the suspended Job's reservation is %s", row.State)
	}
	resume := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`))
	eventually(t, "the suspended Job is resumed", func(ctx context.Context) bool { return w.client.Patch(ctx, suspended, resume) == nil })
	n.finished(t, 2)
}

// restart does what a Deployment does: a part that could not renew its lease has ended, and begins again.
func (w *world) restart(t *testing.T) {
	t.Helper()
	for _, part := range w.bank.Processes() {
		if !part.Running() {
			must(t, part.Start(t.Context()))
		}
	}
}
