package kueue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// gatherer reads facts. cached answers from watches; live asks the API server itself.
type gatherer struct {
	cached, live client.Reader
	ledger       Ledger
}

// cluster reads a Job and its Workloads. fresh asks the API server itself for both, since what a watch shows may be older than what was
// answered a moment ago.
func (g gatherer) cluster(ctx context.Context, key Key, fresh bool) (facts, []*kueuev1beta2.Workload, error) {
	var f facts
	ours, err := g.ourChecks(ctx)
	if err != nil {
		return f, nil, err
	}
	workloads, err := g.workloadsOf(ctx, key, fresh)
	if err != nil {
		return f, nil, err
	}
	if f.job, err = g.jobOf(ctx, key, fresh); err != nil {
		return f, nil, err
	}
	for _, w := range workloads {
		a := admissionOf(w, ours)
		if a.reserved && len(a.checks) > 0 {
			if a.podSets, err = g.podSets(ctx, w); err != nil {
				return f, nil, err
			}
		}
		f.workloads = append(f.workloads, a)
	}
	return f, workloads, nil
}

// ourChecks are the names of the admission checks that this controller answers.
func (g gatherer) ourChecks(ctx context.Context) (map[kueuev1beta2.AdmissionCheckReference]bool, error) {
	var list kueuev1beta2.AdmissionCheckList
	if err := g.cached.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list admission checks: %w", err)
	}
	ours := map[kueuev1beta2.AdmissionCheckReference]bool{}
	for i := range list.Items {
		if list.Items[i].Spec.ControllerName == ControllerName {
			ours[kueuev1beta2.AdmissionCheckReference(list.Items[i].Name)] = true
		}
	}
	return ours, nil
}

// workloadsOf are those that name the Job as their controller, in the order of their names.
func (g gatherer) workloadsOf(ctx context.Context, key Key, fresh bool) ([]*kueuev1beta2.Workload, error) {
	var list kueuev1beta2.WorkloadList
	if err := g.cached.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Workloads of namespace %s: %w", key.Namespace, err)
	}
	var found []*kueuev1beta2.Workload
	for i := range list.Items {
		w := &list.Items[i]
		if owner, ok := jobOwner(w); !ok || owner.UID != key.UID {
			continue
		}
		w = w.DeepCopy() // the list's own is the cache's
		if fresh {
			uid := w.UID
			err := g.live.Get(ctx, client.ObjectKeyFromObject(w), w)
			if apierrors.IsNotFound(err) || err == nil && w.UID != uid {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read Workload %s/%s: %w", w.Namespace, w.Name, err)
			}
		}
		found = append(found, w)
	}
	slices.SortFunc(found, func(a, b *kueuev1beta2.Workload) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// jobOf returns the Job, or nil when the API server has just said that no Job of the UID is there.
func (g gatherer) jobOf(ctx context.Context, key Key, fresh bool) (*batchv1.Job, error) {
	readers := []client.Reader{g.cached, g.live}
	if fresh {
		readers = readers[1:]
	}
	for _, reader := range readers {
		job := &batchv1.Job{}
		err := reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, job)
		if err == nil && job.UID == key.UID {
			return job, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("look for Job %s/%s: %w", key.Namespace, key.Name, err)
		}
	}
	return nil, nil
}

// jobOwner is the batch/v1 Job that a Workload says controls it.
func jobOwner(w *kueuev1beta2.Workload) (metav1.OwnerReference, bool) {
	owner := metav1.GetControllerOf(w)
	if owner == nil || owner.Kind != "Job" || owner.APIVersion != batchv1.SchemeGroupVersion.String() {
		return metav1.OwnerReference{}, false
	}
	return *owner, true
}

func admissionOf(w *kueuev1beta2.Workload, ours map[kueuev1beta2.AdmissionCheckReference]bool) admission {
	a := admission{
		name: w.Name, uid: string(w.UID),
		evicted:  apimeta.IsStatusConditionTrue(w.Status.Conditions, kueuev1beta2.WorkloadEvicted),
		finished: apimeta.IsStatusConditionTrue(w.Status.Conditions, kueuev1beta2.WorkloadFinished),
	}
	if reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueuev1beta2.WorkloadQuotaReserved); reserved != nil {
		a.reserved = reserved.Status == metav1.ConditionTrue
		a.reservedSince = reserved.LastTransitionTime.UTC()
	}
	if stats := w.Status.SchedulingStats; stats != nil {
		for _, eviction := range stats.Evictions {
			a.evictions += int64(eviction.Count)
		}
	}
	for _, c := range w.Status.AdmissionChecks {
		if ours[c.Name] {
			a.checks = append(a.checks, check{name: c.Name, state: c.State, message: c.Message})
		}
	}
	return a
}

// podSets reads what quota was reserved for: how many pods, and on what the flavors and other checks will place them.
func (g gatherer) podSets(ctx context.Context, w *kueuev1beta2.Workload) ([]podSet, error) {
	if w.Status.Admission == nil {
		return nil, nil
	}
	var sets []podSet
	for _, assigned := range w.Status.Admission.PodSetAssignments {
		set := podSet{count: int64(ptr.Deref(assigned.Count, countOf(w, assigned.Name)))}
		for _, name := range assigned.Flavors {
			flavor := &kueuev1beta2.ResourceFlavor{}
			if err := g.cached.Get(ctx, types.NamespacedName{Name: string(name)}, flavor); err != nil {
				return nil, fmt.Errorf("read ResourceFlavor %s of Workload %s/%s: %w", name, w.Namespace, w.Name, err)
			}
			set.nodeSelector = merged(set.nodeSelector, flavor.Spec.NodeLabels)
		}
		for _, c := range w.Status.AdmissionChecks {
			for _, update := range c.PodSetUpdates {
				if update.Name == assigned.Name {
					set.nodeSelector = merged(set.nodeSelector, update.NodeSelector)
					set.labels, set.annotations = merged(set.labels, update.Labels), merged(set.annotations, update.Annotations)
				}
			}
		}
		sets = append(sets, set)
	}
	return sets, nil
}

func countOf(w *kueuev1beta2.Workload, name kueuev1beta2.PodSetReference) int32 {
	for _, set := range w.Spec.PodSets {
		if set.Name == name {
			return set.Count
		}
	}
	return 0
}

// money completes the facts by who pays, and by what the ledger has for the Job.
func (g gatherer) money(ctx context.Context, key Key, f *facts) error {
	var classes v1alpha1.GPUClassList
	if err := g.cached.List(ctx, &classes); err != nil {
		return fmt.Errorf("list GPU classes: %w", err)
	}
	f.classes = classes.Items
	if err := g.enrolment(ctx, key.Namespace, f); err != nil {
		return err
	}
	reservation, known, err := g.ledger.Reservation(ctx, string(key.UID))
	if err != nil {
		return fmt.Errorf("read the hold of Job %s/%s: %w", key.Namespace, key.Name, err)
	}
	payer := f.account
	if known {
		f.reservation, payer = &reservation, reservation.Account
		allocations, err := g.ledger.ReservationAllocations(ctx, string(key.UID))
		if err != nil {
			return fmt.Errorf("read the allocations of Job %s/%s: %w", key.Namespace, key.Name, err)
		}
		f.inUse = slices.ContainsFunc(allocations, ledger.Allocation.Open)
	}
	if payer == "" {
		return nil
	}
	account, _, err := g.ledger.Account(ctx, payer)
	if err != nil {
		return fmt.Errorf("read account %s: %w", payer, err)
	}
	f.holdAt = account.Policy.HoldAt
	return nil
}

func (g gatherer) enrolment(ctx context.Context, namespace string, f *facts) error {
	object := &corev1.Namespace{}
	if err := g.cached.Get(ctx, types.NamespacedName{Name: namespace}, object); err != nil {
		return fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	if f.claimed = object.Labels[v1alpha1.AccountLabel]; f.claimed == "" {
		return nil
	}
	account := &v1alpha1.CreditAccount{}
	err := g.cached.Get(ctx, types.NamespacedName{Name: f.claimed}, account)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read account %s of namespace %s: %w", f.claimed, namespace, err)
	}
	if err == nil && account.DeletionTimestamp == nil && slices.Contains(account.Spec.Namespaces, namespace) {
		f.account, f.defaultMaxRuntime = f.claimed, workload.DefaultMaxRuntime(account)
	}
	return nil
}
