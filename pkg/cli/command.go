package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// Dependencies are what the command is given by main.
type Dependencies struct {
	// OpenLedger connects to the ledger's database whose URL is in a file.
	OpenLedger func(ctx context.Context, databaseURLFile string) (Ledger, error)
	// OpenWriter does so for the command that changes what an account may do.
	OpenWriter func(ctx context.Context, databaseURLFile string) (LedgerWriter, error)
	// Quote says what would become of a workload that is created now, as admission decides it.
	Quote QuoteFunc
	Now   func() time.Time
}

// Output formats.
const (
	text       = "text"
	csvFormat  = "csv"
	jsonFormat = "json"
)

// cluster says which API server to ask, as kubectl's own flags do.
type cluster struct {
	kubeconfig, context string
}

// NewCommand returns `kubectl credit`.
func NewCommand(deps Dependencies) *cobra.Command {
	var where cluster
	root := &cobra.Command{
		Use:          "kubectl-credit",
		Short:        "GPU credits: what an account has, and what became of them",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl credit"},
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&where.kubeconfig, "kubeconfig", "", "Path of the kubeconfig file; default as kubectl's.")
	root.PersistentFlags().StringVar(&where.context, "context", "", "Name of the kubeconfig context to use.")
	root.AddCommand(
		balanceCommand(&where, deps), quoteCommand(&where, deps), statementCommand(deps), lotsCommand(deps), spendCommand(deps), checkpointCommand(&where, deps),
		discrepanciesCommand(deps), auditCommand(deps), rebuildCommand(deps), unfreezeCommand(deps),
	)
	return root
}

// ExitCode is the program's status for what its command returned: 0 done, 1 an audit found violations, 2 it failed; of a
// quote 0 yes, 3 no, 1 it failed. As with diff and grep, a script can tell bad news from no news.
func ExitCode(err error) int {
	var failed *quoteError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrNotAdmitted):
		return 3
	case errors.As(err, &failed):
		return 1
	case errors.Is(err, ErrUnsound):
		return 1
	}
	return 2
}

// client returns a client with the caller's own rights.
func (c cluster) client() (client.Client, error) {
	config, err := c.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
