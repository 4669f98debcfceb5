package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDecideCheckpoint(t *testing.T) {
	now := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	running := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.NewTime(now.Add(-time.Hour)))}}
	for name, c := range map[string]struct {
		pod             *corev1.Pod
		at, uri, sha256 string
		want            map[string]any
		refused         string
	}{
		"now": {pod: running, want: map[string]any{
			"gpubank.io/checkpointed-at": "2026-03-01T13:00:00Z", "gpubank.io/checkpoint-uri": nil, "gpubank.io/checkpoint-sha256": nil,
		}},
		"with everything": {pod: running, at: "2026-03-01T12:30:00Z", uri: "s3://b/1", sha256: strings.Repeat("a", 64), want: map[string]any{
			"gpubank.io/checkpointed-at": "2026-03-01T12:30:00Z", "gpubank.io/checkpoint-uri": "s3://b/1", "gpubank.io/checkpoint-sha256": strings.Repeat("a", 64),
		}},
		"in the future":    {pod: running, at: "2026-03-01T13:00:01Z", refused: "lies in the future"},
		"before its start": {pod: running, at: "2026-03-01T11:59:59Z", refused: "before the pod's start"},
		"no time":          {pod: running, at: "noon", refused: "RFC 3339"},
		"no hash":          {pod: running, sha256: "abc", refused: "SHA-256"},
		"not started":      {pod: &corev1.Pod{}, refused: "has not started"},
		"over":             {pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: running.Status.StartTime}}, refused: "it is over"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decideCheckpoint(c.pod, now, c.at, c.uri, c.sha256)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("%v, want %q", err, c.refused)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
