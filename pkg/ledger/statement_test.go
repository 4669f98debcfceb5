package ledger_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

var updateGolden = flag.Bool("update-golden", false, "write what statements look like into testdata/statement")

// fullStatement has every kind of entry, seen by a team that pays for a colleague's account below it and whose big job the
// lab above pays for.
func fullStatement() ledger.Statement {
	train := ledger.WorkloadRef{Kind: "Job", Namespace: "vision", Name: "train"}
	sweep := ledger.WorkloadRef{Kind: "Job", Namespace: "intern", Name: "sweep"}
	big := ledger.WorkloadRef{Kind: "Job", Namespace: "vision", Name: "big"}
	const credit = ledger.Credit
	s := ledger.Statement{StatementHead: ledger.StatementHead{
		Account: "team-a", From: lt.At(0), To: lt.At(30 * 86_400), AsOf: lt.At(30*86_400 + 60), Opening: 250 * credit,
		Reserved: 720 * credit,
	}}
	add := func(at float64, amount ledger.Microcredits, e ledger.StatementEntry) {
		e.EntryID, e.Amount, e.RecordedAt = int64(len(s.Lines)+len(s.PaidByOthers)+1), amount, lt.At(at)
		if e.OccurredAt.IsZero() {
			e.OccurredAt = e.RecordedAt
		}
		balance := s.Opening
		if len(s.Lines) > 0 {
			balance = s.Lines[len(s.Lines)-1].Balance
		}
		s.Lines = append(s.Lines, ledger.StatementLine{StatementEntry: e, Balance: balance + amount})
		s.Closing = balance + amount
	}
	charge := func(at, until float64, amount ledger.Microcredits, w ledger.WorkloadRef, uid, spender string) {
		add(at, -amount, ledger.StatementEntry{Kind: ledger.EntryCharge, Counterparty: ledger.SystemRevenue, Spender: spender, Workload: w,
			Reservation: uid, Allocation: uid + "-pod", OccurredAt: lt.At(until)})
	}
	add(1, 10_000*credit, ledger.StatementEntry{Kind: ledger.EntryGrant, Counterparty: ledger.SystemIssuance, Reason: "first\nquarter", Actor: "ada"})
	add(2, 500*credit, ledger.StatementEntry{Kind: ledger.EntryGrant, Counterparty: ledger.SystemIssuance, Reason: "=HYPERLINK(\"http://x.invalid\")", Actor: "@ada",
		Expiring: []ledger.ExpiringCredits{{Lot: "grant:2", Amount: 500 * credit, ExpiresAt: lt.At(20 * 86_400)}}})
	charge(260, 250, 1_000*credit, train, "u1", "team-a")
	charge(261, 250, 100*credit, sweep, "u2", "intern")
	charge(430, 420, 680*credit+500_000, train, "u1", "team-a")
	charge(431, 420, 20*credit, sweep, "u2", "intern")
	add(500, 340*credit, ledger.StatementEntry{Kind: ledger.EntryRefund, Counterparty: ledger.SystemRevenue, Spender: "team-a", Workload: train,
		Reservation: "u1", Allocation: "u1-pod", Reason: "DeviceFault: XID 79"})
	add(600, 40*credit, ledger.StatementEntry{Kind: ledger.EntryAdjustment, Counterparty: ledger.SystemAdjustments, Reason: "the node's clock was wrong", Actor: "ops",
		Corrects: &ledger.CorrectedEntry{EntryID: 5, Kind: ledger.EntryCharge, Amount: -680*credit - 500_000, RecordedAt: lt.At(430)}})
	add(700, -300*credit, ledger.StatementEntry{Kind: ledger.EntryTransfer, Counterparty: "team-b", Reason: "lent", Actor: "ada"})
	add(800, 120*credit, ledger.StatementEntry{Kind: ledger.EntryTransfer, Counterparty: "team-c", Reason: "-1+1, \"quoted\"",
		Expiring: []ledger.ExpiringCredits{{Lot: "transfer:x#0", Amount: 20 * credit, ExpiresAt: lt.At(86_400)}}})
	add(86_400, -20*credit, ledger.StatementEntry{Kind: ledger.EntryExpiry, Counterparty: ledger.SystemExpired, Reason: "expired 2026-03-03T09:00:00Z",
		Expiring: []ledger.ExpiringCredits{{Lot: "transfer:x#0", Amount: 20 * credit, ExpiresAt: lt.At(86_400)}}})
	add(2_000_000, 1, ledger.StatementEntry{Kind: ledger.EntryRefill, Counterparty: ledger.SystemIssuance, OccurredAt: lt.At(1_998_000), Reason: "refill"})
	for i, amount := range []ledger.Microcredits{900 * credit, 850 * credit, -50 * credit} {
		kind, reason := ledger.EntryCharge, ""
		if amount < 0 {
			kind, reason = ledger.EntryRefund, "Preempted"
		}
		s.PaidByOthers = append(s.PaidByOthers, ledger.PaidLine{Payer: "lab", StatementEntry: ledger.StatementEntry{
			EntryID: int64(40 + i), Kind: kind, Amount: amount, Counterparty: ledger.SystemRevenue, Spender: "team-a", Workload: big, Reservation: "u3",
			Allocation: "u3-pod", OccurredAt: lt.At(float64(1_000 + 60*i)), RecordedAt: lt.At(float64(1_001 + 60*i)), Reason: reason,
		}})
		s.PaidByOthersSum += amount
	}
	s.Workloads = []ledger.WorkloadSummary{
		{UID: "u1", Workload: train, Account: "team-a", Payer: "team-a", Class: "h100", Rate: 1_000_000, State: ledger.Settled, Held: 1_000 * credit,
			Charged: 1_680*credit + 500_000, ChargedInPeriod: 1_680*credit + 500_000, Refunded: 340 * credit, Overrun: 680*credit + 500_000,
			OverrunAction: ledger.OverrunOverdraft, DerivedCharge: 240 * credit, CreatedAt: lt.At(0), ClosedAt: lt.At(440)},
		{UID: "u2", Workload: sweep, Account: "intern", Payer: "team-a", Class: "a100", Rate: 500_000, State: ledger.Active, Held: 840 * credit,
			Charged: 120 * credit, ChargedInPeriod: 120 * credit, Remaining: 720 * credit, OverrunAction: ledger.OverrunStop, CreatedAt: lt.At(100)},
		{UID: "u3", Workload: big, Account: "team-a", Payer: "lab", Class: "h100", Rate: 1_000_000, State: ledger.Settled, Held: 2_000 * credit,
			Charged: 1_750 * credit, ChargedInPeriod: 1_750 * credit, Refunded: 50 * credit, Released: 250 * credit,
			OverrunAction: ledger.OverrunRenew, CreatedAt: lt.At(900), ClosedAt: lt.At(1_200)},
	}
	return s
}

// What people, spreadsheets and programs get, byte by byte.
func TestStatementFormats(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	page := fullStatement()
	page.After, page.Next = ledger.StatementCursor{RecordedAt: lt.At(0), EntryID: 0}, ledger.StatementCursor{RecordedAt: lt.At(431), EntryID: 6}
	page.After.EntryID = 17
	page.Lines, page.PaidByOthers, page.Workloads = page.Lines[:6], nil, nil
	page.Closing, page.PaidByOthersSum, page.AsOf = page.Lines[5].Balance, 0, lt.At(86_400)
	page.Frozen = "a sum differs"
	for name, test := range map[string]struct {
		statement ledger.Statement
		sink      func(*bytes.Buffer) ledger.StatementSink
	}{
		"utc.txt":    {fullStatement(), func(b *bytes.Buffer) ledger.StatementSink { return ledger.StatementText{}.Sink(b) }},
		"berlin.txt": {fullStatement(), func(b *bytes.Buffer) ledger.StatementSink { return ledger.StatementText{Zone: berlin}.Sink(b) }},
		"every-charge.txt": {fullStatement(), func(b *bytes.Buffer) ledger.StatementSink {
			return ledger.StatementText{EveryCharge: true}.Sink(b)
		}},
		"page.txt": {page, func(b *bytes.Buffer) ledger.StatementSink { return ledger.StatementText{}.Sink(b) }},
		"empty.txt": {ledger.Statement{StatementHead: ledger.StatementHead{Account: "team-a", From: lt.At(0), To: lt.At(60), AsOf: lt.At(60)}},
			func(b *bytes.Buffer) ledger.StatementSink { return ledger.StatementText{}.Sink(b) }},
		"full.csv":  {fullStatement(), func(b *bytes.Buffer) ledger.StatementSink { return ledger.CSVStatement(b) }},
		"full.json": {fullStatement(), func(b *bytes.Buffer) ledger.StatementSink { return ledger.JSONStatement(b) }},
		"page.json": {page, func(b *bytes.Buffer) ledger.StatementSink { return ledger.JSONStatement(b) }},
	} {
		var out bytes.Buffer
		if err := test.statement.Send(ledger.CheckStatement(test.sink(&out))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		file := filepath.Join("testdata", "statement", name)
		if *updateGolden {
			if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// JSON that is written piece by piece is the JSON of the whole.
func TestStatementJSONIsTheStatement(t *testing.T) {
	t.Parallel()
	empty := ledger.Statement{Lines: []ledger.StatementLine{}, PaidByOthers: []ledger.PaidLine{}, Workloads: []ledger.WorkloadSummary{}}
	noLines := fullStatement()
	noLines.Lines, noLines.PaidByOthers = empty.Lines, empty.PaidByOthers
	for _, want := range []ledger.Statement{fullStatement(), empty, noLines} {
		var out bytes.Buffer
		if err := want.Send(ledger.JSONStatement(&out)); err != nil {
			t.Fatal(err)
		}
		var got ledger.Statement
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		whole, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(whole)+"\n", out.String()); diff != "" {
			t.Errorf("-whole +streamed\n%s", diff)
		}
	}
}

// The column of amounts adds up to the difference of the balances, and no cell is a formula.
func TestStatementCSVForSpreadsheets(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := fullStatement()
	if err := s.Send(ledger.CSVStatement(&out)); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != strings.Count(out.String(), "\r\n") {
		t.Error("a line does not end in CRLF")
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := make(map[string]int)
	for i, name := range rows[0] {
		column[name] = i
	}
	numbers := map[string]bool{"amount": true, "balance": true, "paid_by_other": true}
	var sum, paid ledger.Microcredits
	add := func(to *ledger.Microcredits, cell string) {
		if cell != "" {
			amount, err := ledger.ParseCredits(cell)
			if err != nil {
				t.Error(err)
			}
			*to += amount
		}
	}
	for _, row := range rows[1:] {
		add(&sum, row[column["amount"]])
		add(&paid, row[column["paid_by_other"]])
		for name, i := range column {
			if cell := row[i]; !numbers[name] && cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") {
				t.Errorf("column %s: %q is a formula to a spreadsheet", name, cell)
			}
		}
	}
	if sum != s.Closing-s.Opening || paid != s.PaidByOthersSum {
		t.Errorf("amounts add up to %d and %d, want %d and %d", sum, paid, s.Closing-s.Opening, s.PaidByOthersSum)
	}
}

// Nothing that does not add up gets through as if it did.
func TestStatementThatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*ledger.Statement){
		"a line is missing":            func(s *ledger.Statement) { s.Lines = append(s.Lines[:3:3], s.Lines[4:]...) },
		"the last line is missing":     func(s *ledger.Statement) { s.Lines = s.Lines[:len(s.Lines)-1] },
		"a line comes twice":           func(s *ledger.Statement) { s.Lines = append(s.Lines[:3:3], s.Lines[2:]...) },
		"two lines swapped":            func(s *ledger.Statement) { s.Lines[3], s.Lines[4] = s.Lines[4], s.Lines[3] },
		"a microcredit":                func(s *ledger.Statement) { s.Lines[5].Amount++ },
		"another closing balance":      func(s *ledger.Statement) { s.Closing++ },
		"no lines, and a difference":   func(s *ledger.Statement) { s.Lines, s.PaidByOthers, s.Workloads = nil, nil, nil },
		"a line outside the period":    func(s *ledger.Statement) { s.To = s.Lines[len(s.Lines)-1].RecordedAt },
		"a line before the page":       func(s *ledger.Statement) { s.After = s.Lines[0].Cursor() },
		"what others paid is missing":  func(s *ledger.Statement) { s.PaidByOthers = s.PaidByOthers[1:] },
		"what others paid comes twice": func(s *ledger.Statement) { s.PaidByOthers[1] = s.PaidByOthers[0] },
		"beyond all sums": func(s *ledger.Statement) {
			s.Lines[0].Amount, s.Lines[1].Amount = ledger.MaxAmount, ledger.MaxAmount
		},
	} {
		s := fullStatement()
		spoil(&s)
		var out bytes.Buffer
		err := s.Send(ledger.CheckStatement(ledger.JSONStatement(&out)))
		if !errors.Is(err, ledger.ErrStatementUnsound) || !strings.Contains(err.Error(), "account team-a") {
			t.Errorf("%s: %v", name, err)
		}
		if json.Valid(out.Bytes()) {
			t.Errorf("%s: what was written is a whole JSON document", name)
		}
	}
}

func TestStatementQueries(t *testing.T) {
	t.Parallel()
	good := ledger.StatementQuery{Account: "team-a", From: lt.At(0), To: lt.At(60)}
	for _, test := range []struct {
		change  func(*ledger.StatementQuery)
		problem string
	}{
		{func(*ledger.StatementQuery) {}, ""},
		{func(q *ledger.StatementQuery) { q.After = ledger.StatementCursor{RecordedAt: lt.At(0), EntryID: 1} }, ""},
		{func(q *ledger.StatementQuery) { q.Account = ledger.SystemRevenue }, "system:revenue is the ledger's own other side"},
		{func(q *ledger.StatementQuery) { q.To = q.From }, "is empty"},
		{func(q *ledger.StatementQuery) { q.Limit = -1 }, "want 1 or more"},
		{func(q *ledger.StatementQuery) { q.After = ledger.StatementCursor{RecordedAt: lt.At(60), EntryID: 1} }, "outside the period"},
	} {
		q := good
		test.change(&q)
		if err := q.Check(); (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%+v: %v, want %q", q, err, test.problem)
		}
	}
	for _, text := range []string{"2026-03-02T09:00:01.5Z/42", "2026-03-02T10:00:01.5+01:00/42"} {
		cursor, err := ledger.ParseStatementCursor(text)
		if err != nil || cursor != (ledger.StatementCursor{RecordedAt: lt.At(1.5), EntryID: 42}) || cursor.String() != "2026-03-02T09:00:01.5Z/42" {
			t.Errorf("%s: %v, %v", text, cursor, err)
		}
	}
	for _, text := range []string{"", "42", "2026-03-02/42", "2026-03-02T09:00:01Z/0", "2026-03-02T09:00:01Z/-1", "2026-03-02T09:00:01Z/x", "2026-03-02T09:00:01Z"} {
		if cursor, err := ledger.ParseStatementCursor(text); err == nil {
			t.Errorf("%q is taken for %v", text, cursor)
		}
	}
}

// A statement of any length is written in parts, with every row in its place.
func TestLongStatementText(t *testing.T) {
	t.Parallel()
	s := ledger.Statement{StatementHead: ledger.StatementHead{Account: "team-a", From: lt.At(0), To: lt.At(1e6), AsOf: lt.At(1e6)}}
	for i := range 5_000 {
		s.Closing += ledger.Credit
		s.Lines = append(s.Lines, ledger.StatementLine{Balance: s.Closing, StatementEntry: ledger.StatementEntry{
			EntryID: int64(i + 1), Kind: ledger.EntryGrant, Amount: ledger.Credit, RecordedAt: lt.At(float64(i)), OccurredAt: lt.At(float64(i)),
		}})
	}
	var out strings.Builder
	if err := s.Send(ledger.CheckStatement(ledger.StatementText{}.Sink(&out))); err != nil {
		t.Fatal(err)
	}
	if grants := strings.Count(out.String(), "  grant "); grants != 5_000 || !strings.Contains(out.String(), "closing balance") {
		t.Errorf("%d grants", grants)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasSuffix(line, " \n") {
			t.Fatalf("%q ends in spaces", line)
		}
	}
}
