package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// kept is what a ledger may hold, oldest first as the store returns it.
var kept = []ledger.Discrepancy{
	{
		Key: "unknown-allocation:1b4e28ba-2fa1-11d2-883f-0016d3cca427:n1", Kind: ledger.UnknownAllocation, PodUID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
		Ledger: "no allocation", Other: "node n1 metered [2026-03-02T09:00:00Z, 2026-03-02T09:01:00Z)", FoundAt: now.Add(-2 * time.Hour),
	},
	{
		Key: "gpu-twice", Kind: ledger.GPUChargedTwice, PodUID: "3d813cbb-47fb-32ba-91df-831e1593ac29", Account: "team-a",
		Ledger:  "GPU GPU-8f6d2a1e-6c0b-4a0e-9b55-1f2f3c4d5e6f metered for pod 21f7f8de-8051-5b89-8680-0195ef798b6a [2026-03-02T09:00:00.123456Z, 2026-03-02T09:01:00.123456Z)",
		Other:   "metered for pod 3d813cbb-47fb-32ba-91df-831e1593ac29 [2026-03-02T09:00:30.5Z, 2026-03-02T09:02:00Z)",
		FoundAt: now.Add(-time.Hour),
	},
	{
		Key: "end-unknown", Kind: ledger.EndUnknown, PodUID: "21f7f8de-8051-5b89-8680-0195ef798b6a", Account: "team-b",
		Ledger: "charged until 2026-03-02T09:00:30Z", Other: "node n2 was\x1b[2J deleted", FoundAt: now,
	},
}

// closed is one that a person has closed.
var closed = []ledger.Discrepancy{{
	Key: "end-unknown", Kind: ledger.EndUnknown, PodUID: "p", Account: "team-b", Ledger: "a", Other: "b", FoundAt: now,
	ResolvedAt: now.Add(time.Minute), Resolution: "the node was lost, see the log", ResolvedBy: "ops",
}}

func TestDiscrepanciesText(t *testing.T) {
	t.Parallel()
	out, err := run(t, &reader{discrepancies: kept}, "discrepancies", "--database-url-file=f")
	if err != nil {
		t.Fatal(err)
	}
	const want = `3 open discrepancies, newest first, times in UTC

2026-03-17 15:04:05  EndUnknown
  account  team-b
  pod UID  21f7f8de-8051-5b89-8680-0195ef798b6a
  ledger   charged until 2026-03-02T09:00:30Z
  other    node n2 was [2J deleted
  key      end-unknown

2026-03-17 14:04:05  GPUChargedTwice
  account  team-a
  pod UID  3d813cbb-47fb-32ba-91df-831e1593ac29
  ledger   GPU GPU-8f6d2a1e-6c0b-4a0e-9b55-1f2f3c4d5e6f metered for pod
           21f7f8de-8051-5b89-8680-0195ef798b6a [2026-03-02T09:00:00.123456Z,
           2026-03-02T09:01:00.123456Z)
  other    metered for pod 3d813cbb-47fb-32ba-91df-831e1593ac29
           [2026-03-02T09:00:30.5Z, 2026-03-02T09:02:00Z)
  key      gpu-twice

2026-03-17 13:04:05  UnknownAllocation
  pod UID  1b4e28ba-2fa1-11d2-883f-0016d3cca427
  ledger   no allocation
  other    node n1 metered [2026-03-02T09:00:00Z, 2026-03-02T09:01:00Z)
  key      unknown-allocation:1b4e28ba-2fa1-11d2-883f-0016d3cca427:n1

What they mean

EndUnknown
  The pod vanished before anyone saw it finish. It is charged until the last
  moment that somebody vouches for.

GPUChargedTwice
  One GPU was metered for two pods at once. Both are charged; an exclusive GPU
  cannot be held twice, so look at the node.

UnknownAllocation
  A node meters a pod that the ledger has not allocated there. It is not
  charged: GPUs are in use that nobody pays for.

To close one, once it is understood (credits may correct the account, either way):

  kubectl create -f - <<'EOF'
  apiVersion: gpubank.io/v1alpha1
  kind: CreditAdjustment
  metadata: {generateName: team-b-}
  spec:
    account: team-b
    credits: "0"
    discrepancy: "end-unknown"
    reason: what it was, and why this settles it
  EOF
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestDiscrepanciesCommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kept      []ledger.Discrepancy
		arguments string
		output    string
		problem   string
	}{
		{kept, "--database-url-file=f team-b", "1 open discrepancy of account team-b", ""},
		{nil, "--database-url-file=f", "There are no open discrepancies: node, scheduler, pod status and ledger agree.\n", ""},
		{kept[:1], "--database-url-file=f team-a", "There are no open discrepancies of account team-a", ""},
		{kept[2:], "--database-url-file=f -o json", `"found_at": "2026-03-17T15:04:05Z"`, ""},
		{nil, "--database-url-file=f -o json", "[]\n", ""},
		{closed, "--database-url-file=f", "There are no open discrepancies:", ""},
		{closed, "--database-url-file=f --all", "  closed   2026-03-17 15:05:05 by ops: the node was lost, see the log", ""},
		{closed, "--database-url-file=f --all -o json", `"resolved_by": "ops"`, ""},
		{kept, "--database-url-file=f nobody", "", `the ledger knows no account "nobody"`},
		{kept, "team-a", "", "--database-url-file is missing"},
		{kept, "--database-url-file=f team-a team-b", "", "accepts at most 1 arg(s)"},
	} {
		out, err := run(t, &reader{discrepancies: test.kept}, append([]string{"discrepancies"}, strings.Fields(test.arguments)...)...)
		if test.problem == "" && (err != nil || !strings.Contains(out, test.output)) {
			t.Errorf("%s: %v\n%s", test.arguments, err, out)
		}
		if test.problem != "" && (ExitCode(err) != 2 || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%s: %v, want %q", test.arguments, err, test.problem)
		}
	}
}

func TestDiscrepanciesJSON(t *testing.T) {
	t.Parallel()
	out, err := run(t, &reader{discrepancies: kept}, "discrepancies", "--database-url-file=f", "-o=json")
	if err != nil {
		t.Fatal(err)
	}
	var got []discrepancy
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []ledger.Discrepancy{kept[2], kept[1], kept[0]} {
		if ledger.Discrepancy(got[i]) != want {
			t.Errorf("got %+v, want %+v", got[i], want)
		}
	}
}

// Each kind that the ledger declares is explained.
func TestEveryKindHasAMeaning(t *testing.T) {
	t.Parallel()
	source := ledgerSource(t, "nouns.go")
	kinds := regexp.MustCompile(`DiscrepancyKind = "(\w+)"`).FindAllStringSubmatch(source, -1)
	if len(kinds) < 7 {
		t.Fatalf("found %d kinds", len(kinds))
	}
	for _, kind := range kinds {
		if strings.Contains(kindMeaning(ledger.DiscrepancyKind(kind[1])), "does not know") {
			t.Errorf("%s has no meaning", kind[1])
		}
	}
}

func ledgerSource(t *testing.T, file string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "ledger", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}
