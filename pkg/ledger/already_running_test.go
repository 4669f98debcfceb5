package ledger_test

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// A pod that another scheduler bound is charged although nobody could have held for it (I9).
func TestWhatAlreadyRunsIsAllocatedWhateverItCosts(t *testing.T) {
	late := lt.Allocate("pod", "pod", "poor", 4)
	state := &ledger.State{LeaderEpochs: map[string]int64{late.Leader: late.LeaderEpoch}}
	do := func(command ledger.Command) ledger.Verdict {
		t.Helper()
		return ledger.Decide(state, lt.At(0), []ledger.Command{command}).Verdicts[0]
	}
	hold := lt.Hold("pod", "poor", 4, 600)
	late.Hold = &hold
	for _, command := range []ledger.Command{lt.Account("poor", "", 0), lt.Rate()} {
		if v := do(command); v.Refusal != nil {
			t.Fatal(v.Refusal)
		}
	}
	if v := do(late); v.Refusal == nil || v.Refusal.Code != ledger.InsufficientCredits {
		t.Fatalf("a pod that is not bound yet: %+v", v)
	}
	late.Key, late.AlreadyRunning = "late", true
	if v := do(late); v.Refusal != nil || v.Allocation == nil || v.Reservation.Amount != 2400*ledger.Credit {
		t.Fatalf("a pod that runs: %+v", v)
	}
	second := lt.Allocate("pod-2", "pod", "poor", 1)
	if v := do(second); v.Refusal == nil || v.Refusal.Code != ledger.HoldExceeded {
		t.Fatalf("more GPUs than held, not bound yet: %+v", v)
	}
	second.Key, second.AlreadyRunning = "late-2", true
	if v := do(second); v.Refusal != nil {
		t.Fatalf("more GPUs than held, running: %+v", v)
	}
}
