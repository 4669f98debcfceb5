package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// HoldingsReader reads what an account has and what it spent.
type HoldingsReader interface {
	// Lots returns those with credits left, in the order in which they expire.
	Lots(ctx context.Context, account string) ([]ledger.Lot, error)
	// Spending returns the account's own charges less refunds by the UTC days that begin in [from, to), in order.
	Spending(ctx context.Context, account string, from, to time.Time) ([]ledger.DailySpending, error)
	// AccountPath returns the account and every one above it; none if there is no such account.
	AccountPath(ctx context.Context, name string) ([]ledger.Account, error)
}

func lotsCommand(deps Dependencies) *cobra.Command {
	var access *ledgerAccess
	command := &cobra.Command{
		Use:   "lots ACCOUNT",
		Short: "Show which of an account's credits expire when (needs read access to the ledger's database)",
		Long: "Show which of an account's credits expire when, and which stay. Those that expire first are used first. What is free\n" +
			"when its time comes leaves the account; what is set aside for a job stays usable by that job.\n\n" + fromDatabase,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return access.read(command, func(ctx context.Context, store LedgerReader) error {
				found, err := readLots(ctx, store, arguments[0], deps.Now())
				if err != nil {
					return err
				}
				return write(command, access.format, found, found.writeText)
			})
		},
	}
	access = addAccess(command, deps, readTimeout)
	return command
}

// lotsResult is what an account has, as JSON has it.
type lotsResult struct {
	Account string    `json:"account"`
	AsOf    time.Time `json:"as_of"`
	// Balance is Permanent and every lot's Free and Held.
	Balance ledger.Microcredits `json:"balance_microcredits"`
	// Permanent does not expire; below zero when more was used than there was.
	Permanent ledger.Microcredits `json:"permanent_microcredits"`
	Lots      []lot               `json:"lots"`
}

type lot struct {
	Key       string              `json:"key"`
	ExpiresAt time.Time           `json:"expires_at"`
	Amount    ledger.Microcredits `json:"amount_microcredits"`
	Free      ledger.Microcredits `json:"free_microcredits"`
	Held      ledger.Microcredits `json:"held_microcredits"`
}

func readLots(ctx context.Context, store LedgerReader, account string, now time.Time) (lotsResult, error) {
	if err := checkKnown(ctx, store, account); err != nil {
		return lotsResult{}, err
	}
	lots, err := store.Lots(ctx, account)
	if err != nil {
		return lotsResult{}, fmt.Errorf("read the lots of account %s: %w", account, err)
	}
	row, _, err := store.Account(ctx, account)
	if err != nil {
		return lotsResult{}, fmt.Errorf("read account %s: %w", account, err)
	}
	result := lotsResult{Account: account, AsOf: now.UTC(), Balance: row.Balance, Permanent: row.Balance, Lots: []lot{}}
	for _, l := range lots {
		result.Permanent -= l.Free + l.Held
		result.Lots = append(result.Lots, lot{Key: l.Key, ExpiresAt: l.ExpiresAt, Amount: l.Amount, Free: l.Free, Held: l.Held})
	}
	return result, nil
}

func (r lotsResult) writeText(out io.Writer) error {
	credits := ledger.DisplayCredits
	if len(r.Lots) == 0 {
		_, err := io.WriteString(out, paragraph("", fmt.Sprintf("No credits of account %s expire; its balance is %s.", r.Account, credits(r.Balance))))
		return err
	}
	if _, err := fmt.Fprintf(out, "Credits of account %s that expire, the first to be used first, times in UTC\n\n", r.Account); err != nil {
		return err
	}
	rows := [][]string{{"EXPIRES", "IN", "GRANT", "GRANTED", "FREE", "HELD"}}
	for _, l := range r.Lots {
		rows = append(rows, []string{l.ExpiresAt.UTC().Format(time.DateTime), remaining(l.ExpiresAt.Sub(r.AsOf)), printable(l.Key),
			credits(l.Amount), credits(l.Free), credits(l.Held)})
	}
	if err := table(out, 3, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s more do not expire; the balance is %s.\n", credits(r.Permanent), credits(r.Balance))
	return err
}

// remaining says how long it is until something expires, to the unit that matters.
func remaining(left time.Duration) string {
	switch {
	case left <= 0:
		return "due"
	case left < time.Hour:
		return strings.TrimSuffix(left.Round(time.Minute).String(), "0s")
	case left < 48*time.Hour:
		return fmt.Sprintf("%dh", int(left.Hours()))
	}
	return fmt.Sprintf("%dd", int(left.Hours())/24)
}
