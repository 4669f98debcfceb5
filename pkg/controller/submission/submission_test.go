package submission

import (
	"context"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// memory answers as the ledger's memory of commands does (I6): once per key, then the same again.
type memory struct {
	remembered map[string]ledger.Verdict
	next       ledger.Verdict
	asked      []string
}

func (m *memory) Submit(_ context.Context, command ledger.Command) (ledger.Verdict, error) {
	key := command.CommandKey()
	m.asked = append(m.asked, key)
	if earlier, ok := m.remembered[key]; ok {
		earlier.Replayed = true
		return earlier, nil
	}
	m.remembered[key] = m.next
	return m.next, nil
}

func TestAnewPassesARememberedRefusalAndRepeatsASuccess(t *testing.T) {
	refused := ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.HoldExceeded}}
	store := &memory{remembered: map[string]ledger.Verdict{}, next: refused}
	now := time.UnixMicro(42)
	ask := func() ledger.Verdict {
		t.Helper()
		verdict, err := Anew(t.Context(), store, now, "end:pod", func(key string) ledger.Command {
			return ledger.EndAllocation{Key: key, PodUID: "pod"}
		})
		if err != nil {
			t.Fatal(err)
		}
		return verdict
	}
	if verdict := ask(); verdict.Refusal == nil || len(store.asked) != 1 {
		t.Errorf("a fresh refusal is the answer: %+v after %q", verdict, store.asked)
	}
	store.next = ledger.Verdict{}
	if verdict := ask(); verdict.Refusal != nil || store.asked[len(store.asked)-1] != "end:pod:42" {
		t.Errorf("past a remembered refusal: %+v after %q", verdict, store.asked)
	}
	store.remembered["end:pod"] = ledger.Verdict{}
	before := len(store.asked)
	if verdict := ask(); verdict.Refusal != nil || !verdict.Replayed || len(store.asked) != before+1 {
		t.Errorf("a success is repeated, not asked again: %+v after %q", verdict, store.asked)
	}
}
