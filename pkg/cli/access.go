package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// LedgerReader is what the commands read of the ledger. A role that may only read is enough, on a replica, too.
type LedgerReader interface {
	StatementReader
	HoldingsReader
	DiscrepancyReader
	Auditor
	Quoter
	// Account returns the row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
}

// Ledger is an open connection to the ledger.
type Ledger interface {
	LedgerReader
	Rebuilder
	// Close ends the connection.
	Close()
}

// fromDatabase is what the help of every command says that reads the ledger.
const fromDatabase = "It is read from the ledger's PostgreSQL database, not through the API server, so it needs a role that may read\n" +
	"that database. It changes nothing."

// readTimeout bounds the wait for a short answer of the database, which may be away.
const readTimeout = 30 * time.Second

// ledgerAccess is how one command reaches the ledger: where it is, how long to wait for it, how to write the answer.
type ledgerAccess struct {
	open            func(ctx context.Context, databaseURLFile string) (Ledger, error)
	databaseURLFile string
	timeout         time.Duration
	format          string
	formats         []string
}

// addAccess gives a command the flags of every command that reads the ledger. Timeout is how long it waits by default;
// formats are those it has beside text and JSON.
func addAccess(command *cobra.Command, deps Dependencies, timeout time.Duration, formats ...string) *ledgerAccess {
	access := &ledgerAccess{open: deps.OpenLedger, formats: formats}
	command.Flags().StringVar(&access.databaseURLFile, "database-url-file", "", "File with the PostgreSQL URL of the ledger.")
	command.Flags().DurationVar(&access.timeout, "timeout", timeout, "How long to wait for the database.")
	outputFlag(command, &access.format, formats...)
	return access
}

// read opens the ledger for one answer.
func (a *ledgerAccess) read(command *cobra.Command, answer func(ctx context.Context, store LedgerReader) error) error {
	return a.use(command, func(ctx context.Context, store Ledger) error { return answer(ctx, store) })
}

// use is read for what may change the ledger.
func (a *ledgerAccess) use(command *cobra.Command, answer func(ctx context.Context, store Ledger) error) error {
	if err := checkFormat(a.format, a.formats...); err != nil {
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

// outputFlag lets a command write text, JSON, or one of more formats.
func outputFlag(command *cobra.Command, format *string, more ...string) {
	command.Flags().StringVarP(format, "output", "o", text, "Format: "+choices(more)+".")
}

func checkFormat(format string, more ...string) error {
	if format != text && format != jsonFormat && !slices.Contains(more, format) {
		return fmt.Errorf("--output=%s: use %s", format, choices(more))
	}
	return nil
}

func choices(more []string) string {
	all := append([]string{text}, more...)
	return strings.Join(all, ", ") + " or " + jsonFormat
}

func unknownAccount(name string) error { return fmt.Errorf("the ledger knows no account %q", name) }
