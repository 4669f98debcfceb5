package workload

import (
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// Terms is the most a workload may use, which is what its hold sets aside.
type Terms struct {
	// GPUSeconds is GPUs of one pod × min(pods at once × the Job's deadline, pods in all × one pod's maximum); 1 or more.
	GPUSeconds int64
	// MaxGPUs is GPUs of one pod × pods at once; 1 or more.
	MaxGPUs int64
	// PodMaxSeconds is the longest that one pod may run, or 0 when only the Job as a whole is bounded.
	PodMaxSeconds int64
}

// TermsError is a workload whose most cannot be told. It is the user's to correct.
type TermsError struct {
	Field   string // such as spec.parallelism
	Message string // what is wrong and what to set
}

func (e *TermsError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Message) }

// JobTerms returns the terms of a Job whose pods each hold demand, which is not zero. defaultMaxRuntime is the account's, 0 for none.
// Retries draw on the same hold, so the backoff limit does not count; neither does suspension. The error, if any, is a *TermsError.
func JobTerms(job *batchv1.Job, demand Demand, defaultMaxRuntime time.Duration) (Terms, error) {
	mustHaveGPUs(demand)
	atOnce, inAll, err := podsOf(&job.Spec)
	if err != nil {
		return Terms{}, err
	}
	runtime, err := JobMaxRuntime(job, defaultMaxRuntime)
	if err != nil {
		return Terms{}, err
	}
	maxGPUs, ok := multiply(demand.GPUs, atOnce)
	if !ok {
		return Terms{}, &TermsError{Field: "spec.parallelism", Message: fmt.Sprintf("%d pods of %d GPUs are more than can be counted; ask for fewer", atOnce, demand.GPUs)}
	}

	var bounds []int64 // pod-seconds
	if deadline := job.Spec.ActiveDeadlineSeconds; deadline != nil {
		if *deadline < 1 {
			return Terms{}, &TermsError{Field: "spec.activeDeadlineSeconds", Message: fmt.Sprintf("%d: the Job could never run; set 1 or more", *deadline)}
		}
		if seconds, ok := multiply(atOnce, *deadline); ok {
			bounds = append(bounds, seconds)
		}
	}
	if runtime.Seconds > 0 {
		if seconds, ok := multiply(inAll, runtime.Seconds); ok {
			bounds = append(bounds, seconds)
		}
	}
	if runtime.Seconds == 0 && job.Spec.ActiveDeadlineSeconds == nil {
		return Terms{}, noBound("spec.activeDeadlineSeconds", "on the Job or its pod template")
	}
	gpuSeconds, ok := leastTimes(demand.GPUs, bounds)
	if !ok {
		return Terms{}, tooMuch("spec.activeDeadlineSeconds")
	}
	if err := checkGrace(&job.Spec.Template.Spec, "spec.template.spec", runtime.Seconds, ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0)); err != nil {
		return Terms{}, err
	}
	return Terms{GPUSeconds: gpuSeconds, MaxGPUs: maxGPUs, PodMaxSeconds: runtime.Seconds}, nil
}

// PodTerms returns the terms of a pod that has a hold of its own, like JobTerms.
func PodTerms(pod *corev1.Pod, demand Demand, defaultMaxRuntime time.Duration) (Terms, error) {
	mustHaveGPUs(demand)
	runtime, err := PodMaxRuntime(pod, defaultMaxRuntime)
	if err != nil {
		return Terms{}, err
	}
	if runtime.Seconds == 0 {
		return Terms{}, noBound("spec.activeDeadlineSeconds", "on the pod")
	}
	gpuSeconds, ok := multiply(demand.GPUs, runtime.Seconds)
	if !ok {
		return Terms{}, tooMuch("spec.activeDeadlineSeconds")
	}
	if err := checkGrace(&pod.Spec, "spec", runtime.Seconds); err != nil {
		return Terms{}, err
	}
	return Terms{GPUSeconds: gpuSeconds, MaxGPUs: demand.GPUs, PodMaxSeconds: runtime.Seconds}, nil
}

// checkGrace refuses a termination grace period that would make the bound one in name only: a pod that has reached its
// deadline is stopped with it, and its containers may ignore the signal until it is over. Kubernetes' own default is
// always let pass, and so is one up to the least bound: what a pod runs beyond its hold is then never more than that.
// bounds are in seconds, those that are 0 do not exist; at least one does.
func checkGrace(spec *corev1.PodSpec, field string, bounds ...int64) error {
	most := int64(math.MaxInt64)
	for _, bound := range bounds {
		if bound > 0 {
			most = min(most, bound)
		}
	}
	most = max(most, corev1.DefaultTerminationGracePeriodSeconds)
	grace := ptr.Deref(spec.TerminationGracePeriodSeconds, 0)
	if grace <= most {
		return nil
	}
	return &TermsError{Field: field + ".terminationGracePeriodSeconds", Message: fmt.Sprintf(
		"%d: the pod could run on for that long after its time is up, and credits are set aside for its own time only; set at most %d, or a longer activeDeadlineSeconds or %s",
		grace, most, v1alpha1.MaxRuntimeAnnotation)}
}

// podsOf returns how many pods a Job runs at once and in all, not counting retries.
func podsOf(spec *batchv1.JobSpec) (atOnce, inAll int64, err error) {
	atOnce = int64(ptr.Deref(spec.Parallelism, 1))
	switch {
	case atOnce == 0:
		return 0, 0, &TermsError{Field: "spec.parallelism", Message: "0 runs nothing and leaves no size to set credits aside for; set 1 or more, and spec.suspend: true to start later"}
	case atOnce < 0:
		return 0, 0, &TermsError{Field: "spec.parallelism", Message: fmt.Sprintf("%d: set 1 or more", atOnce)}
	}
	if spec.Completions == nil {
		// A work queue: atOnce pods share the work, and none is replaced once one has succeeded.
		return atOnce, atOnce, nil
	}
	inAll = int64(*spec.Completions)
	if inAll < 1 {
		return 0, 0, &TermsError{Field: "spec.completions", Message: fmt.Sprintf("%d runs nothing; set 1 or more", inAll)}
	}
	return min(atOnce, inAll), inAll, nil
}

// leastTimes returns gpus × the least bound, or false when no bound fits into int64.
func leastTimes(gpus int64, bounds []int64) (int64, bool) {
	least := int64(math.MaxInt64)
	for _, seconds := range bounds {
		least = min(least, seconds)
	}
	if len(bounds) == 0 {
		return 0, false
	}
	return multiply(gpus, least)
}

// multiply returns a × b for a, b ≥ 0, or false when that is beyond int64.
func multiply(a, b int64) (int64, bool) {
	if a != 0 && b > math.MaxInt64/a {
		return 0, false
	}
	return a * b, true
}

func noBound(field, where string) error {
	return &TermsError{Field: field, Message: fmt.Sprintf(
		"nothing bounds the run time, so no credits can be set aside for it; set activeDeadlineSeconds, or the annotation %s, %s (such as 90m)",
		v1alpha1.MaxRuntimeAnnotation, where)}
}

func tooMuch(field string) error {
	return &TermsError{Field: field, Message: "GPUs × pods × seconds is more than can be counted; ask for less of one of them"}
}

func mustHaveGPUs(demand Demand) {
	if demand.GPUs < 1 {
		panic(fmt.Sprintf("workload: terms of a demand of %d GPUs; a pod without GPUs has none", demand.GPUs))
	}
}
