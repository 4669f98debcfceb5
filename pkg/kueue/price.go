package kueue

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// wanted is the hold of the Job as it was admitted, by the rule of docs/designs/hold-size.md; free when its pods ask for no GPU. The error,
// if any, is the user's or the operator's to correct: a *workload.DemandError or a *workload.TermsError.
func wanted(f facts, set podSet) (hold ledger.PlaceHold, free bool, err error) {
	job := admitted(f.job, set)
	demand, err := workload.DemandOf(&job.Spec.Template.Spec, job.Spec.Template.Labels, f.classes)
	if err != nil || demand.IsZero() {
		return ledger.PlaceHold{}, err == nil, err
	}
	hold, err = workload.JobHold(job, f.account, demand, f.defaultMaxRuntime)
	hold.Key = "" // the command that carries it has one
	return hold, false, err
}

// admitted is the Job as Kueue will start it: with the template of its pod set, with as many pods at once as were admitted, and
// without those that have succeeded. A pod set can only make it smaller: its size is the Job's own word, whoever wrote the Workload.
func admitted(job *batchv1.Job, set podSet) *batchv1.Job {
	sized := job.DeepCopy()
	sized.Spec.Template = set.template(job)
	if set.count > 0 && set.count < int64(ptr.Deref(job.Spec.Parallelism, 1)) {
		sized.Spec.Parallelism = ptr.To(int32(set.count))
		if job.Annotations[workload.KueueCompletionsAnnotation] == "true" {
			sized.Spec.Completions = sized.Spec.Parallelism
		}
	}
	if completions := sized.Spec.Completions; completions != nil && job.Status.Succeeded > 0 {
		sized.Spec.Completions = ptr.To(max(1, *completions-job.Status.Succeeded))
	}
	return sized
}

// most is what covers all of the holds: an elastic Job has one slice that runs and one that is to replace it, and one hold.
func most(holds []ledger.PlaceHold) ledger.PlaceHold {
	all := holds[0]
	for _, hold := range holds[1:] {
		all.MaxGPUs = max(all.MaxGPUs, hold.MaxGPUs)
		all.GPUSeconds = max(all.GPUSeconds, hold.GPUSeconds)
	}
	return all
}
