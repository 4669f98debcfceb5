package postgres_test

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// A pod has its GPU between its intervals too: another pod that was metered on it meanwhile is a discrepancy, whichever of
// the two reports last, and also when the reports come in one batch.
func TestGPUSharedBetweenIntervals(t *testing.T) {
	t.Parallel()
	inside := lt.Interval("inside", 20, 20, 30, "GPU-1")
	for name, batches := range map[string][][]ledger.Command{
		"the inner one last":    {{lt.Interval("outside", 0, 0, 10, "GPU-1")}, {lt.Interval("outside", 0, 50, 60, "GPU-1")}, {inside}},
		"the outer one last":    {{lt.Interval("outside", 0, 0, 10, "GPU-1")}, {inside}, {lt.Interval("outside", 0, 50, 60, "GPU-1")}},
		"the outer one at once": {{inside}, {lt.Interval("outside", 0, 0, 10, "GPU-1"), lt.Interval("outside", 0, 50, 60, "GPU-1")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.teamWith("team", 1_000)
			f.do(lt.Hold("job", "team", 2, 100), lt.Allocate("inside", "job", "team", 1), lt.Allocate("outside", "job", "team", 1))
			for _, batch := range batches {
				f.do(batch...)
			}
			found, err := f.store.Discrepancies(t.Context())
			if err != nil || len(found) != 1 || found[0].Key != ledger.GPUChargedTwiceKey("GPU-1", "inside", "outside") {
				t.Errorf("discrepancies: %+v, %v", found, err)
			}
		})
	}
}
