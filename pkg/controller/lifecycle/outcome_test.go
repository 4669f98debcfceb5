package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestDecideOutcome(t *testing.T) {
	preempted := disrupted(corev1.PodReasonPreemptionByScheduler)
	believed := func(since time.Time) ledger.PreemptionRecord {
		return ledger.PreemptionRecord{Preemption: ledger.Preemption{
			Key: "k", Victim: ledger.PreemptionParty{UID: "pod-1", GPUs: 4}, LostSince: since, RestartSeconds: 180, LostGPUSeconds: 1,
		}}
	}
	for name, c := range map[string]struct {
		pod    []func(*corev1.Pod)
		record ledger.PreemptionRecord
		want   ledger.PreemptionOutcome // but for its key
	}{
		"as believed":                               {pods(failed, preempted), believed(at(300)), ledger.PreemptionOutcome{Preempted: true, StoppedAt: at(420), LostGPUSeconds: 4 * (120 + 180)}},
		"a checkpoint while it was stopping":        {pods(failed, preempted, checkpointed("2026-03-01T12:06:50Z")), believed(at(300)), ledger.PreemptionOutcome{Preempted: true, StoppedAt: at(420), CheckpointedAt: at(410), LostGPUSeconds: 4 * (10 + 180)}},
		"an earlier checkpoint than was reported":   {pods(failed, preempted, checkpointed("2026-03-01T12:01:00Z")), believed(at(300)), ledger.PreemptionOutcome{Preempted: true, StoppedAt: at(420), CheckpointedAt: at(60), LostGPUSeconds: 4 * (360 + 180)}},
		"a checkpoint after its end does not count": {pods(failed, preempted, checkpointed("2026-03-01T12:08:00Z")), believed(at(300)), ledger.PreemptionOutcome{Preempted: true, StoppedAt: at(420), LostGPUSeconds: 4 * (120 + 180)}},
		"it had not started when it was chosen":     {pods(failed, preempted), believed(time.Time{}), ledger.PreemptionOutcome{Preempted: true, StoppedAt: at(420), LostGPUSeconds: 4 * (420 + 180)}},
		"it never started":                          {pods(rejected, preempted), believed(time.Time{}), ledger.PreemptionOutcome{Preempted: true, StoppedAt: at(500)}},
		"it was done before it was stopped":         {pods(finished), believed(at(300)), ledger.PreemptionOutcome{StoppedAt: at(420)}},
		"somebody else evicted it":                  {pods(failed, disrupted("EvictionByEvictionAPI")), believed(at(300)), ledger.PreemptionOutcome{StoppedAt: at(420)}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Key, c.want.VictimUID = "k", "pod-1"
			if diff := cmp.Diff(c.want, decideOutcome(podFacts{now: at(500), pod: podWith(c.pod...)}, c.record)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
