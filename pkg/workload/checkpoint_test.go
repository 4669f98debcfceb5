package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/workload"
)

func TestReadCheckpoints(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	for _, c := range []struct {
		name     string
		says     map[string]string
		want     workload.Checkpoints
		problems []string // the annotations
	}{
		{name: "nothing"},
		{name: "everything", says: map[string]string{
			"gpubank.io/checkpointed-at": "2026-03-01T13:00:00+01:00", "gpubank.io/checkpoint-uri": "s3://bucket/run/1", "gpubank.io/checkpoint-sha256": hash,
			"gpubank.io/checkpoint-interval": "10m", "gpubank.io/restart-seconds": "180",
		}, want: workload.Checkpoints{
			At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), URI: "s3://bucket/run/1", SHA256: hash, Interval: 10 * time.Minute, Restart: 3 * time.Minute,
		}},
		{name: "whole seconds", says: map[string]string{"gpubank.io/checkpoint-interval": "600"}, want: workload.Checkpoints{Interval: 10 * time.Minute}},
		{name: "none", says: map[string]string{"gpubank.io/checkpoint-interval": "none"}, want: workload.Checkpoints{None: true}},
		{name: "nothing of it makes sense", says: map[string]string{
			"gpubank.io/checkpointed-at": "noon", "gpubank.io/checkpoint-uri": "here", "gpubank.io/checkpoint-sha256": strings.ToUpper(hash),
			"gpubank.io/checkpoint-interval": "0s", "gpubank.io/restart-seconds": "90000",
		}, problems: []string{
			"gpubank.io/checkpointed-at", "gpubank.io/checkpoint-uri", "gpubank.io/checkpoint-sha256", "gpubank.io/checkpoint-interval", "gpubank.io/restart-seconds",
		}},
		{name: "a fraction", says: map[string]string{"gpubank.io/restart-seconds": "1.5"}, problems: []string{"gpubank.io/restart-seconds"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems := workload.ReadCheckpoints(c.says)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var annotations []string
			for _, problem := range problems {
				annotations = append(annotations, problem.Annotation)
			}
			if diff := cmp.Diff(c.problems, annotations); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLastAt(t *testing.T) {
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := started.Add(time.Hour)
	for _, c := range []struct {
		name    string
		started time.Time
		at      time.Time
		want    time.Time
		says    string
	}{
		{"none", started, time.Time{}, time.Time{}, ""},
		{"within", started, started.Add(time.Minute), started.Add(time.Minute), ""},
		{"at the start", started, started, started, ""},
		{"just now", started, now, now, ""},
		{"in the future", started, now.Add(time.Second), time.Time{}, "lies in the future"},
		{"another attempt's", started, started.Add(-time.Second), time.Time{}, "lies before the pod's start at 2026-03-01T12:00:00Z"},
		{"before it started at all", time.Time{}, started, time.Time{}, "has not started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := workload.Checkpoints{At: c.at}.LastAt(c.started, now)
			if !got.Equal(c.want) || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
