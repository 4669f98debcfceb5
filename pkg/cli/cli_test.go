package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

var now = time.Date(2026, 3, 17, 15, 4, 5, 0, time.UTC)

func TestWriteBalances(t *testing.T) {
	account := v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-b"}}
	account.Spec.Parent = "lab"
	account.Status = v1alpha1.CreditAccountStatus{Available: "7600", Reserved: "2400", Balance: "10000", Charged: "0.25"}
	fresh := v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
	var out bytes.Buffer
	if err := writeBalances(&out, balancesOf([]v1alpha1.CreditAccount{account, fresh})); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"ACCOUNT  PARENT  AVAILABLE  RESERVED  BALANCE  CHARGED\n" +
		"lab      -               -         -        -        -\n" +
		"team-b   lab         7,600     2,400   10,000     0.25\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// reader is a ledger with one account, team-a below lab, what the test puts in, and what it was asked.
type reader struct {
	asked         ledger.StatementQuery
	balanceAt     time.Time
	spendingFrom  time.Time
	spendingTo    time.Time
	lots          []ledger.Lot
	spending      []ledger.DailySpending
	path          []ledger.Account
	discrepancies []ledger.Discrepancy
	violations    []ledger.Violation
	rebuilds      int
	err           error
	closed        bool
}

func (r *reader) Account(_ context.Context, name string) (ledger.Account, bool, error) {
	return ledger.Account{Name: name, Balance: 1_000 * ledger.Credit}, name == "team-a", nil
}

func (r *reader) StreamStatement(_ context.Context, asked ledger.StatementQuery, sink ledger.StatementSink) error {
	r.asked = asked
	s := ledger.Statement{StatementHead: ledger.StatementHead{
		Account: asked.Account, From: asked.From, To: asked.To, AsOf: now, Opening: 5 * ledger.Credit, Closing: 5 * ledger.Credit,
	}}
	return s.Send(sink)
}

func (r *reader) BalanceAt(_ context.Context, account string, at time.Time) (ledger.Microcredits, bool, error) {
	r.balanceAt = at
	return 1234*ledger.Credit + 500_000, account == "team-a", r.err
}

func (r *reader) Lots(context.Context, string) ([]ledger.Lot, error) { return r.lots, r.err }

func (r *reader) Spending(_ context.Context, _ string, from, to time.Time) ([]ledger.DailySpending, error) {
	r.spendingFrom, r.spendingTo = from, to
	return r.spending, r.err
}

func (r *reader) AccountPath(context.Context, string) ([]ledger.Account, error) { return r.path, r.err }

func (r *reader) Quote(context.Context, ledger.PlaceHold) (ledger.Verdict, error) {
	return ledger.Verdict{}, r.err
}

func (r *reader) Discrepancies(context.Context) ([]ledger.Discrepancy, error) {
	return r.discrepancies, r.err
}

func (r *reader) Audit(context.Context) ([]ledger.Violation, error) { return r.violations, r.err }

func (r *reader) Size(context.Context) (ledger.Size, error) {
	return ledger.Size{Accounts: 1, Reservations: 340, Allocations: 402, Intervals: 98_765, Entries: 1_234_567}, nil
}

func (r *reader) Rebuild(context.Context) (int, error) {
	r.rebuilds++
	return len(r.violations), r.err
}

func (r *reader) VerifyChains(context.Context, []ledger.ChainHead) (ledger.ChainReport, error) {
	return ledger.ChainReport{Sealed: 1_234_000, Unsealed: 567}, r.err
}

func (r *reader) ChainHeads(context.Context) ([]ledger.ChainHead, error) {
	return []ledger.ChainHead{{Account: "team-a", Entries: 7, LastEntry: 9, LastRecordedAt: now}}, r.err
}

func (r *reader) Close() { r.closed = true }

// run executes the command against store and returns what it wrote.
func run(t *testing.T, store *reader, arguments ...string) (string, error) {
	t.Helper()
	return runWith(t, Dependencies{
		OpenLedger: func(context.Context, string) (Ledger, error) { return store, nil },
		Now:        func() time.Time { return now },
	}, arguments...)
}

func runWith(t *testing.T, deps Dependencies, arguments ...string) (string, error) {
	t.Helper()
	command := NewCommand(deps)
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(arguments)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

func TestStatementCommand(t *testing.T) {
	for _, test := range []struct {
		arguments []string
		output    string
		problem   string
	}{
		{[]string{"team-a", "--database-url-file=f", "--from=2026-03-02", "-o", "json"}, `"closing_microcredits": 5000000`, ""},
		{[]string{"team-a", "--database-url-file=f", "-o", "csv"}, "opening,,2026-03-01T00:00:00Z,,,,5,", ""},
		{[]string{"team-a", "--database-url-file=f", "--after=2026-03-02T09:00:01.5Z/42", "--limit=7"}, "team-a", ""},
		{[]string{"team-a", "--database-url-file=f", "--zone=Europe/Berlin"}, "2026-03-01 00:00:00 CET to 2026-03-17 16:04:05 CET (Europe/Berlin)", ""},
		{[]string{"team-b", "--database-url-file=f"}, "", `the ledger knows no account "team-b"`},
		{[]string{"system:revenue", "--database-url-file=f"}, "", "system:revenue is the ledger's own other side"},
		{[]string{"team-a"}, "", "--database-url-file is missing"},
		{[]string{"team-a", "--database-url-file=f", "-o", "yaml"}, "", "use text, csv or json"},
		{[]string{"team-a", "--database-url-file=f", "--timeout=0s"}, "", "want more than 0"},
		{[]string{"team-a", "--database-url-file=f", "--after=42"}, "", `--after: "42" is no place in a statement`},
		{[]string{"team-a", "--database-url-file=f", "--after=2026-02-02T09:00:01Z/42"}, "", "outside the period"},
		{[]string{"team-a", "--database-url-file=f", "--limit=-1"}, "", "want 1 or more"},
		{nil, "", "accepts 1 arg(s)"},
	} {
		store := &reader{}
		out, err := run(t, store, append([]string{"statement"}, test.arguments...)...)
		if test.problem == "" && (err != nil || !strings.Contains(out, test.output) || !store.asked.To.Equal(now) || !store.closed) {
			t.Errorf("%v: %v, asked %+v, closed: %v\n%s", test.arguments, err, store.asked, store.closed, out)
		}
		if test.problem != "" && (ExitCode(err) != 2 || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%v: %v, want %q", test.arguments, err, test.problem)
		}
	}
	store := &reader{}
	if _, err := run(t, store, "statement", "team-a", "--database-url-file=f", "--after=2026-03-02T09:00:01.5Z/42", "--limit=7"); err != nil ||
		store.asked.Limit != 7 || store.asked.After.EntryID != 42 {
		t.Errorf("%v, asked %+v", err, store.asked)
	}
}

func TestBalanceAsOf(t *testing.T) {
	for _, test := range []struct {
		arguments []string
		at        string
		output    string
		problem   string
	}{
		{[]string{"team-a", "--as-of=2026-03-01"}, "2026-03-01T00:00:00Z", "ACCOUNT  AS OF                 BALANCE\nteam-a   2026-03-01T00:00:00Z  1,234.5\n", ""},
		{[]string{"team-a", "--as-of=2026-03-01", "--zone=Europe/Berlin"}, "2026-02-28T23:00:00Z", "2026-03-01T00:00:00+01:00", ""},
		{[]string{"team-a", "--as-of=2026-03-01T08:00:00.5+01:00", "-o=json"}, "2026-03-01T07:00:00.5Z", `"balance_microcredits": 1234500000`, ""},
		{[]string{"team-a", "--as-of=2026-03-18"}, "", "", "has not come yet"},
		{[]string{"team-a", "--as-of=then"}, "", "", `--as-of: "then" is neither`},
		{[]string{"--as-of=2026-03-01"}, "", "", "name it"},
		{[]string{"team-b", "--as-of=2026-03-01"}, "", "", `no account "team-b"`},
		{[]string{"system:expired", "--as-of=2026-03-01"}, "", "", "the ledger's own other side"},
	} {
		store := &reader{}
		out, err := run(t, store, append([]string{"balance", "--database-url-file=f"}, test.arguments...)...)
		if test.problem == "" && (err != nil || !strings.Contains(out, test.output) || store.balanceAt.Format(time.RFC3339Nano) != test.at) {
			t.Errorf("%v: %v, asked for %s\n%s", test.arguments, err, store.balanceAt, out)
		}
		if test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%v: %v, want %q", test.arguments, err, test.problem)
		}
	}
}
