package postgres_test

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// The worked example of the README, exactly: 10,000 credits, a Job of one pod with four GPUs for at most 600 s, which
// runs for 420 s. The agent's intervals come in uneven pieces, some twice, one late, and one never.
func TestWorkedExample(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team-a", 10_000)
	f.figures("team-a", 10_000, 0, 0)

	f.do(lt.Hold("job", "team-a", 4, 600))
	f.figures("team-a", 10_000, 2_400, 0)

	f.do(lt.Allocate("pod", "job", "team-a", 4), lt.Bound("pod"))
	gpus := []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}
	f.do(lt.Interval("pod", 0, 0, 59.25, gpus...))
	f.do(lt.Interval("pod", 0, 0, 59.25, gpus...)) // L26: sent twice
	f.do(lt.Interval("pod", 0, 180, 240.5, gpus...), lt.Interval("pod", 0, 59.25, 180, gpus...))
	f.do(lt.Interval("pod", 0, 300, 420, gpus...))
	f.figures("team-a", 10_000-1_442, 2_400-1_442, 1_442) // 59.5 s are missing so far

	f.do(lt.End("pod", 0, 420))
	f.figures("team-a", 8_320, 720, 1_680)
	if last, found, err := f.store.LastMetered(t.Context(), "pod"); err != nil || !found || !last.Equal(lt.At(420)) {
		t.Errorf("LastMetered = %v, %v, %v", last, found, err)
	}
	f.do(lt.Close("job"))
	f.figures("team-a", 8_320, 0, 1_680)

	late := lt.Interval("pod", 0, 240.5, 300, gpus...)
	if v := f.do(late)[0]; v.Charged != 0 {
		t.Errorf("a late interval for time that is already charged moved %d", v.Charged)
	}
	f.figures("team-a", 8_320, 0, 1_680)

	statement, err := f.store.Statement(t.Context(), "team-a", lt.At(0), lt.At(48*3600))
	if err != nil {
		t.Fatal(err)
	}
	if statement.Opening != 0 || statement.Closing != 8_320*ledger.Credit || len(statement.Workloads) != 1 {
		t.Errorf("statement: %+v", statement)
	}
	if w := statement.Workloads[0]; w.Held != 2_400*ledger.Credit || w.Charged != 1_680*ledger.Credit || w.Released != 720*ledger.Credit {
		t.Errorf("workload: %+v", w)
	}
	if found, err := f.store.Discrepancies(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("discrepancies: %v, %v", found, err)
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
		t.Errorf("rebuild changed %d accounts, %v", changed, err)
	}
}
