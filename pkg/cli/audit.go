package cli

import (
	"cmp"
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

// Auditor checks the ledger's invariants.
type Auditor interface {
	// Audit returns what is broken; a sound ledger gives none.
	Audit(ctx context.Context) ([]ledger.Violation, error)
	// Size counts what an Audit after it goes over.
	Size(ctx context.Context) (ledger.Size, error)
	// VerifyChains compares every sealed entry with its seal, and the chains with heads that were pinned earlier.
	VerifyChains(ctx context.Context, pins []ledger.ChainHead) (ledger.ChainReport, error)
	// ChainHeads returns the end of every account's chain.
	ChainHeads(ctx context.Context) ([]ledger.ChainHead, error)
}

// ErrUnsound says that an audit was carried out and found violations.
var ErrUnsound = errors.New("the ledger is not sound")

// auditTimeout bounds an audit, which reads every row: ten million entries in a few minutes.
const auditTimeout = 10 * time.Minute

func auditCommand(deps Dependencies) *cobra.Command {
	var access *ledgerAccess
	var heads bool
	var pinned string
	command := &cobra.Command{
		Use:   "audit",
		Short: "Check every invariant of the ledger, and every entry against its seal (needs read access to its database)",
		Long: "Check every invariant of the ledger from the rows themselves, and every sealed entry against the hash chain of its\n" +
			"account, and say what each violation means. A violation of the chain names the first entry that differs.\n\n" +
			"Who may change everything in the database can also make all seals anew. To find even that, keep the ends of the chains\n" +
			"where that person has no rights: --heads prints them, one account a line; later, --verify-heads FILE checks that\n" +
			"they are still in the chains.\n\n" +
			"It is read from the ledger's PostgreSQL database, not through the API server, so it needs a role that may read\n" +
			"that database. It changes nothing, and nothing waits for it, but it reads every entry.\n\n" +
			"Exit codes: 0 the ledger is sound; 1 there are violations; 2 the audit could not be carried out.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if heads && pinned != "" {
				return errors.New("--heads and --verify-heads: choose one")
			}
			pins, err := readPins(pinned)
			if err != nil {
				return err
			}
			return access.read(command, func(ctx context.Context, store LedgerReader) error {
				if heads {
					return printHeads(ctx, command, access.format, store)
				}
				result, err := runAudit(ctx, store, pins)
				if err != nil {
					return err
				}
				if err := write(command, access.format, result, result.writeText); err != nil || result.Sound {
					return err
				}
				return fmt.Errorf("%w: %s", ErrUnsound, plural(len(result.Violations), "violation", "violations"))
			})
		},
	}
	command.Flags().BoolVar(&heads, "heads", false, "Print the end of every account's chain, to be kept outside, and check nothing.")
	command.Flags().StringVar(&pinned, "verify-heads", "", "File with what --heads printed earlier: check that it is still in the chains.")
	access = addAccess(command, deps, auditTimeout)
	return command
}

// auditResult is an audit as JSON has it.
type auditResult struct {
	Sound bool `json:"sound"`
	// Checked is what there was when the audit began.
	Checked ledger.Size `json:"checked"`
	// Sealed counts the entries in the chains and Unsealed those that are not yet, once for each account that they concern;
	// PinnedHeads those of --verify-heads.
	Sealed      int64              `json:"sealed"`
	Unsealed    int64              `json:"unsealed"`
	PinnedHeads int                `json:"pinned_heads,omitempty"`
	Violations  []ledger.Violation `json:"violations"`
}

func runAudit(ctx context.Context, store Auditor, pins []ledger.ChainHead) (auditResult, error) {
	size, err := store.Size(ctx)
	if err != nil {
		return auditResult{}, fmt.Errorf("count what is to be audited: %w", err)
	}
	chains, err := store.VerifyChains(ctx, pins)
	if err != nil {
		return auditResult{}, err
	}
	found, err := store.Audit(ctx)
	if err != nil {
		return auditResult{}, err
	}
	found = append(chains.Violations, found...)
	slices.SortStableFunc(found, func(a, b ledger.Violation) int {
		// I2 before I10.
		return cmp.Or(cmp.Compare(len(a.Invariant), len(b.Invariant)), cmp.Compare(a.Invariant, b.Invariant))
	})
	if found == nil {
		found = []ledger.Violation{} // JSON says [] when there are none
	}
	return auditResult{
		Sound: len(found) == 0, Checked: size, Sealed: chains.Sealed, Unsealed: chains.Unsealed, PinnedHeads: len(pins), Violations: found,
	}, nil
}

func (r auditResult) writeText(out io.Writer) error {
	var text strings.Builder
	s := r.Checked
	checked := fmt.Sprintf("%s, %s, %s, %s and %s",
		counted(s.Accounts, "account", "accounts"), counted(s.Reservations, "reservation", "reservations"),
		counted(s.Allocations, "allocation", "allocations"), counted(s.Intervals, "interval", "intervals"),
		counted(s.Entries, "entry", "entries"))
	if r.Sound {
		text.WriteString(paragraph("", "The ledger is sound: all its invariants hold over "+checked+"."))
		text.WriteString(paragraph("", r.chains()))
	} else {
		text.WriteString(paragraph("", fmt.Sprintf("The ledger is NOT sound: %s in %s. Amounts are in microcredits, 1,000,000 to a credit.",
			plural(len(r.Violations), "violation", "violations"), checked)))
	}
	for i, v := range r.Violations {
		if i == 0 || v.Invariant != r.Violations[i-1].Invariant {
			text.WriteString("\n" + paragraph(v.Invariant+"  ", invariantMeaning(v.Invariant)))
		}
		text.WriteString(paragraph("    - ", v.Subject+": "+v.Detail))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// chains says how far the chains reach.
func (r auditResult) chains() string {
	text := "Its history is what was written: " + counted(r.Sealed, "sealed entry agrees", "sealed entries agree") + " with the chains of their accounts"
	if r.PinnedHeads > 0 {
		text += ", and these with " + counted(int64(r.PinnedHeads), "pinned head", "pinned heads")
	}
	return text + "; " + counted(r.Unsealed, "entry is", "entries are") + " not sealed yet. An entry of two accounts counts twice."
}

// counted is plural with thousands separated.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return ledger.DisplayCredits(ledger.Microcredits(n)*ledger.Credit) + " " + many
}

// invariantMeaning says what a violation of an invariant means for whoever reads the ledger; doc.go of package ledger
// has the invariants themselves. Some of them are also reported when the guard that keeps them is missing.
func invariantMeaning(invariant string) string {
	switch invariant {
	case "I1":
		return "Credits set aside are below zero, or the guard against it is missing: accounts may be allowed holds that they cannot pay for."
	case "I2":
		return "A stored sum is not what the entries and open reservations add up to. The entries are the truth; " +
			"balances shown and holds allowed until this is repaired are wrong."
	case "I3":
		return "Time was charged twice to one pod, or one GPU to two pods at once without being kept as a discrepancy, or the guard " +
			"against it is missing: somebody may have paid for the same time twice."
	case "I4":
		return "A charge is not the price of its time, or a finished pod's time is not all charged, or prices can be edited: " +
			"the account paid too much or too little."
	case "I5":
		return "A reservation or allocation is in a state that it cannot be in, or the guard against it is missing: credits may be " +
			"set aside for ever, or were given back although the workload ran."
	case "I6":
		return "The guard that answers a repeated command only once is missing: what is sent twice may count twice."
	case "I7":
		return "A pod was placed by a scheduler that never led, or the guard against it is missing: two schedulers may have spent at once."
	case "I8":
		return "An entry is not what was sealed, or the guard that keeps entries from being edited or deleted is missing or off: history may " +
			"have been changed. Compare with a backup before trusting statements."
	case "I9":
		return "What was metered and what was charged differ in total: usage is missing from the bill, or was billed without being metered."
	case "I10":
		return "Credits appeared or vanished: the accounts do not hold what was granted less what was charged, or an entry names an " +
			"account that does not exist. No balance can be trusted until it is found."
	}
	return "This version of kubectl credit does not know the invariant."
}
