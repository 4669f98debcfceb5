package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Rebuilder repairs the sums that the ledger keeps beside its entries.
type Rebuilder interface {
	// Rebuild computes them anew and returns how many rows it had to change. Every other write waits meanwhile.
	Rebuild(ctx context.Context) (changed int, err error)
}

// rebuilt is the invariant that a rebuild restores.
const rebuilt = "I2"

func rebuildCommand(deps Dependencies) *cobra.Command {
	var access *ledgerAccess
	var commit bool
	command := &cobra.Command{
		Use:   "rebuild",
		Short: "Compute the ledger's sums anew from its entries (with --commit needs write access to its database)",
		Long: "Compute the sums that the ledger keeps for speed (balances, what is set aside, subtree sums) anew from its entries and\n" +
			"open reservations, which are the truth. It shows what differs. With --commit it then writes what is right; meanwhile\n" +
			"everything else that writes waits, so GPU workloads are not admitted for as long as that takes.\n\n" +
			"It repairs nothing else: entries, charges and intervals stay as they are. See kubectl credit audit.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return access.use(command, func(ctx context.Context, store Ledger) error {
				result, err := runRebuild(ctx, store, commit)
				if err != nil {
					return err
				}
				return write(command, access.format, result, result.writeText)
			})
		},
	}
	command.Flags().BoolVar(&commit, "commit", false, "Write what is right; without it, only say what differs.")
	access = addAccess(command, deps, auditTimeout)
	return command
}

// rebuildResult is a rebuild as JSON has it.
type rebuildResult struct {
	Committed bool `json:"committed"`
	// Differ are the sums that were wrong before, Others what else an audit found, which a rebuild does not repair.
	Differ []ledger.Violation `json:"differ"`
	Others []ledger.Violation `json:"others"`
	// Changed counts the rows that were written.
	Changed int `json:"changed"`
}

// runRebuild says what differs, from one snapshot, and then, when it is to be committed, has it written: under the
// ledger's locks, from what holds by then.
func runRebuild(ctx context.Context, store Ledger, commit bool) (rebuildResult, error) {
	result := rebuildResult{Committed: commit, Differ: []ledger.Violation{}, Others: []ledger.Violation{}}
	found, err := store.Audit(ctx)
	if err != nil {
		return result, err
	}
	for _, v := range found {
		if v.Invariant == rebuilt {
			result.Differ = append(result.Differ, v)
		} else {
			result.Others = append(result.Others, v)
		}
	}
	if commit {
		result.Changed, err = store.Rebuild(ctx)
	}
	return result, err
}

func (r rebuildResult) writeText(out io.Writer) error {
	var text strings.Builder
	if len(r.Differ) == 0 {
		text.WriteString("Every sum is what the entries and open reservations add up to.\n")
	} else {
		text.WriteString(paragraph("", plural(len(r.Differ), "sum differs", "sums differ")+" from what entries and open reservations add up to "+
			"(in microcredits, 1,000,000 to a credit):"))
	}
	for _, v := range r.Differ {
		text.WriteString(paragraph("    - ", v.Subject+": "+v.Detail))
	}
	if len(r.Others) > 0 {
		text.WriteString("\n" + paragraph("", "A rebuild does not repair "+plural(len(r.Others), "other violation", "other violations")+
			" that an audit finds; see kubectl credit audit."))
	}
	switch {
	case r.Committed:
		text.WriteString("\n" + paragraph("", "Committed: "+plural(r.Changed, "row was", "rows were")+" changed. Run kubectl credit audit to see it confirmed."))
	case len(r.Differ) > 0:
		text.WriteString("\n" + paragraph("", "Nothing was changed. To write what is right: kubectl credit rebuild --commit"))
	}
	_, err := io.WriteString(out, text.String())
	return err
}
