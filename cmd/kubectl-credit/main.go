// Command kubectl-credit is the kubectl plugin `kubectl credit`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/pkg/cli"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := cli.NewCommand(cli.Dependencies{OpenLedger: openLedger, OpenWriter: openWriter, Quote: quote, Now: time.Now})
	err := command.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, cli.ErrNotAdmitted) { // the quote itself says so
		fmt.Fprintln(os.Stderr, "error: "+err.Error())
	}
	os.Exit(cli.ExitCode(err))
}

func openLedger(ctx context.Context, databaseURLFile string) (cli.Ledger, error) {
	return postgres.OpenFile(ctx, databaseURLFile, postgres.Options{})
}

func openWriter(ctx context.Context, databaseURLFile string) (cli.LedgerWriter, error) {
	return postgres.OpenFile(ctx, databaseURLFile, postgres.Options{})
}
