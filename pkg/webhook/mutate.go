package webhook

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Mutation is what a GPU workload still needs. The patch names single fields, because writing back a decoded object would
// drop fields that a newer API server knows and this build does not.
type Mutation struct {
	Patch    []jsonpatch.JsonPatchOperation
	Warnings []string
}

// MutateJob returns what the Job's template and the Job itself still need. A Job that validation will refuse anyway may get less.
func MutateJob(facts Facts, job *batchv1.Job) Mutation {
	template := &job.Spec.Template
	if !wantsMutation(facts, &template.Spec, template.Labels) {
		return Mutation{}
	}
	var m Mutation
	m.label("/metadata", &job.ObjectMeta, facts.AccountName)
	m.label("/spec/template/metadata", &template.ObjectMeta, facts.AccountName)
	m.scheduler("/spec/template/spec", &template.Spec)
	if bound, err := workload.JobMaxRuntime(job, workload.DefaultMaxRuntime(facts.Account)); err == nil {
		if bound.Seconds == 0 && job.Spec.ActiveDeadlineSeconds != nil && facts.holdsAtPlacement() {
			// Each pod needs a bound of its own to be held for, and none outlives its Job.
			bound.Seconds = *job.Spec.ActiveDeadlineSeconds
		}
		m.bound("/spec/template", &template.ObjectMeta, bound, facts)
	}
	return m
}

// MutatePod is MutateJob for a pod.
func MutatePod(facts Facts, pod *corev1.Pod) Mutation {
	if !wantsMutation(facts, &pod.Spec, pod.Labels) {
		return Mutation{}
	}
	var m Mutation
	m.label("/metadata", &pod.ObjectMeta, facts.AccountName)
	m.finalizer("/metadata", &pod.ObjectMeta)
	m.scheduler("/spec", &pod.Spec)
	if bound, err := workload.PodMaxRuntime(pod, workload.DefaultMaxRuntime(facts.Account)); err == nil {
		m.bound("", &pod.ObjectMeta, bound, facts)
	}
	return m
}

func wantsMutation(facts Facts, spec *corev1.PodSpec, labels map[string]string) bool {
	if !facts.Enrolled {
		return false
	}
	demand, err := workload.DemandOf(spec, labels, facts.Classes)
	return err == nil && !demand.IsZero()
}

func (m *Mutation) add(path string, value any) {
	m.Patch = append(m.Patch, jsonpatch.NewOperation("add", path, value))
}

// label sets the account label where there is none. Another account's stays, to be refused by its name.
func (m *Mutation) label(path string, meta *metav1.ObjectMeta, account string) {
	if _, set := meta.Labels[v1alpha1.AccountLabel]; set {
		return
	}
	if meta.Labels == nil {
		m.add(path+"/labels", map[string]string{v1alpha1.AccountLabel: account})
		return
	}
	m.add(path+"/labels/"+strings.ReplaceAll(v1alpha1.AccountLabel, "/", "~1"), account)
}

// finalizer keeps a finished pod until its held time is settled.
func (m *Mutation) finalizer(path string, meta *metav1.ObjectMeta) {
	switch {
	case slices.Contains(meta.Finalizers, v1alpha1.MeteringFinalizer):
	case meta.Finalizers == nil:
		m.add(path+"/finalizers", []string{v1alpha1.MeteringFinalizer})
	default:
		m.add(path+"/finalizers/-", v1alpha1.MeteringFinalizer)
	}
}

// scheduler replaces the default. A name that somebody chose stays, to be refused.
func (m *Mutation) scheduler(path string, spec *corev1.PodSpec) {
	if spec.SchedulerName == "" || spec.SchedulerName == corev1.DefaultSchedulerName {
		m.add(path+"/schedulerName", v1alpha1.SchedulerName)
	}
}

// bound writes what the hold is computed from where it holds: into activeDeadlineSeconds, for the kubelet to enforce, or,
// where the pod may outlast its hold, into its annotation, which only prices it.
func (m *Mutation) bound(path string, meta *metav1.ObjectMeta, bound workload.MaxRuntime, facts Facts) {
	if bound.Enforced || bound.Seconds <= 0 {
		return
	}
	what := "each pod is stopped after %ds"
	if facts.mayOutlastHold() {
		if _, set := meta.Annotations[v1alpha1.MaxRuntimeAnnotation]; set {
			return
		}
		what = "credits are set aside for %ds of each pod at first"
		m.annotate(path+"/metadata", meta, v1alpha1.MaxRuntimeAnnotation, strconv.FormatInt(bound.Seconds, 10))
	} else {
		m.add(path+"/spec/activeDeadlineSeconds", bound.Seconds)
	}
	if bound.ByDefault {
		m.Warnings = append(m.Warnings, fmt.Sprintf(
			"gpubank: "+what+", the default of account %s; set activeDeadlineSeconds or the annotation %s for another limit",
			bound.Seconds, facts.AccountName, v1alpha1.MaxRuntimeAnnotation))
	}
}

func (m *Mutation) annotate(path string, meta *metav1.ObjectMeta, name, value string) {
	if meta.Annotations == nil {
		m.add(path+"/annotations", map[string]string{name: value})
		return
	}
	m.add(path+"/annotations/"+strings.ReplaceAll(name, "/", "~1"), value)
}
