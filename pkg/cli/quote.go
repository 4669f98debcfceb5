package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Quoter is what a quote asks of the ledger.
type Quoter interface {
	// Quote decides a hold as it would be decided now, and writes nothing.
	Quote(ctx context.Context, cmd ledger.PlaceHold) (ledger.Verdict, error)
	// Account returns the row and whether there is one.
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
}

// QuoteFunc says what admission would answer to the creation of a Job or Pod in a namespace. The object has a name and
// a UID; it may be changed.
type QuoteFunc func(ctx context.Context, cluster client.Reader, quoter Quoter, namespace string, workload client.Object) (Quote, error)

// Quote is admission's answer.
type Quote struct {
	Admitted bool `json:"admitted"`
	// Code says why, for programs; Message why not, for people.
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
	// Account pays for the namespace, or an account above it; empty when none does.
	Account string `json:"account,omitempty"`
	// What would be set aside, which is the most that Subject may cost: "this Job", or "each pod of this Job" where pods bring
	// their holds. All zero when it costs nothing or its cost cannot be told.
	Subject    string              `json:"subject,omitempty"`
	Class      string              `json:"class,omitempty"`
	MaxGPUs    int64               `json:"max_gpus,omitempty"`
	GPUSeconds int64               `json:"gpu_seconds,omitempty"`
	Cost       ledger.Microcredits `json:"cost_microcredits,omitempty"`
	// Refusal is the ledger's no, with the account whose limit refuses; ShortBy is by how much, where it is an amount.
	Refusal *ledger.Refusal     `json:"refusal,omitempty"`
	ShortBy ledger.Microcredits `json:"short_by_microcredits,omitempty"`
	// Warnings are what its creator would be told.
	Warnings []string `json:"warnings,omitempty"`
}

// ErrNotAdmitted says that a quote was made and the workload would be refused.
var ErrNotAdmitted = errors.New("it would not be admitted")

// quoteError is a quote that could not be made.
type quoteError struct{ cause error }

func (e *quoteError) Error() string { return e.cause.Error() }
func (e *quoteError) Unwrap() error { return e.cause }

func quoteFailed(err error) error {
	if err == nil || errors.Is(err, ErrNotAdmitted) {
		return err
	}
	return &quoteError{err}
}

func quoteCommand(where *cluster, deps Dependencies) *cobra.Command {
	var access *ledgerAccess
	var file, namespace string
	command := &cobra.Command{
		Use:   "quote -f FILE",
		Short: "Say what a Job or Pod would cost at most and whether it would be admitted now (needs read access to the ledger's database)",
		Long: "Say what a Job or Pod would cost at most, whether it would be admitted now, and if not, which limit of which account\n" +
			"refuses and by how much; and what is left on every account that bounds it. Nothing is created and nothing set aside.\n\n" +
			"It decides by the same rules as admission: the namespace's account, the GPU classes and their prices, the ledger. Without\n" +
			"access to the database, kubectl create --dry-run=server -f FILE asks admission itself.\n\n" +
			"Exit codes: 0 it would be admitted; 3 it would not; 1 the quote could not be made.",
		Example: "  kubectl credit quote -f job.yaml --database-url-file FILE\n" +
			"  kubectl create job train --image=train --dry-run=client -o yaml | kubectl credit quote -n team-a -f - --database-url-file FILE",
		Args: func(command *cobra.Command, arguments []string) error {
			return quoteFailed(cobra.NoArgs(command, arguments))
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return quoteFailed(func() error {
				if file == "" {
					return errors.New("--filename is missing: name a file with a Job or Pod, or - for standard input")
				}
				home, err := where.namespace(namespace)
				if err != nil {
					return err
				}
				workload, err := readWorkload(command.InOrStdin(), file, home)
				if err != nil {
					return err
				}
				api, err := where.client()
				if err != nil {
					return err
				}
				return access.read(command, func(ctx context.Context, store LedgerReader) error {
					result, err := runQuote(ctx, deps, api, store, workload)
					if err != nil {
						return err
					}
					if err := write(command, access.format, result, result.writeText); err != nil || result.Admitted {
						return err
					}
					return ErrNotAdmitted
				})
			}())
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return quoteFailed(err) })
	command.Flags().StringVarP(&file, "filename", "f", "", "File with one Job or Pod; - for standard input.")
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace where the file names none; default as kubectl's.")
	access = addAccess(command, deps, readTimeout)
	return command
}

// quoteResult is a quote as JSON has it.
type quoteResult struct {
	Workload  string `json:"workload"` // "Job namespace/name"
	Namespace string `json:"namespace"`
	Quote
	// Path is what is left on the account and every one above it.
	Path []ledger.Room `json:"path"`
}

func runQuote(ctx context.Context, deps Dependencies, api client.Reader, store LedgerReader, workload client.Object) (quoteResult, error) {
	result := quoteResult{Workload: describeWorkload(workload), Namespace: workload.GetNamespace(), Path: []ledger.Room{}}
	var err error
	if result.Quote, err = deps.Quote(ctx, api, store, workload.GetNamespace(), workload); err != nil {
		return result, fmt.Errorf("quote %s: %w", result.Workload, err)
	}
	if refusal := result.Refusal; refusal != nil && refusal.Needed > refusal.Available {
		result.ShortBy = refusal.Needed - refusal.Available
	}
	if result.Account == "" {
		return result, nil
	}
	path, err := store.AccountPath(ctx, result.Account)
	if err != nil {
		return result, fmt.Errorf("read account %s and those above it: %w", result.Account, err)
	}
	if len(path) > 0 {
		result.Path = ledger.Rooms(path, deps.Now())
	}
	return result, nil
}

func (r quoteResult) writeText(out io.Writer) error {
	credits := ledger.DisplayCredits
	var text strings.Builder
	switch {
	case !r.Admitted:
		text.WriteString(paragraph("", r.Workload+" would NOT be admitted: "+r.Message+"."))
	case r.GPUSeconds == 0 && r.Code == "AtAdmission":
		text.WriteString(paragraph("", r.Workload+" would be admitted. What it costs depends on the GPU class that Kueue chooses; the credits are set aside then."))
	case r.GPUSeconds == 0:
		text.WriteString(paragraph("", r.Workload+" would be admitted and costs nothing: "+freeOfCharge(r.Code)+"."))
	case r.Code == "AtAdmission":
		text.WriteString(paragraph("", r.Workload+" would be admitted. Its credits are set aside when Kueue admits it."))
	case r.Code == "AtPlacement":
		text.WriteString(paragraph("", r.Workload+" would be admitted. Its credits are set aside pod by pod, when each is placed."))
	default:
		text.WriteString(paragraph("", r.Workload+" would be admitted."))
	}
	if r.GPUSeconds > 0 {
		fmt.Fprintf(&text, "\n  costs     at most %s credits, %s\n  for       %s of class %s, %s at once\n  account   %s\n", credits(r.Cost),
			r.Subject, counted(r.GPUSeconds, "GPU-second", "GPU-seconds"), r.Class, counted(r.MaxGPUs, "GPU", "GPUs"), r.Account)
	}
	if r.ShortBy > 0 {
		what := "refused   by"
		if r.Admitted {
			what = "waits     for"
		}
		fmt.Fprintf(&text, "  %s a limit of account %s: %s credits too little\n", what, r.Refusal.Account, credits(r.ShortBy))
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	if err := r.writePath(out); err != nil {
		return err
	}
	for _, note := range r.notes() {
		if _, err := io.WriteString(out, "\n"+paragraph("", note)); err != nil {
			return err
		}
	}
	return nil
}

// freeOfCharge says why nothing is set aside, by the code of admission.
func freeOfCharge(code string) string {
	switch code {
	case "NotEnrolled":
		return "no account pays for its namespace, so GPUs are not charged there"
	case "NoGPUs":
		return "it asks for no GPU"
	}
	return "nothing is set aside for it (" + code + ")"
}

// writePath is a table of what is left, account by account.
func (r quoteResult) writePath(out io.Writer) error {
	if len(r.Path) == 0 {
		return nil
	}
	if _, err := fmt.Fprint(out, "\nWhat is left now, on the account and those above it\n\n"); err != nil {
		return err
	}
	rows := [][]string{{"ACCOUNT", "CREDITS", "TO SPEND", "PERIOD ENDS (UTC)", "JOBS AT ONCE"}}
	for _, room := range r.Path {
		name := room.Account
		if room.Pays {
			name += " (pays)"
		}
		row := []string{name, "-", "-", "-", "-"}
		if room.Credits != nil {
			row[1] = ledger.DisplayCredits(*room.Credits)
		}
		if room.Spending != nil {
			row[2], row[3] = ledger.DisplayCredits(*room.Spending), room.SpendingUntil.UTC().Format(time.DateTime)
		}
		if room.RunningJobs != nil {
			row[4] = fmt.Sprint(*room.RunningJobs)
		}
		rows = append(rows, row)
	}
	return table(out, 1, rows)
}

// notes are what the table needs a sentence for.
func (r quoteResult) notes() []string {
	var notes []string
	for _, room := range r.Path {
		if room.Frozen != "" {
			notes = append(notes, fmt.Sprintf("Account %s is frozen: %s", room.Account, room.Frozen))
		}
		if room.RunningJobs != nil && *room.RunningJobs <= 0 && r.Admitted && r.GPUSeconds > 0 {
			notes = append(notes, fmt.Sprintf("Its pods would wait: account %s already runs as many jobs at once as it may.", room.Account))
		}
	}
	return append(notes, r.Warnings...)
}
