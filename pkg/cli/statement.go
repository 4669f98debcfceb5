package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// StatementReader reads an account's statement from the ledger.
type StatementReader interface {
	// StreamStatement hands a statement to a sink as it is read, all from one snapshot. An account without any movements has an empty one.
	StreamStatement(ctx context.Context, asked ledger.StatementQuery, sink ledger.StatementSink) error
	// BalanceAt is the balance that the entries recorded before a moment add up to; false if there is no such account.
	BalanceAt(ctx context.Context, account string, at time.Time) (ledger.Microcredits, bool, error)
}

// statementTimeout bounds a statement, which may have millions of entries and a slow reader: a page on a terminal.
const statementTimeout = 10 * time.Minute

func statementCommand(deps Dependencies) *cobra.Command {
	var flags periodFlags
	var after string
	var limit int
	var everyCharge bool
	var access *ledgerAccess
	command := &cobra.Command{
		Use:   "statement ACCOUNT",
		Short: "Show an account's movements and workloads over a period (needs read access to the ledger's database)",
		Long: "Show an account's movements and workloads over a period: opening balance, every entry, closing balance. It goes by when\n" +
			"entries were recorded, so that a period's statement, once a minute has passed since its end, stays as it is.\n" +
			"What accounts above paid for the account's workloads is listed apart: it is no part of the balance.\n\n" +
			fromDatabase + "\n\n" +
			"The period includes --from and excludes --to. A day such as 2026-03-29 begins when it does in --zone, and may have 23 or\n" +
			"25 hours; the ledger itself keeps UTC.\n\n" +
			"Text is for people: the charges of one workload on one day share a line while nothing else comes between.\n" +
			"CSV (RFC 4180) has a row for every entry, exact decimal credits, RFC 3339 times in UTC, and no workloads. JSON has\n" +
			"everything, in microcredits, 1,000,000 to a credit. Each is written as it is read, however long it is.\n\n" +
			"With --limit a statement comes in pages, each of which adds up; JSON says in \"next\" what to continue with. After a broken\n" +
			"transfer, continue a CSV with the recorded_at and the entry_id of its last entry: --after=2026-03-01T08:00:00.5Z/42.",
		Example: "  kubectl credit statement team-a --month 2026-11 --zone Europe/Berlin --database-url-file FILE\n" +
			"  kubectl credit statement team-a --from 2026-11-01 --to 2026-11-08 -o csv --database-url-file FILE > team-a.csv",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			over, zone, err := flags.parse(deps.Now())
			if err != nil {
				return err
			}
			asked := ledger.StatementQuery{Account: arguments[0], From: over.from, To: over.to, Limit: limit}
			if after != "" {
				if asked.After, err = ledger.ParseStatementCursor(after); err != nil {
					return fmt.Errorf("--after: %w", err)
				}
			}
			if err := asked.Check(); err != nil {
				return err
			}
			return access.read(command, func(ctx context.Context, store LedgerReader) error {
				out := bufio.NewWriter(command.OutOrStdout())
				text := ledger.StatementText{Zone: zone, EveryCharge: everyCharge}
				err := streamStatement(ctx, store, asked, statementSink(access.format, text, out))
				if flushed := out.Flush(); err == nil {
					err = flushed
				}
				return err
			})
		},
	}
	flags.add(command, true)
	command.Flags().StringVar(&after, "after", "", "Continue behind an entry: its time of recording and its number, such as 2026-03-01T08:00:00Z/42.")
	command.Flags().IntVar(&limit, "limit", 0, "At most so many entries; 0 for all.")
	command.Flags().BoolVar(&everyCharge, "every-charge", false, "Give each charge a line of its own in text.")
	access = addAccess(command, deps, statementTimeout, csvFormat)
	return command
}

func statementSink(format string, text ledger.StatementText, out io.Writer) ledger.StatementSink {
	switch format {
	case csvFormat:
		return ledger.CSVStatement(out)
	case jsonFormat:
		return ledger.JSONStatement(out)
	}
	return text.Sink(out)
}

func streamStatement(ctx context.Context, store LedgerReader, asked ledger.StatementQuery, sink ledger.StatementSink) error {
	if err := checkKnown(ctx, store, asked.Account); err != nil {
		return err
	}
	return store.StreamStatement(ctx, asked, sink)
}

// checkKnown returns an error unless the ledger has the account.
func checkKnown(ctx context.Context, store LedgerReader, account string) error {
	if slices.Contains(ledger.SystemAccounts, account) {
		return fmt.Errorf("%s is the ledger's own other side of entries, not an account; name one that is granted credits", account)
	}
	_, known, err := store.Account(ctx, account)
	switch {
	case err != nil:
		return fmt.Errorf("read account %s: %w", account, err)
	case !known:
		return unknownAccount(account)
	}
	return nil
}
