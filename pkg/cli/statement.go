package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// StatementReader reads an account's statement from the ledger.
type StatementReader interface {
	// Statement covers [from, to) by the time that movements were recorded. An account without any has an empty one.
	Statement(ctx context.Context, account string, from, to time.Time) (ledger.Statement, error)
}

func statementCommand(deps Dependencies) *cobra.Command {
	var from, to string
	var access *ledgerAccess
	command := &cobra.Command{
		Use:   "statement ACCOUNT",
		Short: "Show an account's movements and workloads over a period (needs read access to the ledger's database)",
		Long: "Show an account's movements and workloads over a period: opening balance, every entry, closing balance.\n\n" +
			"It is read from the ledger's PostgreSQL database, not through the API server, so it needs a role that may read\n" +
			"that database. It changes nothing.\n\n" +
			"Times are UTC, as 2006-01-02 or RFC 3339. The period includes --from and excludes --to.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			period, err := parsePeriod(from, to, deps.Now())
			if err != nil {
				return err
			}
			return access.read(command, func(ctx context.Context, store LedgerReader) error {
				statement, err := readStatement(ctx, store, arguments[0], period)
				if err != nil {
					return err
				}
				return write(command, access.format, statement, statement.WriteText)
			})
		},
	}
	command.Flags().StringVar(&from, "from", "", "Start of the period; the beginning of this month if empty.")
	command.Flags().StringVar(&to, "to", "", "End of the period; now if empty.")
	access = addAccess(command, deps, readTimeout)
	return command
}

func readStatement(ctx context.Context, store LedgerReader, account string, over period) (ledger.Statement, error) {
	if _, known, err := store.Account(ctx, account); err != nil {
		return ledger.Statement{}, fmt.Errorf("read account %s: %w", account, err)
	} else if !known {
		return ledger.Statement{}, unknownAccount(account)
	}
	statement, err := store.Statement(ctx, account, over.from, over.to)
	if err != nil {
		return ledger.Statement{}, fmt.Errorf("read the statement of account %s: %w", account, err)
	}
	return statement, nil
}

// readTimeout bounds the wait for the database, which may be away.
const readTimeout = 30 * time.Second

// period is [from, to).
type period struct{ from, to time.Time }

// parsePeriod reads both ends; an empty from is the beginning of now's month, an empty to is now.
func parsePeriod(from, to string, now time.Time) (period, error) {
	now = now.UTC()
	p := period{from: time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC), to: now}
	var err error
	if from != "" {
		if p.from, err = parseTime(from); err != nil {
			return period{}, fmt.Errorf("--from: %w", err)
		}
	}
	if to != "" {
		if p.to, err = parseTime(to); err != nil {
			return period{}, fmt.Errorf("--to: %w", err)
		}
	}
	if !p.from.Before(p.to) {
		return period{}, fmt.Errorf("the period from %s to %s is empty", p.from.Format(time.RFC3339), p.to.Format(time.RFC3339))
	}
	return p, nil
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a day such as 2026-03-01 nor a time such as 2026-03-01T08:00:00Z", text)
}
