package ledger_test

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// The scenarios run here against Decide alone; package postgres runs the same files against a database.
func TestScenarios(t *testing.T) {
	t.Parallel()
	ledgertest.RunScenarios(t, "testdata/scenarios", func(*testing.T) ledgertest.Ledger { return ledgertest.NewMemory() })
}
