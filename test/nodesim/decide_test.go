package nodesim

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func second(n int64) time.Time { return time.Unix(1_700_000_000+n, 0) }

// testPod started at second 0; phase and annotations as given.
func testPod(phase v1.PodPhase, annotations map[string]string) *v1.Pod {
	start := metav1.NewTime(second(0))
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Status:     v1.PodStatus{Phase: phase, StartTime: &start},
	}
}

func deleting(pod *v1.Pod, asked, grace int64) *v1.Pod {
	at := metav1.NewTime(second(asked + grace))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	return pod
}

func deadline(pod *v1.Pod, seconds int64) *v1.Pod {
	pod.Spec.ActiveDeadlineSeconds = ptr.To(seconds)
	return pod
}

func TestNext(t *testing.T) {
	runs := func(seconds string) map[string]string { return map[string]string{RunSecondsAnnotation: seconds} }
	unstarted := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodPending}}
	for name, test := range map[string]struct {
		pod      *v1.Pod
		now      int64
		want     step
		until    int64 // -1: for ever
		exitCode int32
	}{
		"new":                         {unstarted, 5, admit, -1, 0},
		"deleted before it started":   {deleting(unstarted.DeepCopy(), 1, 30), 5, remove, -1, 0},
		"admitted":                    {testPod(v1.PodPending, runs("10")), 0, run, -1, 0},
		"pulling":                     {testPod(v1.PodPending, map[string]string{PullSecondsAnnotation: "4", RunSecondsAnnotation: "10"}), 3, idle, 4, 0},
		"pulled":                      {testPod(v1.PodPending, map[string]string{PullSecondsAnnotation: "4", RunSecondsAnnotation: "10"}), 4, run, -1, 0},
		"running":                     {testPod(v1.PodRunning, runs("10")), 9, idle, 10, 0},
		"running for ever":            {testPod(v1.PodRunning, nil), 900, idle, -1, 0},
		"unreadable time":             {testPod(v1.PodRunning, runs("-3")), 900, idle, -1, 0},
		"done":                        {testPod(v1.PodRunning, runs("10")), 10, finish, 10, 0},
		"done while nobody looked":    {testPod(v1.PodRunning, runs("10")), 500, finish, 10, 0},
		"pulling counts before it":    {testPod(v1.PodRunning, map[string]string{PullSecondsAnnotation: "4", RunSecondsAnnotation: "10"}), 14, finish, 14, 0},
		"failing":                     {testPod(v1.PodRunning, map[string]string{RunSecondsAnnotation: "10", ExitCodeAnnotation: "3"}), 10, finish, 10, 3},
		"deadline":                    {deadline(testPod(v1.PodRunning, runs("10")), 6), 20, finish, 6, 137},
		"stopped":                     {deleting(testPod(v1.PodRunning, runs("10")), 5, 30), 5, finish, 5, 143},
		"stopped when it was noticed": {deleting(testPod(v1.PodRunning, runs("90")), 5, 30), 60, finish, 60, 143},
		"takes its time to stop":      {deleting(testPod(v1.PodRunning, map[string]string{TermSecondsAnnotation: "3"}), 5, 30), 6, idle, 8, 0},
		"ignores SIGTERM":             {deleting(testPod(v1.PodRunning, map[string]string{TermSecondsAnnotation: "300"}), 5, 30), 35, finish, 35, 137},
		"over":                        {testPod(v1.PodSucceeded, runs("10")), 500, idle, -1, 0},
		"over and deleted":            {deleting(testPod(v1.PodSucceeded, nil), 5, 30), 6, remove, -1, 0},
		"over, deletion confirmed":    {deleting(testPod(v1.PodSucceeded, nil), 5, 0), 6, idle, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, until, end := next(test.pod, second(test.now))
			if got == finish {
				until = end.at
			}
			want := second(test.until)
			if test.until < 0 {
				want = time.Time{}
			}
			if got != test.want || !until.Equal(want) || end.exitCode != test.exitCode {
				t.Errorf("step %d until %v with exit code %d; want %d, %v, %d", got, until, end.exitCode, test.want, want, test.exitCode)
			}
		})
	}
}
