package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// DiscrepancyReader reads the disagreements that the ledger keeps.
type DiscrepancyReader interface {
	// Discrepancies returns all of them.
	Discrepancies(ctx context.Context) ([]ledger.Discrepancy, error)
}

func discrepanciesCommand(deps Dependencies) *cobra.Command {
	var access *ledgerAccess
	var closed bool
	command := &cobra.Command{
		Use:   "discrepancies [ACCOUNT]",
		Short: "Show what node, scheduler, pod status and ledger disagree about (needs read access to the ledger's database)",
		Long: "Show what node, scheduler, pod status and ledger disagree about, newest first, with what each side says, what the\n" +
			"ledger made of it, and how a person closes it. With ACCOUNT, only what concerns that account; a pod that the ledger\n" +
			"has never heard of has none. Those that are closed are left out, but for --all.\n\n" + fromDatabase,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			account := strings.Join(arguments, "")
			return access.read(command, func(ctx context.Context, store LedgerReader) error {
				found, err := readDiscrepancies(ctx, store, account, closed)
				if err != nil {
					return err
				}
				return write(command, access.format, found, func(out io.Writer) error { return writeDiscrepancies(out, account, closed, found) })
			})
		},
	}
	command.Flags().BoolVar(&closed, "all", false, "Those that are closed, too, with how and by whom.")
	access = addAccess(command, deps, readTimeout)
	return command
}

// discrepancy is ledger.Discrepancy as JSON has it.
type discrepancy struct {
	Key     string                 `json:"key"`
	Kind    ledger.DiscrepancyKind `json:"kind"`
	PodUID  string                 `json:"pod_uid"`
	Account string                 `json:"account,omitempty"`
	Ledger  string                 `json:"ledger"`
	Other   string                 `json:"other"`
	FoundAt time.Time              `json:"found_at"`
	// Who closed it and how; left out while it is open.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	Resolution string    `json:"resolution,omitempty"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
}

// readDiscrepancies returns them newest first: the open ones, or all; with account, only that account's.
func readDiscrepancies(ctx context.Context, store LedgerReader, account string, closed bool) ([]discrepancy, error) {
	all, err := store.Discrepancies(ctx)
	if err != nil {
		return nil, fmt.Errorf("read discrepancies: %w", err)
	}
	found := make([]discrepancy, 0, len(all)) // not nil: JSON says [] when there are none
	for _, d := range all {
		if (account == "" || d.Account == account) && (closed || d.ResolvedAt.IsZero()) {
			found = append(found, discrepancy(d))
		}
	}
	if account != "" && len(found) == 0 {
		if err := checkKnown(ctx, store, account); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b discrepancy) int { return b.FoundAt.Compare(a.FoundAt) })
	return found, nil
}

func writeDiscrepancies(out io.Writer, account string, closed bool, found []discrepancy) error {
	var text strings.Builder
	of, which := "", "open "
	if account != "" {
		of = " of account " + account
	}
	if closed {
		which = ""
	}
	if len(found) == 0 {
		text.WriteString(paragraph("", "There are no "+which+"discrepancies"+of+": node, scheduler, pod status and ledger agree."))
	} else {
		fmt.Fprintf(&text, "%s%s, newest first, times in UTC\n", plural(len(found), which+"discrepancy", which+"discrepancies"), of)
	}
	var kinds []ledger.DiscrepancyKind
	var open *discrepancy
	for _, d := range found {
		if !slices.Contains(kinds, d.Kind) {
			kinds = append(kinds, d.Kind)
		}
		fmt.Fprintf(&text, "\n%s  %s\n", d.FoundAt.UTC().Format(time.DateTime), d.Kind)
		if d.Account != "" {
			text.WriteString(paragraph("  account  ", d.Account))
		}
		text.WriteString(paragraph("  pod UID  ", d.PodUID))
		text.WriteString(paragraph("  ledger   ", d.Ledger))
		text.WriteString(paragraph("  other    ", d.Other))
		text.WriteString(paragraph("  key      ", d.Key))
		if !d.ResolvedAt.IsZero() {
			by := ""
			if d.ResolvedBy != "" {
				by = " by " + d.ResolvedBy
			}
			text.WriteString(paragraph("  closed   ", d.ResolvedAt.UTC().Format(time.DateTime)+by+": "+d.Resolution))
		} else if open == nil {
			open = &d
		}
	}
	for i, kind := range kinds {
		if i == 0 {
			text.WriteString("\nWhat they mean\n")
		}
		text.WriteString("\n" + string(kind) + "\n" + paragraph("  ", kindMeaning(kind)))
	}
	if open != nil {
		text.WriteString(howToClose(*open))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// howToClose is the manifest that closes a discrepancy, to be completed by a person.
func howToClose(d discrepancy) string {
	account := d.Account
	if account == "" {
		account = "ACCOUNT"
	}
	return "\nTo close one, once it is understood (credits may correct the account, either way):\n\n" +
		"  kubectl create -f - <<'EOF'\n" +
		"  apiVersion: " + v1alpha1.GroupVersion.String() + "\n" +
		"  kind: CreditAdjustment\n" +
		"  metadata: {generateName: " + account + "-}\n" +
		"  spec:\n" +
		"    account: " + account + "\n" +
		"    credits: \"0\"\n" +
		"    discrepancy: " + strconv.QuoteToASCII(d.Key) + "\n" +
		"    reason: what it was, and why this settles it\n" +
		"  EOF\n"
}

// kindMeaning says what a discrepancy is and what it does to the bill.
func kindMeaning(kind ledger.DiscrepancyKind) string {
	switch kind {
	case ledger.IntervalConflict:
		return "A node reported the same time twice, differently. The first report is charged, the second is not."
	case ledger.IntervalOutsidePod:
		return "A node metered time before the pod's start or after its end. Only the pod's own time is charged, " +
			"except for what was charged before its end was known: those charges stand."
	case ledger.GPUChargedTwice:
		return "One GPU was metered for two pods at once. Both are charged; an exclusive GPU cannot be held twice, so look at the node."
	case ledger.GPUCountDiffers:
		return "The node reports another number of GPUs than was allocated. The allocated number is charged."
	case ledger.StartDiffers:
		return "Two sources disagree on when the pod started, or whether it ever held its GPUs. What the ledger had first stands."
	case ledger.EndUnknown:
		return "The pod vanished before anyone saw it finish. It is charged until the last moment that somebody vouches for."
	case ledger.UnknownAllocation:
		return "A node meters a pod that the ledger has not allocated there. It is not charged: GPUs are in use that nobody pays for."
	}
	if meaning, known := comparedMeaning[kind]; known {
		return meaning
	}
	return "This version of kubectl credit does not know the kind."
}

// comparedMeaning is kindMeaning for what is found by comparing what the sides say at a moment.
var comparedMeaning = map[ledger.DiscrepancyKind]string{
	ledger.NodeDiffers: "The API server shows the pod on another node than it was allocated on. It is charged as allocated; what the other " +
		"node meters is not.",
	ledger.GPUsDiffer: "The node metered the pod on other GPUs than it named first. A pod keeps the GPUs that it was admitted with, so look at " +
		"the node. The allocated number is charged.",
	ledger.MeteringGap: "The node's agent reports other pods and has stopped to report this one. What nobody measures is charged from the " +
		"pod's own start and finish when it ends, and marked as derived.",
	ledger.NodeOvercommitted: "Allocations that are open on one node have more GPUs together than the node. All are charged; either two " +
		"schedulers placed pods there, or one of them is not running any more.",
	ledger.OpenAfterPod: "The pod is over or gone, and its allocation is still open: its GPUs count as taken, and credits stay set aside, " +
		"until it is ended.",
	ledger.RunsUnallocated: "A pod holds GPUs in a namespace that an account pays for, and the ledger has no open allocation for it: GPUs are " +
		"in use that nobody pays for.",
}

// plural is "1 one" or "n many".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
