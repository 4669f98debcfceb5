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

func TestParsePeriod(t *testing.T) {
	day := func(d int) time.Time { return time.Date(2026, 3, d, 0, 0, 0, 0, time.UTC) }
	for _, test := range []struct {
		from, to string
		want     period
		problem  string
	}{
		{"", "", period{day(1), now}, ""},
		{"2026-03-02", "2026-03-03", period{day(2), day(3)}, ""},
		{"2026-03-02T01:00:00+01:00", "", period{day(2), now}, ""},
		{"2026-03-02", "2026-03-02", period{}, "is empty"},
		{"yesterday", "", period{}, `--from: "yesterday" is neither`},
		{"", "2026-02-30", period{}, `--to: "2026-02-30" is neither`},
	} {
		got, err := parsePeriod(test.from, test.to, now)
		if test.problem == "" && (err != nil || got != test.want) {
			t.Errorf("%q to %q: %v, %v; want %v", test.from, test.to, got, err, test.want)
		}
		if test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%q to %q: %v, want %q", test.from, test.to, err, test.problem)
		}
	}
}

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

// reader has one account, what the test puts in, and remembers what it was asked.
type reader struct {
	from, to      time.Time
	discrepancies []ledger.Discrepancy
	violations    []ledger.Violation
	err           error
	closed        bool
}

func (r *reader) Account(_ context.Context, name string) (ledger.Account, bool, error) {
	return ledger.Account{Name: name}, name == "team-a", nil
}

func (r *reader) Statement(_ context.Context, account string, from, to time.Time) (ledger.Statement, error) {
	r.from, r.to = from, to
	return ledger.Statement{Account: account, From: from, To: to, Closing: 5 * ledger.Credit}, nil
}

func (r *reader) Discrepancies(context.Context) ([]ledger.Discrepancy, error) {
	return r.discrepancies, r.err
}

func (r *reader) Audit(context.Context) ([]ledger.Violation, error) { return r.violations, r.err }

func (r *reader) Size(context.Context) (ledger.Size, error) {
	return ledger.Size{Accounts: 1, Reservations: 340, Allocations: 402, Intervals: 98_765, Entries: 1_234_567}, nil
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
	command := NewCommand(Dependencies{
		OpenLedger: func(context.Context, string) (LedgerReader, error) { return store, nil },
		Now:        func() time.Time { return now },
	})
	var out bytes.Buffer
	command.SetOut(&out)
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
		{[]string{"team-a", "--database-url-file=f"}, "team-a", ""},
		{[]string{"team-b", "--database-url-file=f"}, "", `the ledger knows no account "team-b"`},
		{[]string{"team-a"}, "", "--database-url-file is missing"},
		{[]string{"team-a", "--database-url-file=f", "-o", "yaml"}, "", "use text or json"},
		{[]string{"team-a", "--database-url-file=f", "--timeout=0s"}, "", "want more than 0"},
		{nil, "", "accepts 1 arg(s)"},
	} {
		store := &reader{}
		out, err := run(t, store, append([]string{"statement"}, test.arguments...)...)
		if test.problem == "" && (err != nil || !strings.Contains(out, test.output) || !store.to.Equal(now) || !store.closed) {
			t.Errorf("%v: %v, to %s, closed: %v\n%s", test.arguments, err, store.to, store.closed, out)
		}
		if test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%v: %v, want %q", test.arguments, err, test.problem)
		}
	}
}
