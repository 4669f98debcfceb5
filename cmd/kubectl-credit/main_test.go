package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/cli"
	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// What operators read of a real ledger, before and after somebody breaks it behind the ledger's back.
func TestReadsARealLedger(t *testing.T) {
	t.Parallel()
	url := clustertest.Database(t)
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.AcquireLeadership(t.Context(), lt.Leader, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.RegisterNodeAgent(t.Context(), lt.Node, "test"); err != nil {
		t.Fatal(err)
	}
	// The pod was allocated two GPUs, and its node reports one.
	for _, command := range []ledger.Command{
		lt.Account("team-a", "", 0), lt.Rate(), lt.Grant("g", "team-a", 1_000), lt.Hold("job", "team-a", 2, 100),
		lt.Allocate("pod", "job", "team-a", 2), lt.Interval("pod", 0, 0, 5, "GPU-1"),
	} {
		if verdict, err := store.Submit(t.Context(), command); err != nil || verdict.Refusal != nil {
			t.Fatalf("%s: %v, %v", command.CommandKey(), verdict.Refusal, err)
		}
	}

	file := filepath.Join(t.TempDir(), "database-url")
	// The reader's rights suffice.
	if err := cluster.WriteURLFile(file, clustertest.URLAs(t, cluster.ReaderRole, url)); err != nil {
		t.Fatal(err)
	}
	// But for unfreezing and rebuilding; a rehearsal needs no more either.
	writers := filepath.Join(t.TempDir(), "writers-url")
	if err := cluster.WriteURLFile(writers, clustertest.URLAs(t, cluster.ControllerRole, url)); err != nil {
		t.Fatal(err)
	}
	expect := func(code int, wants string, arguments ...string) string {
		t.Helper()
		command := cli.NewCommand(cli.Dependencies{OpenLedger: openLedger, OpenWriter: openWriter, Quote: quote, Now: time.Now})
		var out bytes.Buffer
		command.SetOut(&out)
		if (arguments[0] == "unfreeze" || arguments[0] == "rebuild") && slices.Contains(arguments, "--commit") {
			arguments = append(arguments, "--database-url-file="+writers)
		} else {
			arguments = append(arguments, "--database-url-file="+file)
		}
		command.SetArgs(arguments)
		err := command.ExecuteContext(t.Context())
		if cli.ExitCode(err) != code || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), wants) {
			t.Errorf("%v: exit code %d, %v, want %d and %q\n%s", arguments, cli.ExitCode(err), err, code, wants, out.String())
		}
		t.Logf("%v\n%s", arguments, out.String())
		return out.String()
	}
	expect(0, "GPUCountDiffers account team-a pod UID pod ledger 2 GPUs allocated other 1 GPUs held: GPU-1", "discrepancies", "team-a")
	expect(0, "over 1 account, 1 reservation, 1 allocation, 1 interval and 2 entries.", "audit")
	expect(0, "closing balance +990 990", "statement", "team-a", "--from=2026-01-01", "--to=2100-01-01")
	expect(0, "entry,2,", "statement", "team-a", "-o=csv", "--zone=Europe/Berlin", "--to=2100-01-01")
	expect(0, `"closing_microcredits": 990000000`, "statement", "team-a", "-o=json", "--to=2100-01-01", "--limit=2")
	expect(0, "team-a 2026-01-01T00:00:00+01:00 0", "balance", "team-a", "--as-of=2026-01-01", "--zone=Europe/Berlin")
	expect(0, "No credits of account team-a expire; its balance is 990.", "lots", "team-a")
	expect(0, "total 10", "spend", "team-a", "--by=month", "--to=2100-01-01")
	expect(0, "Every sum is what the entries and open reservations add up to.", "rebuild")
	expect(0, "0 sealed entries agree with the chains of their accounts; 2 entries are not sealed yet", "audit")
	for sealed := int64(0); sealed < 2; {
		result, err := store.Seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sealed += result.Entries
	}
	heads := filepath.Join(t.TempDir(), "heads")
	if err := os.WriteFile(heads, []byte(expect(0, "team-a 2 ", "audit", "--heads")), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(0, "2 sealed entries agree with the chains of their accounts, and these with 1 pinned head; 0 entries are not sealed yet", "audit", "--verify-heads="+heads)
	expect(2, "", "audit", "--verify-heads="+file)
	expect(2, "", "audit", "--heads", "--verify-heads="+heads)

	// An account that an audit froze goes on when a person says so, and not by a rehearsal.
	expect(2, "", "unfreeze", "team-a", "--reason=r", "--by=b") // it is not frozen
	if verdict, err := store.Submit(t.Context(), ledger.FreezeAccount{Key: "f", Account: "team-a", Reason: "audit found something"}); err != nil || verdict.Refusal != nil {
		t.Fatal(verdict.Refusal, err)
	}
	expect(2, "", "unfreeze", "team-a", "--by=b")
	expect(2, "", "unfreeze", "team-x", "--reason=r", "--by=b")
	expect(0, "is frozen: audit found something An audit just now finds nothing wrong with it. Nothing was changed.", "unfreeze", "team-a", "--reason=r", "--by=b")
	if account, _, err := store.Account(t.Context(), "team-a"); err != nil || account.Frozen == "" {
		t.Errorf("unfrozen by a rehearsal: %+v, %v", account, err)
	}
	expect(0, "Account team-a may hold and move credits again.", "unfreeze", "team-a", "--reason=r", "--by=b", "--commit")
	if account, _, err := store.Account(t.Context(), "team-a"); err != nil || account.Frozen != "" {
		t.Errorf("still frozen: %+v, %v", account, err)
	}

	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "UPDATE account SET balance = balance + 1"); err != nil {
		t.Fatal(err)
	}
	expect(1, "account team-a: balance is 990000001, should be 990000000, by its entries and open reservations", "audit")
	expect(0, "account team-a: balance is 990000001, should be 990000000", "rebuild")
	expect(1, "The ledger is NOT sound", "audit") // that was a rehearsal
	expect(0, "Committed: 1 row was changed.", "rebuild", "--commit")
	expect(0, "The ledger is sound", "audit")
}
