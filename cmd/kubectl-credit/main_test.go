package main

import (
	"bytes"
	"path/filepath"
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
	expect := func(code int, wants string, arguments ...string) {
		t.Helper()
		command := cli.NewCommand(cli.Dependencies{OpenLedger: openLedger, Now: time.Now})
		var out bytes.Buffer
		command.SetOut(&out)
		command.SetArgs(append(arguments, "--database-url-file="+file))
		err := command.ExecuteContext(t.Context())
		if cli.ExitCode(err) != code || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), wants) {
			t.Errorf("%v: exit code %d, %v, want %d and %q\n%s", arguments, cli.ExitCode(err), err, code, wants, out.String())
		}
		t.Logf("%v\n%s", arguments, out.String())
	}
	expect(0, "GPUCountDiffers account team-a pod UID pod ledger 2 GPUs allocated other 1 GPUs held: GPU-1", "discrepancies", "team-a")
	expect(0, "over 1 account, 1 reservation, 1 allocation, 1 interval and 2 entries.", "audit")
	expect(0, "closing balance", "statement", "team-a")

	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "UPDATE account SET balance = balance + 1"); err != nil {
		t.Fatal(err)
	}
	expect(1, "account team-a: balance is 990000001", "audit")
}
