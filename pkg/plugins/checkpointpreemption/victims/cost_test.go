package victims_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
	"github.com/gpubank/gpubank/pkg/workload"
)

var policy = victims.Policy{DefaultInterval: 30 * time.Minute, AgeCap: 4 * time.Hour, MaxRestart: 10 * time.Minute}

// start is when the pods of these tests started.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestLost(t *testing.T) {
	for _, c := range []struct {
		name string
		says map[string]string
		runs time.Duration
		want int64 // seconds of one GPU
	}{
		{"reports: its own age", map[string]string{"gpubank.io/checkpointed-at": "2026-03-01T12:50:00Z"}, time.Hour, 600},
		{"reports, and a restart", map[string]string{"gpubank.io/checkpointed-at": "2026-03-01T12:50:00Z", "gpubank.io/restart-seconds": "180"}, time.Hour, 780},
		{"a restart beyond the policy", map[string]string{"gpubank.io/checkpointed-at": "2026-03-01T12:50:00Z", "gpubank.io/restart-seconds": "86400"}, time.Hour, 1200},
		{"an old report counts as the cap", map[string]string{"gpubank.io/checkpointed-at": "2026-03-01T12:00:00Z"}, 48 * time.Hour, 4 * 3600},
		{"silent: the default interval", nil, 5 * time.Hour, 1800},
		{"silent and young: all of it", nil, 10 * time.Minute, 600},
		{"silent with a shorter interval", map[string]string{"gpubank.io/checkpoint-interval": "10m"}, 5 * time.Hour, 600},
		{"silence with a longer interval does not protect", map[string]string{"gpubank.io/checkpoint-interval": "24h"}, 5 * time.Hour, 1800},
		{"saves nothing", map[string]string{"gpubank.io/checkpoint-interval": "none"}, 3 * time.Hour, 3 * 3600},
		{"saves nothing: the cap", map[string]string{"gpubank.io/checkpoint-interval": "none"}, 300 * time.Hour, 4 * 3600},
		{"forged: in the future", map[string]string{"gpubank.io/checkpointed-at": "2026-03-01T17:00:01Z"}, 5 * time.Hour, 1800},
		{"forged: before the start", map[string]string{"gpubank.io/checkpointed-at": "2026-03-01T11:59:59Z"}, 5 * time.Hour, 1800},
		{"nonsense", map[string]string{"gpubank.io/checkpointed-at": "yesterday", "gpubank.io/restart-seconds": "-5", "gpubank.io/checkpoint-interval": "0"}, 5 * time.Hour, 1800},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, _ := workload.ReadCheckpoints(c.says)
			now := start.Add(c.runs).Unix()
			for _, gpus := range []int64{1, 8} {
				if got := policy.Lost(policy.WorkOf(gpus, start, said), now); got != gpus*c.want {
					t.Errorf("%d GPUs: lost %d GPU-seconds, want %d", gpus, got, gpus*c.want)
				}
			}
		})
	}
	if got := policy.Lost(policy.WorkOf(8, time.Time{}, workload.Checkpoints{Restart: time.Hour}), start.Unix()); got != 0 {
		t.Errorf("what has not started loses %d", got)
	}
}

// Nothing that a pod can say makes it immune, a negative cost, or dearer than the cap.
func TestLostIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.Custom(func(t *rapid.T) time.Time {
			return start.Add(time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(t, "seconds")) * time.Second)
		})
		said := workload.Checkpoints{
			At: moment.Draw(t, "at"), Interval: time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "interval")) * time.Second,
			None: rapid.Bool().Draw(t, "none"), Restart: time.Duration(rapid.Int64Range(0, 86400).Draw(t, "restart")) * time.Second,
		}
		gpus := rapid.Int64Range(0, 16).Draw(t, "gpus")
		lost := policy.Lost(policy.WorkOf(gpus, moment.Draw(t, "started"), said), moment.Draw(t, "now").Unix())
		if most := gpus * int64((policy.AgeCap+policy.MaxRestart)/time.Second); lost < 0 || lost > most {
			t.Fatalf("%d GPU-seconds, want 0 to %d", lost, most)
		}
	})
}
