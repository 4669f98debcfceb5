package cli

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestAuditOfASoundLedger(t *testing.T) {
	t.Parallel()
	out, err := run(t, &reader{}, "audit", "--database-url-file=f")
	const want = `The ledger is sound: all its invariants hold over 1 account, 340 reservations,
402 allocations, 98,765 intervals and 1,234,567 entries.
`
	if ExitCode(err) != 0 || out != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out, want)
	}
	out, err = run(t, &reader{}, "audit", "--database-url-file=f", "-o=json")
	if err != nil || !strings.Contains(out, `"sound": true`) || !strings.Contains(out, `"violations": []`) || !strings.Contains(out, `"entries": 1234567`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAuditOfABrokenLedger(t *testing.T) {
	t.Parallel()
	broken := []ledger.Violation{
		{Invariant: "I10", Subject: "ledger", Detail: "accounts hold 8, issued 10 less revenue 1"},
		{Invariant: "I2", Subject: "account team-a", Detail: "says {Balance:8 Reserved:0}, entries and open reservations add up to {Balance:9 Reserved:0}"},
		{Invariant: "I2", Subject: "account team-b", Detail: "says {Balance:1}, entries and open reservations add up to {Balance:2}"},
	}
	out, err := run(t, &reader{violations: broken}, "audit", "--database-url-file=f")
	const want = `The ledger is NOT sound: 3 violations in 1 account, 340 reservations, 402
allocations, 98,765 intervals and 1,234,567 entries. Amounts are in
microcredits, 1,000,000 to a credit.

I2  A stored sum is not what the entries and open reservations add up to. The
    entries are the truth; balances shown and holds allowed until this is
    repaired are wrong.
    - account team-a: says {Balance:8 Reserved:0}, entries and open reservations
      add up to {Balance:9 Reserved:0}
    - account team-b: says {Balance:1}, entries and open reservations add up to
      {Balance:2}

I10  Credits appeared or vanished: the accounts do not hold what was granted
     less what was charged, or an entry names an account that does not exist. No
     balance can be trusted until it is found.
    - ledger: accounts hold 8, issued 10 less revenue 1
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if ExitCode(err) != 1 || err.Error() != "the ledger is not sound: 3 violations" {
		t.Errorf("exit code %d, %v", ExitCode(err), err)
	}

	out, err = run(t, &reader{violations: broken[:1]}, "audit", "--database-url-file=f", "-o", "json")
	var got auditResult
	if problem := json.Unmarshal([]byte(out), &got); problem != nil || got.Sound || len(got.Violations) != 1 || got.Violations[0].String() != broken[0].String() {
		t.Errorf("%v, %+v\n%s", problem, got, out)
	}
	if ExitCode(err) != 1 {
		t.Errorf("exit code %d, %v", ExitCode(err), err)
	}
}

// No answer is not taken for a bad one.
func TestAuditThatFails(t *testing.T) {
	t.Parallel()
	out, err := run(t, &reader{err: errors.New("the database is away")}, "audit", "--database-url-file=f")
	if ExitCode(err) != 2 || !strings.Contains(err.Error(), "the database is away") || out != "" {
		t.Errorf("exit code %d, %v\n%s", ExitCode(err), err, out)
	}
	if _, err := run(t, &reader{}, "audit", "team-a", "--database-url-file=f"); ExitCode(err) != 2 {
		t.Errorf("an argument: %v", err)
	}
}

// Each invariant that the ledger documents is explained.
func TestEveryInvariantHasAMeaning(t *testing.T) {
	t.Parallel()
	invariants := regexp.MustCompile(`(?m)^//\t(I\d+) `).FindAllStringSubmatch(ledgerSource(t, "doc.go"), -1)
	if len(invariants) < 10 {
		t.Fatalf("found %d invariants", len(invariants))
	}
	for _, invariant := range invariants {
		if strings.Contains(invariantMeaning(invariant[1]), "does not know") {
			t.Errorf("%s has no meaning", invariant[1])
		}
	}
}
