package auditor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// reasonMost bounds the reason of a freeze: below what the ledger takes (4,096 bytes), and about what an event shows.
const reasonMost = 900

// finding is a violation of one account, with the command that freezes it.
type finding struct {
	account string
	reason  string
	command ledger.FreezeAccount
}

// findings are what violations mean for single accounts: entries that differ from their seals first, since they say where it
// began. Violations of the ledger as a whole freeze nobody.
func findings(violations []ledger.Violation) []finding {
	var found []finding
	for _, v := range sorted(violations) {
		for _, account := range v.Accounts {
			if strings.HasPrefix(account, "system:") {
				continue
			}
			reason := shortened(fmt.Sprintf("audit found %s", v))
			found = append(found, finding{account: account, reason: reason, command: ledger.FreezeAccount{
				// The same violation freezes an account once, whatever a person decides afterwards: the ledger remembers the key. The
				// reason may carry other figures by then, which makes it another content and is refused: as good.
				Key: "audit-freeze:" + account + ":" + v.ID(), Account: account, Reason: reason,
			}})
		}
	}
	return found
}

// sorted puts differences of entries before those of figures, and I2 before I10.
func sorted(violations []ledger.Violation) []ledger.Violation {
	return slices.SortedStableFunc(slices.Values(violations), func(a, b ledger.Violation) int {
		return cmp.Or(
			cmp.Compare(boolRank(a.Entry == 0), boolRank(b.Entry == 0)),
			cmp.Compare(len(a.Invariant), len(b.Invariant)), cmp.Compare(a.Invariant, b.Invariant))
	})
}

func boolRank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// perInvariant counts violations for the metric.
func perInvariant(violations []ledger.Violation) map[string]int {
	counts := make(map[string]int)
	for _, v := range violations {
		counts[v.Invariant]++
	}
	return counts
}

func shortened(text string) string {
	if len(text) <= reasonMost {
		return text
	}
	text = text[:reasonMost]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
