package workload

import (
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// MaxRuntimeLimit is the longest gpubank.io/max-runtime and the longest account default: a year of 365 days.
const MaxRuntimeLimit = 8760 * time.Hour

// MaxRuntime is the longest that one pod may run, and whether the kubelet already enforces it.
type MaxRuntime struct {
	// Seconds is 1 or more, or 0 when nothing bounds the pod.
	Seconds int64
	// Enforced: it is the pod's own activeDeadlineSeconds. Otherwise it comes from the annotation or the account's
	// default and bounds nothing until it is written there.
	Enforced bool
	// ByDefault: nobody asked for it; it is the account's default.
	ByDefault bool
}

// JobMaxRuntime returns the bound of one of the Job's pods: the template's activeDeadlineSeconds, else the annotation
// on the template, else the one on the Job, else the account's default.
func JobMaxRuntime(job *batchv1.Job, defaultMaxRuntime time.Duration) (MaxRuntime, error) {
	template := &job.Spec.Template
	return maxRuntime(template.Spec.ActiveDeadlineSeconds, "spec.template.spec.activeDeadlineSeconds", []annotated{
		{template.Annotations, "spec.template.metadata"},
		{job.Annotations, "metadata"},
	}, defaultMaxRuntime)
}

// PodMaxRuntime is JobMaxRuntime for a pod.
func PodMaxRuntime(pod *corev1.Pod, defaultMaxRuntime time.Duration) (MaxRuntime, error) {
	return maxRuntime(pod.Spec.ActiveDeadlineSeconds, "spec.activeDeadlineSeconds",
		[]annotated{{pod.Annotations, "metadata"}}, defaultMaxRuntime)
}

// DefaultMaxRuntime is the account's default bound, 0 for none.
func DefaultMaxRuntime(account *v1alpha1.CreditAccount) time.Duration {
	if account == nil || account.Spec.Policy.DefaultMaxRuntime == nil {
		return 0
	}
	return account.Spec.Policy.DefaultMaxRuntime.Duration
}

type annotated struct {
	annotations map[string]string
	field       string
}

func maxRuntime(deadline *int64, deadlineField string, sources []annotated, byDefault time.Duration) (MaxRuntime, error) {
	// A bad annotation is refused even where it would not be used: whoever wrote it meant something by it.
	var annotation int64
	for _, source := range sources {
		text, set := source.annotations[v1alpha1.MaxRuntimeAnnotation]
		if !set {
			continue
		}
		seconds, err := ParseMaxRuntime(text)
		if err != nil {
			return MaxRuntime{}, &TermsError{
				Field:   fmt.Sprintf("%s.annotations[%s]", source.field, v1alpha1.MaxRuntimeAnnotation),
				Message: err.Error(),
			}
		}
		if annotation == 0 {
			annotation = seconds
		}
	}
	switch {
	case deadline != nil && *deadline < 1:
		return MaxRuntime{}, &TermsError{Field: deadlineField, Message: fmt.Sprintf("%d: set 1 or more seconds", *deadline)}
	case deadline != nil:
		return MaxRuntime{Seconds: *deadline, Enforced: true}, nil
	case annotation > 0:
		return MaxRuntime{Seconds: annotation}, nil
	case byDefault > 0:
		return MaxRuntime{Seconds: wholeSeconds(byDefault), ByDefault: true}, nil
	}
	return MaxRuntime{}, nil
}

// ParseMaxRuntime reads a duration such as 90m or 1h30m, or a whole number of seconds, from 1s to MaxRuntimeLimit. A fraction of
// a second is rounded up, so that no hold is smaller than what was asked for.
func ParseMaxRuntime(text string) (seconds int64, err error) {
	duration, err := time.ParseDuration(text)
	if whole, intErr := strconv.ParseInt(text, 10, 64); intErr == nil {
		if whole < 1 || whole > int64(MaxRuntimeLimit/time.Second) {
			return 0, fmt.Errorf("%q is outside 1s to %s", text, limitText)
		}
		return whole, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%q is neither a duration such as 90m or 1h30m nor a whole number of seconds; set one from 1s to %s", text, limitText)
	}
	if duration < time.Second || duration > MaxRuntimeLimit {
		return 0, fmt.Errorf("%q is outside 1s to %s", text, limitText)
	}
	return wholeSeconds(duration), nil
}

const limitText = "8760h"

// wholeSeconds rounds up, in the ledger's favour.
func wholeSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
