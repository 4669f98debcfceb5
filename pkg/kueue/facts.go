package kueue

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// facts is everything that decide may know about one Job and its Workloads.
type facts struct {
	now time.Time
	// job is nil when the API server has confirmed that no Job of the UID exists.
	job *batchv1.Job
	// workloads are those that name the Job as their controller, in the order of their names.
	workloads []admission

	// account is who pays for the namespace: its label and the account's list agree. Empty when nobody does; claimed is then the account
	// that the label names, if any.
	account, claimed string
	// defaultMaxRuntime is the account's, 0 for none.
	defaultMaxRuntime time.Duration
	classes           []v1alpha1.GPUClass
	// holdAt is the ledger's own word on the account's policy.
	holdAt ledger.HoldMoment
	// reservation is the Job's hold, nil if it has none.
	reservation *ledger.Reservation
	// inUse: an allocation under it is open.
	inUse bool
}

// admission is what one Workload says of its own admission.
type admission struct {
	name, uid string
	// reserved: quota is reserved, since the given time. evicted: it is to lose it. finished: over.
	reserved, evicted, finished bool
	reservedSince               time.Time
	// evictions counts them; with reservedSince it tells one attempt from the next.
	evictions int64
	// checks are ours among its admission checks.
	checks []check
	// podSets are the pod sets as admitted; nil without quota.
	podSets []podSet
}

type check struct {
	name  kueuev1beta2.AdmissionCheckReference
	state kueuev1beta2.CheckState
	// message is what it says now.
	message string
}

// podSet is what admission makes of a pod set.
type podSet struct {
	count int64
	// nodeSelector is what the flavors and other checks add to the template's; labels and annotations are what other checks add.
	nodeSelector, labels, annotations map[string]string
}

// active reports whether the Workload has quota and is to keep it.
func (a admission) active() bool { return a.reserved && !a.evicted && !a.finished }

// allReady reports whether all of our checks of a Workload are Ready.
func (a admission) allReady() bool {
	return !slices.ContainsFunc(a.checks, func(c check) bool { return c.state != kueuev1beta2.CheckStateReady })
}

// anyReady reports whether any of our checks of a Workload is Ready.
func (a admission) anyReady() bool {
	return slices.ContainsFunc(a.checks, func(c check) bool { return c.state == kueuev1beta2.CheckStateReady })
}

// ours reports whether any of the Workloads has a check of ours.
func (f facts) ours() bool {
	return slices.ContainsFunc(f.workloads, func(a admission) bool { return len(a.checks) > 0 })
}

// template is the Job's own, as Kueue starts it with a pod set.
func (p podSet) template(job *batchv1.Job) corev1.PodTemplateSpec {
	template := *job.Spec.Template.DeepCopy()
	template.Labels = merged(template.Labels, p.labels)
	template.Annotations = merged(template.Annotations, p.annotations)
	template.Spec.NodeSelector = merged(template.Spec.NodeSelector, p.nodeSelector)
	return template
}

// merged adds what is missing; where both have a key, Kueue refuses to start the Job, so which one is taken does not matter.
func merged(own, more map[string]string) map[string]string {
	all := make(map[string]string, len(own)+len(more))
	for _, each := range []map[string]string{more, own} {
		for key, value := range each {
			all[key] = value
		}
	}
	return all
}
