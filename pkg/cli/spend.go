package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func spendCommand(deps Dependencies) *cobra.Command {
	var flags periodFlags
	var by string
	var access *ledgerAccess
	command := &cobra.Command{
		Use:   "spend ACCOUNT",
		Short: "Show what an account's own workloads were charged by day, week or month (needs read access to the ledger's database)",
		Long: "Show what an account's own workloads were charged, less refunds, by when it was recorded, whoever paid for them. Spending\n" +
			"limits count the same days. They are days of UTC: the ledger keeps no finer sums, and a statement has every entry.\n\n" + fromDatabase,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			each, err := parseBy(by)
			if err != nil {
				return err
			}
			over, _, err := flags.parse(deps.Now())
			if err != nil {
				return err
			}
			return access.read(command, func(ctx context.Context, store LedgerReader) error {
				found, err := readSpending(ctx, store, arguments[0], over, each)
				if err != nil {
					return err
				}
				if access.format == csvFormat {
					return found.writeCSV(command.OutOrStdout())
				}
				return write(command, access.format, found, found.writeText)
			})
		},
	}
	command.Flags().StringVar(&by, "by", "day", "Sums by "+strings.Join(byNames(), ", ")+".")
	flags.add(command, false)
	access = addAccess(command, deps, readTimeout, csvFormat)
	return command
}

func byNames() []string {
	var names []string
	for _, p := range ledger.Periods {
		names = append(names, strings.ToLower(string(p)))
	}
	return names
}

func parseBy(by string) (ledger.Period, error) {
	for _, p := range ledger.Periods {
		if strings.EqualFold(by, string(p)) {
			return p, nil
		}
	}
	return "", fmt.Errorf("--by=%s: use one of %s", by, strings.Join(byNames(), ", "))
}

// spendResult is what an account spent, as JSON has it.
type spendResult struct {
	Account string `json:"account"`
	// From and To are the days asked for, [From, To).
	From  time.Time           `json:"from"`
	To    time.Time           `json:"to"`
	By    ledger.Period       `json:"by"`
	Total ledger.Microcredits `json:"total_microcredits"`
	Spent []spent             `json:"spent"`
}

// spent is the part of one calendar period that lies in the days asked for; those without spending are left out.
type spent struct {
	Start  time.Time           `json:"start"`
	Amount ledger.Microcredits `json:"microcredits"`
}

func readSpending(ctx context.Context, store LedgerReader, account string, over period, by ledger.Period) (spendResult, error) {
	// The day in which the period begins counts whole, and so does the one in which it ends.
	from, to := ledger.PeriodDay.Start(over.from), ledger.PeriodDay.Next(over.to.Add(-time.Nanosecond))
	result := spendResult{Account: account, From: from, To: to, By: by, Spent: []spent{}}
	if err := checkKnown(ctx, store, account); err != nil {
		return result, err
	}
	days, err := store.Spending(ctx, account, from, to)
	if err != nil {
		return result, fmt.Errorf("read the spending of account %s: %w", account, err)
	}
	for _, day := range days {
		result.Total += day.Amount
		start := by.Start(day.Day)
		if last := len(result.Spent) - 1; last >= 0 && result.Spent[last].Start.Equal(start) {
			result.Spent[last].Amount += day.Amount
			continue
		}
		result.Spent = append(result.Spent, spent{Start: start, Amount: day.Amount})
	}
	return result, nil
}

func (r spendResult) writeText(out io.Writer) error {
	days := fmt.Sprintf("%s to %s (UTC, both included)", r.From.Format(time.DateOnly), r.To.AddDate(0, 0, -1).Format(time.DateOnly))
	if len(r.Spent) == 0 {
		_, err := io.WriteString(out, paragraph("", fmt.Sprintf("Account %s spent nothing from %s.", r.Account, days)))
		return err
	}
	if _, err := fmt.Fprintf(out, "Credits spent by account %s, %s\n\n", r.Account, days); err != nil {
		return err
	}
	rows := [][]string{{strings.ToUpper(string(r.By)), "CREDITS"}}
	for _, s := range r.Spent {
		rows = append(rows, []string{r.label(s.Start), ledger.DisplayCredits(s.Amount)})
	}
	rows = append(rows, []string{"total", ledger.DisplayCredits(r.Total)})
	return table(out, 1, rows)
}

// label names a calendar period.
func (r spendResult) label(start time.Time) string {
	switch r.By {
	case ledger.PeriodWeek:
		year, week := start.ISOWeek()
		return fmt.Sprintf("%d-W%02d, from %s", year, week, start.Format(time.DateOnly))
	case ledger.PeriodMonth:
		return start.Format("2006-01")
	case ledger.PeriodQuarter:
		return fmt.Sprintf("%d Q%d", start.Year(), (int(start.Month())+2)/3)
	case ledger.PeriodYear:
		return start.Format("2006")
	}
	return start.Format(time.DateOnly)
}

// writeCSV has a row per calendar period, by its first day.
func (r spendResult) writeCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	rows := [][]string{{"account", "by", "start", "credits"}}
	for _, s := range r.Spent {
		rows = append(rows, []string{r.Account, strings.ToLower(string(r.By)), s.Start.Format(time.DateOnly), ledger.FormatCredits(s.Amount)})
	}
	return w.WriteAll(rows)
}
