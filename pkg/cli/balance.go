package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func balanceCommand(where *cluster, deps Dependencies) *cobra.Command {
	var asOf, zone string
	var access *ledgerAccess
	command := &cobra.Command{
		Use:   "balance [ACCOUNT]",
		Short: "Show what accounts have available, reserved and charged",
		Long: "Show what accounts have available, reserved and charged, as CreditAccounts' status says: about a second behind the ledger.\n" +
			"Available is the balance less what open reservations set aside. A job may need less than that and still be refused,\n" +
			"when an account above has less.\n\n" +
			"With --as-of, an account's balance as of a past moment, exactly: what the entries recorded before it add up to. That is\n" +
			"read from the ledger's PostgreSQL database, so it needs a role that may read it (--database-url-file).",
		Example: "  kubectl credit balance team-a\n" +
			"  kubectl credit balance team-a --as-of 2026-11-01 --zone Europe/Berlin --database-url-file FILE",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, names []string) error {
			if asOf != "" {
				return balanceAsOf(command, deps, access, names, asOf, zone)
			}
			if err := checkFormat(access.format); err != nil {
				return err
			}
			api, err := where.client()
			if err != nil {
				return err
			}
			accounts, err := readAccounts(command.Context(), api, names)
			if err != nil {
				return err
			}
			balances := balancesOf(accounts)
			return write(command, access.format, balances, func(out io.Writer) error { return writeBalances(out, balances) })
		},
	}
	command.Flags().StringVar(&asOf, "as-of", "", "A past moment, as a day (its beginning) or an RFC 3339 time.")
	command.Flags().StringVar(&zone, "zone", "UTC", "Time zone in which the day of --as-of begins, such as Europe/Berlin.")
	access = addAccess(command, deps, readTimeout)
	return command
}

// pastBalance is an account's balance as of a moment, as JSON has it.
type pastBalance struct {
	Account string              `json:"account"`
	AsOf    time.Time           `json:"as_of"`
	Balance ledger.Microcredits `json:"balance_microcredits"`
}

func balanceAsOf(command *cobra.Command, deps Dependencies, access *ledgerAccess, names []string, asOf, zoneName string) error {
	if len(names) != 1 {
		return errors.New("--as-of is about one account; name it")
	}
	zone, err := parseZone(zoneName)
	if err != nil {
		return err
	}
	at, err := parseTime(asOf, zone)
	if err != nil {
		return fmt.Errorf("--as-of: %w", err)
	}
	if at.After(deps.Now()) {
		return fmt.Errorf("--as-of: %s has not come yet", at.In(zone).Format(time.RFC3339))
	}
	return access.read(command, func(ctx context.Context, store LedgerReader) error {
		if err := checkKnown(ctx, store, names[0]); err != nil {
			return err
		}
		amount, _, err := store.BalanceAt(ctx, names[0], at)
		if err != nil {
			return fmt.Errorf("read the balance of account %s: %w", names[0], err)
		}
		past := pastBalance{Account: names[0], AsOf: at, Balance: amount}
		return write(command, access.format, past, func(out io.Writer) error {
			return table(out, 2, [][]string{{"ACCOUNT", "AS OF", "BALANCE"}, {past.Account, at.In(zone).Format(time.RFC3339), ledger.DisplayCredits(amount)}})
		})
	})
}

func readAccounts(ctx context.Context, api client.Reader, names []string) ([]v1alpha1.CreditAccount, error) {
	if len(names) == 1 {
		account := v1alpha1.CreditAccount{}
		err := api.Get(ctx, client.ObjectKey{Name: names[0]}, &account)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no CreditAccount %q; kubectl credit balance lists those that are", names[0])
		}
		if err != nil {
			return nil, fmt.Errorf("read CreditAccount %s: %w", names[0], err)
		}
		return []v1alpha1.CreditAccount{account}, nil
	}
	list := v1alpha1.CreditAccountList{}
	if err := api.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list CreditAccounts: %w", err)
	}
	return list.Items, nil
}

// balance is one account's line. Amounts are exact decimal credits; empty until the ledger has answered.
type balance struct {
	Account   string           `json:"account"`
	Parent    string           `json:"parent,omitempty"`
	Available v1alpha1.Credits `json:"available,omitempty"`
	Reserved  v1alpha1.Credits `json:"reserved,omitempty"`
	Balance   v1alpha1.Credits `json:"balance,omitempty"`
	Charged   v1alpha1.Credits `json:"charged,omitempty"`
}

func balancesOf(accounts []v1alpha1.CreditAccount) []balance {
	balances := make([]balance, 0, len(accounts))
	for _, account := range accounts {
		balances = append(balances, balance{
			Account: account.Name, Parent: account.Spec.Parent, Available: account.Status.Available,
			Reserved: account.Status.Reserved, Balance: account.Status.Balance, Charged: account.Status.Charged,
		})
	}
	slices.SortFunc(balances, func(a, b balance) int { return cmp.Compare(a.Account, b.Account) })
	return balances
}

func writeBalances(out io.Writer, balances []balance) error {
	if len(balances) == 0 {
		_, err := fmt.Fprintln(out, "There are no CreditAccounts.")
		return err
	}
	rows := [][]string{{"ACCOUNT", "PARENT", "AVAILABLE", "RESERVED", "BALANCE", "CHARGED"}}
	for _, b := range balances {
		rows = append(rows, []string{b.Account, cmp.Or(b.Parent, "-"),
			display(b.Available), display(b.Reserved), display(b.Balance), display(b.Charged)})
	}
	return table(out, 2, rows)
}

// display writes an amount for people, and what cannot be read as it is.
func display(credits v1alpha1.Credits) string {
	if credits == "" {
		return "-"
	}
	amount, err := ledger.ParseCredits(string(credits))
	if err != nil {
		return string(credits)
	}
	return ledger.DisplayCredits(amount)
}
