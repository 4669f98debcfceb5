package checkpointpreemption

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func job(edit func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "train", UID: "job-1", Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](6)},
	}
	edit(j)
	return j
}

func onDisruption(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionCount, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{}},
		{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}},
	}}
}

// Which pods stop with one of them.
func TestGroup(t *testing.T) {
	ofJob := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-1", Controller: ptr.To(true)}}
	}
	for name, c := range map[string]struct {
		job  *batchv1.Job
		pod  func(*corev1.Pod)
		want string
	}{
		"a bare pod":                       {nil, func(*corev1.Pod) {}, ""},
		"a Job that goes on without one":   {job(func(*batchv1.Job) {}), ofJob, ""},
		"a gang":                           {job(func(j *batchv1.Job) { j.Annotations["gpubank.io/gang"] = "true" }), ofJob, "job:job-1"},
		"a Job that may not fail":          {job(func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }), ofJob, "job:job-1"},
		"a Job that may not fail any more": {job(func(j *batchv1.Job) { j.Status.Failed = 6 }), ofJob, "job:job-1"},
		"a Job that may fail once more":    {job(func(j *batchv1.Job) { j.Status.Failed = 5 }), ofJob, ""},
		"disruptions do not count": {job(func(j *batchv1.Job) {
			j.Status.Failed, j.Spec.PodFailurePolicy = 6, onDisruption(batchv1.PodFailurePolicyActionIgnore)
		}), ofJob, ""},
		"disruptions count": {job(func(j *batchv1.Job) {
			j.Status.Failed, j.Spec.PodFailurePolicy = 6, onDisruption(batchv1.PodFailurePolicyActionCount)
		}), ofJob, "job:job-1"},
		"each index fails by itself":         {job(func(j *batchv1.Job) { j.Status.Failed, j.Spec.BackoffLimitPerIndex = 6, ptr.To[int32](0) }), ofJob, ""},
		"another Job of that name":           {job(func(j *batchv1.Job) { j.UID, j.Annotations["gpubank.io/gang"] = "job-2", "true" }), ofJob, ""},
		"a PodGroup of scheduler-plugins":    {nil, func(p *corev1.Pod) { p.Labels["scheduling.x-k8s.io/pod-group"] = "g" }, "pod-group:a/g"},
		"a PodGroup of Kubernetes' own kind": {nil, func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")} }, "podgroup:a/g"},
	} {
		t.Run(name, func(t *testing.T) {
			indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
			if c.job != nil {
				if err := indexer.Add(c.job); err != nil {
					t.Fatal(err)
				}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Labels: map[string]string{}}}
			c.pod(pod)
			if got := (jobs{batchlisters.NewJobLister(indexer)}).group(pod); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A victim whose stop cannot be confirmed is not waited for forever, and one that was never asked to stop is not overdue.
func TestFateOf(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("p")}}
		edit(p)
		return p
	}
	stopping := func(at time.Time) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(at)) })
	}
	waits := pod(func(*corev1.Pod) {})
	for name, c := range map[string]struct {
		preemptor *corev1.Pod
		victims   []*corev1.Pod
		want      fate
	}{
		"gone":                     {nil, nil, over},
		"placed":                   {pod(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), nil, over},
		"being deleted":            {stopping(now), nil, over},
		"within grace":             {waits, []*corev1.Pod{stopping(now.Add(time.Minute))}, stillRunning},
		"within patience":          {waits, []*corev1.Pod{stopping(now.Add(-time.Minute))}, stillRunning},
		"beyond patience":          {waits, []*corev1.Pod{nil, stopping(now.Add(-3 * time.Minute))}, overdue},
		"not yet deleted":          {waits, []*corev1.Pod{pod(func(*corev1.Pod) {})}, stillRunning},
		"all of them have stopped": {waits, []*corev1.Pod{nil, nil}, stillRunning},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fateOf(c.preemptor, c.victims, 2*time.Minute, now); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// Who was stopped lately is known for an hour.
func TestRecently(t *testing.T) {
	r := recently{stopped: map[string]stop{}}
	r.add("job-1", "first", 1000)
	r.add("job-1", "zeroth", 900)
	for now, want := range map[int64]bool{1100: true, 1000 + 3600: true, 1000 + 3601: false} {
		if r.before("job-1", "next", 1100, now) != want {
			t.Errorf("at %d: %v", now, !want)
		}
	}
	if r.before("job-1", "next", 999, 1100) {
		t.Error("a pod that ran before the decision counts as the next attempt")
	}
	if r.before("job-1", "first", 1000, 1100) || r.before("job-1", "zeroth", 1000, 1100) {
		t.Error("a pod that was chosen in the second of its start, and not stopped, counts as the next attempt")
	}
	r.add("job-2", "other", 10_000)
	if len(r.stopped) != 1 || r.before("job-3", "other", 10_000, 10_000) {
		t.Errorf("knows %v", r.stopped)
	}
}
