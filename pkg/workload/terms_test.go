package workload

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

type shape func(*batchv1.Job)

func pods(parallelism, completions int32) shape {
	return func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.Completions = ptr.To(parallelism), ptr.To(completions)
	}
}
func parallelism(n int32) shape { return func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(n) } }
func completions(n int32) shape { return func(j *batchv1.Job) { j.Spec.Completions = ptr.To(n) } }
func jobDeadline(s int64) shape {
	return func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To(s) }
}
func podDeadline(s int64) shape {
	return func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To(s) }
}
func grace(s int64) shape {
	return func(j *batchv1.Job) { j.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To(s) }
}
func onTemplate(text string) shape {
	return func(j *batchv1.Job) {
		j.Spec.Template.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: text}
	}
}
func onJob(text string) shape {
	return func(j *batchv1.Job) { j.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: text} }
}

func TestJobTerms(t *testing.T) {
	for name, c := range map[string]struct {
		shapes    []shape
		gpus      int64 // of one pod; 4 if zero
		byDefault time.Duration
		want      Terms
		field     string
		says      string
	}{
		"the worked example":                 {shapes: []shape{podDeadline(600)}, want: Terms{2400, 4, 600}},
		"by the Job's deadline":              {shapes: []shape{jobDeadline(600)}, want: Terms{2400, 4, 0}},
		"by the annotation on the template":  {shapes: []shape{onTemplate("10m")}, want: Terms{2400, 4, 600}},
		"by the annotation on the Job":       {shapes: []shape{onJob("600")}, want: Terms{2400, 4, 600}},
		"the template's annotation is first": {shapes: []shape{onTemplate("10m"), onJob("1h")}, want: Terms{2400, 4, 600}},
		"the pod's deadline is before both":  {shapes: []shape{podDeadline(60), onTemplate("10m")}, want: Terms{240, 4, 60}},
		"by the account's default":           {byDefault: 10 * time.Minute, want: Terms{2400, 4, 600}},
		"the annotation is before a default": {shapes: []shape{onJob("1m")}, byDefault: time.Hour, want: Terms{240, 4, 60}},
		"a default's fraction is rounded up": {byDefault: 1500 * time.Millisecond, want: Terms{8, 4, 2}},
		"completions one after another":      {shapes: []shape{pods(1, 5), podDeadline(100)}, want: Terms{2000, 4, 100}},
		"the Job's deadline is less":         {shapes: []shape{pods(2, 10), podDeadline(100), jobDeadline(300)}, want: Terms{2400, 8, 100}},
		"the pods' maximum is less":          {shapes: []shape{pods(2, 10), podDeadline(100), jobDeadline(501)}, want: Terms{4000, 8, 100}},
		"parallelism above completions":      {shapes: []shape{pods(9, 3), podDeadline(100)}, want: Terms{1200, 12, 100}},
		"parallelism absent":                 {shapes: []shape{completions(3), jobDeadline(100)}, want: Terms{400, 4, 0}},
		"a work queue":                       {shapes: []shape{parallelism(3), podDeadline(100)}, want: Terms{1200, 12, 100}},
		"suspended":                          {shapes: []shape{podDeadline(600), func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }}, want: Terms{2400, 4, 600}},
		"from a CronJob": {shapes: []shape{podDeadline(600), func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", Controller: ptr.To(true)}}
		}}, want: Terms{2400, 4, 600}},
		"retries draw on the same hold":        {shapes: []shape{podDeadline(600), func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To(int32(99)) }}, want: Terms{2400, 4, 600}},
		"one bound overflows, the other holds": {shapes: []shape{pods(2, math.MaxInt32), podDeadline(math.MaxInt64), jobDeadline(10)}, want: Terms{80, 8, math.MaxInt64}},

		"Kubernetes' own grace period":      {shapes: []shape{podDeadline(5), grace(30)}, want: Terms{20, 4, 5}},
		"a grace period for a checkpoint":   {shapes: []shape{podDeadline(3600), grace(600)}, want: Terms{14400, 4, 3600}},
		"a grace period within the default": {shapes: []shape{grace(600)}, byDefault: time.Hour, want: Terms{14400, 4, 3600}},
		"a grace period past the pod's time": {shapes: []shape{podDeadline(60), jobDeadline(7200), grace(61)},
			field: "spec.template.spec.terminationGracePeriodSeconds", says: "at most 60"},
		"a grace period past the Job's": {shapes: []shape{jobDeadline(5), grace(math.MaxInt64)},
			field: "spec.template.spec.terminationGracePeriodSeconds", says: "at most 30"},

		"parallelism zero":         {shapes: []shape{parallelism(0), podDeadline(600)}, field: "spec.parallelism", says: "suspend: true"},
		"parallelism negative":     {shapes: []shape{parallelism(-1), podDeadline(600)}, field: "spec.parallelism", says: "1 or more"},
		"completions zero":         {shapes: []shape{completions(0), podDeadline(600)}, field: "spec.completions", says: "1 or more"},
		"nothing bounds it":        {field: "spec.activeDeadlineSeconds", says: v1alpha1.MaxRuntimeAnnotation},
		"a Job deadline of zero":   {shapes: []shape{jobDeadline(0)}, field: "spec.activeDeadlineSeconds", says: "1 or more"},
		"a pod deadline of zero":   {shapes: []shape{podDeadline(0)}, field: "spec.template.spec.activeDeadlineSeconds", says: "1 or more"},
		"a negative pod deadline":  {shapes: []shape{podDeadline(-5)}, field: "spec.template.spec.activeDeadlineSeconds", says: "1 or more"},
		"a bad annotation":         {shapes: []shape{onTemplate("ten minutes")}, field: "spec.template.metadata.annotations[gpubank.io/max-runtime]", says: "90m"},
		"a bad annotation, unused": {shapes: []shape{podDeadline(600), onJob("soon")}, field: "metadata.annotations[gpubank.io/max-runtime]", says: "90m"},
		"GPUs × pods overflow":     {gpus: math.MaxInt64 / 2, shapes: []shape{parallelism(3), podDeadline(1)}, field: "spec.parallelism", says: "fewer"},
		"GPUs × seconds overflow":  {gpus: math.MaxInt64 / 2, shapes: []shape{podDeadline(3)}, field: "spec.activeDeadlineSeconds", says: "less"},
		"every bound overflows":    {shapes: []shape{completions(math.MaxInt32), podDeadline(math.MaxInt64)}, field: "spec.activeDeadlineSeconds", says: "less"},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{}
			for _, apply := range c.shapes {
				apply(job)
			}
			demand := Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 4}
			if c.gpus > 0 {
				demand.GPUs = c.gpus
			}
			got, err := JobTerms(job, demand, c.byDefault)
			if c.field == "" {
				if err != nil || got != c.want {
					t.Fatalf("JobTerms = %+v, %v; want %+v", got, err, c.want)
				}
				return
			}
			var termsError *TermsError
			if !errors.As(err, &termsError) || termsError.Field != c.field || !strings.Contains(termsError.Message, c.says) {
				t.Fatalf("JobTerms = %+v, %v; want field %s saying %q", got, err, c.field, c.says)
			}
		})
	}
}

func TestPodTerms(t *testing.T) {
	demand := Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 2}
	annotated := func(text string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.MaxRuntimeAnnotation: text}}}
	}
	for name, c := range map[string]struct {
		pod       *corev1.Pod
		byDefault time.Duration
		want      Terms
		says      string
	}{
		"deadline":   {pod: &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To(int64(30))}}, want: Terms{60, 2, 30}},
		"annotation": {pod: annotated("1m30s"), want: Terms{180, 2, 90}},
		"default":    {pod: &corev1.Pod{}, byDefault: time.Minute, want: Terms{120, 2, 60}},
		"no bound":   {pod: &corev1.Pod{}, says: "nothing bounds"},
		"bad":        {pod: annotated("-1m"), says: "outside 1s to 8760h"},
		"a year's grace": {pod: &corev1.Pod{Spec: corev1.PodSpec{
			ActiveDeadlineSeconds: ptr.To(int64(30)), TerminationGracePeriodSeconds: ptr.To(int64(31536000))}}, says: "could run on"},
		"enormous": {pod: &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To(int64(math.MaxInt64))}}, says: "more than can be counted"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PodTerms(c.pod, demand, c.byDefault)
			if c.says == "" && (err != nil || got != c.want) {
				t.Fatalf("PodTerms = %+v, %v; want %+v", got, err, c.want)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("PodTerms = %+v, %v; want an error saying %q", got, err, c.says)
			}
		})
	}
}

func TestParseMaxRuntime(t *testing.T) {
	for text, want := range map[string]int64{
		"90m": 5400, "1h30m": 5400, "600": 600, "1": 1, "1s": 1, "1500ms": 2, "8760h": 31536000, "31536000": 31536000, "+5s": 5,
		"": 0, "0": 0, "0s": 0, "-5": 0, "-5m": 0, "1ns": 0, "999ms": 0, "8760h1s": 0, "31536001": 0, "99999999999999999999": 0,
		"9999999999h": 0, "ten": 0, "5 m": 0, "1e3": 0, "1d": 0, "NaN": 0, "Inf": 0, "0x10": 0, "600.0": 0,
	} {
		got, err := ParseMaxRuntime(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("ParseMaxRuntime(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestHolds(t *testing.T) {
	demand := Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 4}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "u1", Namespace: "ml", Name: "train"}}
	podDeadline(600)(job)
	hold, err := JobHold(job, "team-a", demand, 0)
	if err != nil || hold != (ledger.PlaceHold{
		Key: "hold:u1", UID: "u1", Account: "team-a", Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "ml", Name: "train"},
		Class: "h100", MaxGPUs: 4, GPUSeconds: 2400}) {
		t.Errorf("JobHold = %+v, %v", hold, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u2", Namespace: "ml", Name: "shell"}}
	if _, err := PodHold(pod, "team-a", demand, 0); err == nil {
		t.Error("PodHold of an unbounded pod succeeded")
	}
	hold, err = PodHold(pod, "team-a", demand, time.Minute)
	if err != nil || hold.UID != "u2" || hold.Workload.Kind != "Pod" || hold.GPUSeconds != 240 {
		t.Errorf("PodHold = %+v, %v", hold, err)
	}
}

func TestHoldUID(t *testing.T) {
	owned := func(apiVersion, kind string, controller bool) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", UID: "other"},
			{APIVersion: apiVersion, Kind: kind, UID: "owner", Controller: ptr.To(controller)},
		}}}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"bare":               {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}, "pod"},
		"of a Job":           {owned("batch/v1", "Job", true), "owner"},
		"not its controller": {owned("batch/v1", "Job", false), "pod"},
		"of a ReplicaSet":    {owned("apps/v1", "ReplicaSet", true), "pod"},
		"of another Job":     {owned("batch.volcano.sh/v1alpha1", "Job", true), "pod"},
	} {
		if got := HoldUID(c.pod); got != c.want {
			t.Errorf("%s: HoldUID = %q, want %q", name, got, c.want)
		}
	}
}
