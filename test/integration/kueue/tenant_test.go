package kueue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
	"github.com/gpubank/gpubank/test/nodesim"
)

const (
	gpuResource = "nvidia.com/gpu"
	checkName   = "gpubank-credit"
	// holdSeconds is what one pod may run for.
	holdSeconds = 120
)

// tenant is a namespace, its account, and a queue of its own with 8 GPUs of class h100 and none of a100, all of one name.
type tenant struct {
	w    *world
	name string
}

func (w *world) newTenant(t *testing.T, name string, budget int64, holdAt v1alpha1.HoldMoment, more ...kueuev1beta2.AdmissionCheckReference) *tenant {
	t.Helper()
	ctx, n := t.Context(), &tenant{w: w, name: name}
	must(t, w.cp.CreateNamespace(ctx, name, map[string]string{v1alpha1.AccountLabel: name}))
	must(t, w.client.Create(ctx, &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CreditAccountSpec{Namespaces: []string{name}, Policy: v1alpha1.AccountPolicy{HoldAt: holdAt}},
	}))
	n.grant(t, "budget", budget)
	eventually(t, "the grant is posted", func(ctx context.Context) bool { return n.account(ctx).Balance == credits(budget) })
	checks := []kueuev1beta2.AdmissionCheckStrategyRule{{Name: checkName}}
	for _, check := range more {
		checks = append(checks, kueuev1beta2.AdmissionCheckStrategyRule{Name: check})
	}
	quota := func(flavor string, gpus int64) kueuev1beta2.FlavorQuotas {
		return kueuev1beta2.FlavorQuotas{Name: kueuev1beta2.ResourceFlavorReference(flavor), Resources: []kueuev1beta2.ResourceQuota{
			{Name: gpuResource, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)}}}
	}
	must(t, w.client.Create(ctx, &kueuev1beta2.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueuev1beta2.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{}, QueueingStrategy: kueuev1beta2.BestEffortFIFO,
			ResourceGroups: []kueuev1beta2.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpuResource}, Flavors: []kueuev1beta2.FlavorQuotas{quota("h100", 8), quota("a100", 0)},
			}},
			AdmissionChecksStrategy: &kueuev1beta2.AdmissionChecksStrategy{AdmissionChecks: checks},
			StopPolicy:              ptr.To(kueuev1beta2.None),
		},
	}))
	must(t, w.client.Create(ctx, &kueuev1beta2.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "queue"},
		Spec:       kueuev1beta2.LocalQueueSpec{ClusterQueue: kueuev1beta2.ClusterQueueReference(name), StopPolicy: ptr.To(kueuev1beta2.None)},
	}))
	return n
}

func (n *tenant) grant(t *testing.T, name string, budget int64) {
	t.Helper()
	must(t, n.w.client.Create(t.Context(), &v1alpha1.CreditGrant{
		ObjectMeta: metav1.ObjectMeta{Name: n.name + "-" + name},
		Spec:       v1alpha1.CreditGrantSpec{Account: n.name, Credits: v1alpha1.Credits(fmt.Sprint(budget)), Reason: "budget"},
	}))
}

// submit creates a Job in the queue, suspended as Kueue's webhook would make it: of so many pods of one GPU each, which run for some seconds of at
// most holdSeconds. It does not say which class; its flavor will.
func (n *tenant) submit(t *testing.T, name string, pods int32, seconds int, change ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.name, Name: name, Labels: map[string]string{workload.KueueQueueLabel: "queue"}},
		Spec: batchv1.JobSpec{
			Suspend: ptr.To(true), BackoffLimit: ptr.To(int32(0)), Parallelism: ptr.To(pods), Completions: ptr.To(pods),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodesim.RunSecondsAnnotation: fmt.Sprint(seconds)}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To(int64(holdSeconds)),
					Containers: []corev1.Container{{Name: "main", Image: "none.invalid/train", Resources: corev1.ResourceRequirements{
						Limits:   corev1.ResourceList{gpuResource: resource.MustParse("1")},
						Requests: corev1.ResourceList{gpuResource: resource.MustParse("1")},
					}}},
				},
			},
		},
	}
	for _, each := range change {
		each(job)
	}
	must(t, n.w.client.Create(t.Context(), job))
	return job
}

func ofClass(class string) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.Template.Labels = map[string]string{v1alpha1.ClassLabel: class} }
}

func (n *tenant) account(ctx context.Context) ledger.Account {
	row, _, err := n.w.ledger.Account(ctx, n.name)
	if err != nil {
		return ledger.Account{}
	}
	return row
}

func (n *tenant) reservation(ctx context.Context, job *batchv1.Job) (ledger.Reservation, bool) {
	row, found, err := n.w.ledger.Reservation(ctx, string(job.UID))
	return row, err == nil && found
}

// workloadOf is the Job's Workload, the newest if it has several; nil if it has none.
func (n *tenant) workloadOf(ctx context.Context, job *batchv1.Job) *kueuev1beta2.Workload {
	var list kueuev1beta2.WorkloadList
	if err := n.w.client.List(ctx, &list, client.InNamespace(n.name)); err != nil {
		return nil
	}
	var newest *kueuev1beta2.Workload
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner != nil && owner.UID == job.UID && (newest == nil || newest.CreationTimestamp.Before(&list.Items[i].CreationTimestamp)) {
			newest = &list.Items[i]
		}
	}
	return newest
}

// check is what gpubank says of a Workload.
func check(w *kueuev1beta2.Workload) kueuev1beta2.AdmissionCheckState {
	if w != nil {
		for _, each := range w.Status.AdmissionChecks {
			if each.Name == checkName {
				return each
			}
		}
	}
	return kueuev1beta2.AdmissionCheckState{}
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return apimeta.IsStatusConditionTrue(conditions, kind)
}

// says waits until the Job's check is in a state, with words in its message.
func (n *tenant) says(t *testing.T, job *batchv1.Job, state kueuev1beta2.CheckState, words string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the check of %s is %s: %s", job.Name, state, words), func(ctx context.Context) bool {
		got := check(n.workloadOf(ctx, job))
		return got.State == state && strings.Contains(got.Message, words)
	})
}

// holds waits until so much is set aside for the Job, all told, and for the account.
func (n *tenant) holds(t *testing.T, job *batchv1.Job, amount int64) ledger.Reservation {
	t.Helper()
	var last ledger.Reservation
	eventually(t, fmt.Sprintf("%d credits are set aside for %s", amount, job.Name), func(ctx context.Context) bool {
		row, found := n.reservation(ctx, job)
		last = row
		return found == (found || amount == 0) && row.Remaining() == credits(amount) && n.account(ctx).Reserved == credits(amount)
	})
	return last
}

// running waits until Kueue has started the Job and so many of its pods run.
func (n *tenant) running(t *testing.T, job *batchv1.Job, pods int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods of %s run", pods, job.Name), func(ctx context.Context) bool {
		count := 0
		for _, pod := range n.pods(ctx) {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				count++
			}
		}
		return count == pods
	})
}

func (n *tenant) pods(ctx context.Context) []corev1.Pod {
	var pods corev1.PodList
	if err := n.w.client.List(ctx, &pods, client.InNamespace(n.name)); err != nil {
		return nil
	}
	return pods.Items
}

// settled waits until the Job is complete and its hold is settled.
func (n *tenant) settled(t *testing.T, job *batchv1.Job) ledger.Reservation {
	t.Helper()
	var last ledger.Reservation
	eventually(t, job.Name+" is complete and settled", func(ctx context.Context) bool {
		last, _ = n.reservation(ctx, job)
		current := &batchv1.Job{}
		err := n.w.client.Get(ctx, client.ObjectKeyFromObject(job), current)
		return err == nil && current.Status.CompletionTime != nil && last.State == ledger.Settled
	})
	return last
}

// addsUp fails the test unless the account's statement goes from nothing to its balance by its lines, with charges of exactly the
// attempts' price, and nothing is set aside any more.
func (n *tenant) addsUp(t *testing.T, jobs ...*batchv1.Job) {
	t.Helper()
	ctx := t.Context()
	statement, err := n.w.ledger.Statement(ctx, n.name, time.Unix(0, 0), time.Now().Add(time.Hour))
	must(t, err)
	sum, charged := statement.Opening, ledger.Microcredits(0)
	for _, line := range statement.Lines {
		sum += line.Amount
		if line.Kind == ledger.EntryCharge {
			charged -= line.Amount
		}
	}
	account := n.account(ctx)
	if sum != statement.Closing || statement.Closing != account.Balance || account.Reserved != 0 || account.Held != 0 {
		t.Errorf("statement: opening %d, lines add up to %d, closing %d; account %+v", statement.Opening, sum, statement.Closing, account)
	}
	var attempts ledger.Microcredits
	for _, job := range jobs {
		allocations, err := n.w.ledger.ReservationAllocations(ctx, string(job.UID))
		must(t, err)
		for _, a := range allocations {
			if a.StartedAt.IsZero() {
				continue
			}
			price, err := ledger.Price(a.Rate, a.GPUs, a.EndedAt.Sub(a.StartedAt))
			must(t, err)
			attempts += price
		}
	}
	if charged != attempts || charged == 0 && len(jobs) > 0 {
		t.Errorf("charged are %d, and the attempts of %d Jobs cost %d", charged, len(jobs), attempts)
	}
}

// evict drains the queue, so that Kueue stops what runs; resume lets it go on.
func (n *tenant) evict(t *testing.T)  { t.Helper(); n.stop(t, kueuev1beta2.HoldAndDrain) }
func (n *tenant) resume(t *testing.T) { t.Helper(); n.stop(t, kueuev1beta2.None) }

func (n *tenant) stop(t *testing.T, policy kueuev1beta2.StopPolicy) {
	t.Helper()
	queue := &kueuev1beta2.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	patch := fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, policy)
	must(t, n.w.client.Patch(t.Context(), queue, client.RawPatch("application/merge-patch+json", []byte(patch))))
}
