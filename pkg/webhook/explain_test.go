package webhook

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestRefusalsSayWhatWouldHelp(t *testing.T) {
	insufficient := func(needed, available ledger.Microcredits) *ledger.Refusal {
		return &ledger.Refusal{Code: ledger.InsufficientCredits, Account: "team-a", Needed: needed, Available: available}
	}
	held := func(change func(*batchv1.Job)) *Hold {
		job := gpuJob(change)
		return DecideJob(enrolled(), patched(t, job, MutateJob(enrolled(), job))).Hold
	}
	as := func(*batchv1.Job) {}
	for name, c := range map[string]struct {
		refusal *ledger.Refusal
		hold    *Hold
		says    []string
	}{
		"shorter pods": {insufficient(2400*ledger.Credit, 343*ledger.Credit), held(as),
			[]string{"needs up to 2,400 credits (4 GPUs × 600s of class h100)", "account team-a has 343 available", "at most 85s per pod", "grant"}},
		"another price": {insufficient(7200*ledger.Credit, 343*ledger.Credit), held(as), []string{"at most 28s per pod"}},
		"several pods": {insufficient(9600*ledger.Credit, 340*ledger.Credit), held(func(j *batchv1.Job) { j.Spec.Completions = ptr.To(int32(4)) }),
			[]string{"9600 GPU-seconds", "at most 21s per pod"}},
		"a shorter Job": {insufficient(400*ledger.Credit, 343*ledger.Credit), held(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To(int64(100)) }),
			[]string{"activeDeadlineSeconds of at most 85 on the Job"}},
		"not for a second": {insufficient(2400*ledger.Credit, 3*ledger.Credit), held(as), []string{"fewer GPUs or pods", "grant"}},
		"overdrawn":        {insufficient(2400*ledger.Credit, -3*ledger.Credit), held(as), []string{"has 0 available", "wait until running work has ended"}},
		"a parent's limit": {&ledger.Refusal{Code: ledger.InsufficientCredits, Account: "lab", Needed: 2400 * ledger.Credit, Available: 400 * ledger.Credit}, held(as),
			[]string{"account lab has 400 available", "above account team-a", "at most 100s per pod"}},
		"a limit for a month": {&ledger.Refusal{Code: ledger.SpendingLimited, Account: "lab", Needed: 2400 * ledger.Credit, Available: 400 * ledger.Credit,
			Message: "needs 2,400 credits, 400 left of the 5,000 that account lab may spend in a month; the next one begins 2026-12-01T00:00:00Z"}, held(as),
			[]string{"this Job (4 GPUs × 600s of class h100) needs 2,400 credits, 400 left of the 5,000 that account lab", "2026-12-01", "above account team-a", "at most 100s per pod", "next period"}},
		"its own limit for a month": {&ledger.Refusal{Code: ledger.SpendingLimited, Account: "team-a", Needed: 2400 * ledger.Credit, Available: -1, Message: "needs 2,400 credits"}, held(as),
			[]string{"needs 2,400 credits; nothing fits now"}},
		"frozen": {&ledger.Refusal{Code: ledger.AccountFrozen, Account: "lab", Message: "account lab is frozen: audit"}, held(as),
			[]string{"for this Job (4 GPUs × 600s of class h100): account lab is frozen: audit", "above account team-a"}},
		"not yet in the ledger": {&ledger.Refusal{Code: ledger.UnknownAccount}, held(as), []string{"try again"}},
		"class without a price": {&ledger.Refusal{Code: ledger.UnknownClass}, held(as), []string{"class h100", "try again"}},
		"too large":             {&ledger.Refusal{Code: ledger.OutOfRange, Message: "at most 100000 GPUs"}, held(as), []string{"at most 100000 GPUs", "OutOfRange"}},
	} {
		got := explainRefusal(c.refusal, c.hold)
		for _, part := range c.says {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q does not say %q", name, got, part)
			}
		}
	}
}
