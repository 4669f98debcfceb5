package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// LedgerWriter is what unfreeze needs of the ledger.
type LedgerWriter interface {
	Auditor
	// Account returns the row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
	// Submit decides one command and returns after the commit is durable.
	Submit(ctx context.Context, command ledger.Command) (ledger.Verdict, error)
	// Close ends the connection.
	Close()
}

func unfreezeCommand(deps Dependencies) *cobra.Command {
	var databaseURLFile, reason, actor string
	var commit bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "unfreeze ACCOUNT --reason TEXT --by NAME",
		Short: "Let an account hold and move credits again that an audit has frozen (needs the controller's database role)",
		Long: "Let an account hold and move credits again that was frozen, usually by an audit that found its history or its figures\n" +
			"changed. First it audits the ledger and shows why the account is frozen and what is still wrong with it; with --commit it\n" +
			"unfreezes. What was found once does not freeze the account again, also if it is still there; anything else does.\n\n" +
			"It writes to the ledger's PostgreSQL database, so it needs the controller's role.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			for flag, value := range map[string]string{"database-url-file": databaseURLFile, "reason": reason, "by": actor} {
				if strings.TrimSpace(value) == "" {
					return fmt.Errorf("--%s is missing: the ledger keeps who unfroze an account and why", flag)
				}
			}
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			store, err := deps.OpenWriter(ctx, databaseURLFile)
			if err != nil {
				return err
			}
			defer store.Close()
			plan, err := planUnfreeze(ctx, store, arguments[0])
			if err != nil {
				return err
			}
			if _, err := fmt.Fprint(command.OutOrStdout(), plan.text()); err != nil {
				return err
			}
			if !commit {
				_, err := fmt.Fprint(command.OutOrStdout(), paragraph("", "Nothing was changed. Repeat with --commit to unfreeze it."))
				return err
			}
			return unfreeze(ctx, command, store, ledger.UnfreezeAccount{
				// Of its own each time: an account may be frozen again, and unfreezing twice does no harm.
				Key: fmt.Sprintf("unfreeze:%s:%d", plan.account, deps.Now().UnixMicro()), Account: plan.account, Reason: reason, Actor: actor,
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&databaseURLFile, "database-url-file", "", "File with the PostgreSQL URL of the ledger, for the controller's role.")
	flags.StringVar(&reason, "reason", "", "Why it may go on; kept in the ledger.")
	flags.StringVar(&actor, "by", "", "Who says so; kept in the ledger.")
	flags.BoolVar(&commit, "commit", false, "Do it. Without, only show what would be done.")
	flags.DurationVar(&timeout, "timeout", auditTimeout, "How long to wait for the database.")
	return command
}

// unfreezePlan is what a person should know before an account is unfrozen.
type unfreezePlan struct {
	account, frozen string
	violations      []ledger.Violation
}

func planUnfreeze(ctx context.Context, store LedgerWriter, name string) (unfreezePlan, error) {
	account, known, err := store.Account(ctx, name)
	switch {
	case err != nil:
		return unfreezePlan{}, fmt.Errorf("read account %s: %w", name, err)
	case !known:
		return unfreezePlan{}, unknownAccount(name)
	case account.Frozen == "":
		return unfreezePlan{}, fmt.Errorf("account %s is not frozen", name)
	}
	result, err := runAudit(ctx, store, nil)
	if err != nil {
		return unfreezePlan{}, err
	}
	plan := unfreezePlan{account: name, frozen: account.Frozen}
	for _, v := range result.Violations {
		for _, concerned := range v.Accounts {
			if concerned == name {
				plan.violations = append(plan.violations, v)
			}
		}
	}
	return plan, nil
}

func (p unfreezePlan) text() string {
	var text strings.Builder
	text.WriteString(paragraph("", "Account "+p.account+" is frozen: "+p.frozen))
	if len(p.violations) == 0 {
		text.WriteString(paragraph("", "An audit just now finds nothing wrong with it."))
	} else {
		text.WriteString(paragraph("", "An audit just now still finds "+plural(len(p.violations), "violation", "violations")+" that it is concerned by:"))
	}
	for _, v := range p.violations {
		text.WriteString(paragraph("    - ", v.String()))
	}
	return text.String()
}

func unfreeze(ctx context.Context, command *cobra.Command, store LedgerWriter, c ledger.UnfreezeAccount) error {
	verdict, err := store.Submit(ctx, c)
	if err != nil {
		return fmt.Errorf("unfreeze account %s: %w", c.Account, err)
	}
	if verdict.Refusal != nil {
		return fmt.Errorf("unfreeze account %s: %w", c.Account, verdict.Refusal)
	}
	if verdict.Account != nil && verdict.Account.Frozen != "" {
		return errors.New("account " + c.Account + " is frozen again already: " + verdict.Account.Frozen)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), paragraph("", "Account "+c.Account+" may hold and move credits again."))
	return err
}
