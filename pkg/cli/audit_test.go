package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
Its history is what was written: 1,234,000 sealed entries agree with the chains
of their accounts; 567 entries are not sealed yet. An entry of two accounts
counts twice.
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

// What cannot be read as heads is said, and never passes for heads that were verified.
func TestReadPins(t *testing.T) {
	t.Parallel()
	const hash = "84e43035193fea41e17aa61ba2f7ee47f0d964f702b4275093ee45944a62cc27"
	for text, problem := range map[string]string{
		headsTitle + "\n\nteam-a 7 " + hash + "\n": "",
		"":                              "has no heads",
		headsTitle + "\n":               "has no heads",
		"team-a 7":                      "line 1: 2 fields",
		"team-a seven " + hash:          "is no number of entries",
		"team-a 0 " + hash:              "is no number of entries",
		"team-a 7 " + hash[1:]:          "hexadecimal",
		"team-a 7 " + hash + "00":       "hexadecimal",
		"# x\nteam-a 7 " + hash + "\n[": "line 3: 1 fields",
	} {
		file := filepath.Join(t.TempDir(), "heads")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		pins, err := readPins(file)
		if problem == "" && (err != nil || len(pins) != 1 || pins[0].Entries != 7 || pins[0].Hash[0] != 0x84) {
			t.Errorf("%q: %+v, %v", text, pins, err)
		}
		if problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%q: %v, want %q", text, err, problem)
		}
	}
}
