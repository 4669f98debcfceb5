package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// LedgerReader is what the commands read of the ledger.
type LedgerReader interface {
	StatementReader
	DiscrepancyReader
	Auditor
	// Account returns the row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
	// Close ends the connection.
	Close()
}

// ledgerAccess is how one command reaches the ledger: where it is, how long to wait for it, how to write the answer.
type ledgerAccess struct {
	open            func(ctx context.Context, databaseURLFile string) (LedgerReader, error)
	databaseURLFile string
	timeout         time.Duration
	format          string
}

// addAccess gives a command the flags of every command that reads the ledger. Timeout is how long it waits by default.
func addAccess(command *cobra.Command, deps Dependencies, timeout time.Duration) *ledgerAccess {
	access := &ledgerAccess{open: deps.OpenLedger}
	command.Flags().StringVar(&access.databaseURLFile, "database-url-file", "", "File with the PostgreSQL URL of the ledger.")
	command.Flags().DurationVar(&access.timeout, "timeout", timeout, "How long to wait for the database.")
	outputFlag(command, &access.format)
	return access
}

// read opens the ledger for one answer.
func (a *ledgerAccess) read(command *cobra.Command, answer func(ctx context.Context, store LedgerReader) error) error {
	if err := checkFormat(a.format); err != nil {
		return err
	}
	if a.databaseURLFile == "" {
		return errors.New("--database-url-file is missing: name a file that holds the ledger's PostgreSQL URL, of a role that may read it")
	}
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout=%s: want more than 0, such as 30s", a.timeout)
	}
	ctx, cancel := context.WithTimeout(command.Context(), a.timeout)
	defer cancel()
	store, err := a.open(ctx, a.databaseURLFile)
	if err != nil {
		return err
	}
	defer store.Close()
	err = answer(ctx, store)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w; it was waited for %s, see --timeout", err, a.timeout)
	}
	return err
}

// write writes an answer in the format asked for: value as JSON, or what text writes.
func write(command *cobra.Command, format string, value any, text func(io.Writer) error) error {
	if format == jsonFormat {
		return writeJSON(command.OutOrStdout(), value)
	}
	return text(command.OutOrStdout())
}

func unknownAccount(name string) error { return fmt.Errorf("the ledger knows no account %q", name) }
