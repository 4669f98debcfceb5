package ledger_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

func TestStatementText(t *testing.T) {
	t.Parallel()
	job := ledger.WorkloadRef{Kind: "Job", Namespace: "vision", Name: "train"}
	statement := ledger.Statement{
		Account: "team-a", From: lt.At(0), To: lt.At(86_400), AsOf: lt.At(86_400), Opening: 0, Closing: 8_320 * ledger.Credit, Reserved: 0,
		Lines: []ledger.StatementLine{
			{Kind: ledger.EntryGrant, Amount: 10_000 * ledger.Credit, Balance: 10_000 * ledger.Credit, RecordedAt: lt.At(1),
				OccurredAt: lt.At(1), Reason: "first\nquarter", Actor: "ada"},
			{Kind: ledger.EntryCharge, Amount: -1_000 * ledger.Credit, Balance: 9_000 * ledger.Credit, RecordedAt: lt.At(260),
				OccurredAt: lt.At(250), Workload: job, Reservation: "u"},
			{Kind: ledger.EntryCharge, Amount: -680*ledger.Credit - 500_000, Balance: 8_319*ledger.Credit + 500_000, RecordedAt: lt.At(430),
				OccurredAt: lt.At(420), Workload: job, Reservation: "u"},
		},
		Workloads: []ledger.WorkloadSummary{{
			UID: "u", Workload: job, Class: "h100", State: ledger.Settled, Held: 1_000 * ledger.Credit, Charged: 1_680*ledger.Credit + 500_000,
			ChargedInPeriod: 1_680*ledger.Credit + 500_000, Overrun: 680*ledger.Credit + 500_000, DerivedCharge: 240 * ledger.Credit,
		}},
	}
	var out strings.Builder
	if err := statement.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	want := `Statement of account team-a
2026-03-02 09:00:00 to 2026-03-03 09:00:00 (UTC), in credits

recorded             what                                                     amount  balance
                     opening balance                                                        0
2026-03-02 09:00:01  grant: first quarter (ada)                              +10,000   10,000
2026-03-02 09:07:10  charge Job vision/train (2 intervals), until 09:07:00  -1,680.5  8,319.5
                     closing balance                                          +8,320    8,320

set aside for open workloads at 2026-03-03 09:00:00: 0

Workloads, as of 2026-03-03 09:00:00

workload          class  state     held  charged  in period  given back  still held
Job vision/train  h100   Settled  1,000  1,680.5    1,680.5           0           0

Job vision/train ran beyond what was held for it: 680.5 credits of overrun are charged to the account.

Job vision/train: 240 credits are for time that no node agent measured; it is taken from the pod's own start and finish.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
