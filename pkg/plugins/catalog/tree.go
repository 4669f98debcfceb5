package catalog

import (
	"slices"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// maxDepth bounds walks up the account tree. Parents come from objects that several people edit, so a cycle is possible
// for as long as the ledger refuses it.
const maxDepth = 64

// tree is what follows from all accounts together.
type tree struct {
	// root of each account.
	root map[string]string
	// changed is, by root, the number of the latest change in that tree.
	changed map[string]int64
	// room is how much could still be reserved for each account's workloads, by the ledger's own rule: of the account that
	// pays for them, the least of its own available credits plus its overdraft limit, and of the same for the whole subtree of itself and of every ancestor, where what other accounts have overspent
	// is left out. An account is missing where a figure it needs is.
	room map[string]ledger.Microcredits
	// full are the accounts whose limit of running jobs, or that of an account above them, is reached.
	full map[string]bool
}

func treeOf(accounts map[string]account) *tree {
	t := &tree{root: map[string]string{}, changed: map[string]int64{}, room: map[string]ledger.Microcredits{}, full: map[string]bool{}}
	chains := make(map[string][]string, len(accounts))
	available := map[string]ledger.Microcredits{} // of the whole subtree, without what is overspent
	own := map[string]ledger.Microcredits{}       // plus the overdraft limit
	unknown := map[string]bool{}
	for name, entry := range accounts {
		chain := chainOf(accounts, name)
		chains[name] = chain
		root := chain[len(chain)-1]
		t.root[name] = root
		t.changed[root] = max(t.changed[root], entry.changed)
		credits, err := ledger.ParseCredits(string(entry.object.Status.Available))
		overdraft := overdraftOf(entry)
		own[name] = addSaturated(credits, overdraft)
		for _, above := range chain {
			unknown[above] = unknown[above] || err != nil
			available[above] = addSaturated(available[above], max(credits, -overdraft))
		}
	}
	for name, chain := range chains {
		t.full[name] = slices.ContainsFunc(chain, func(above string) bool { return runsItsMost(accounts[above]) })
		chain = chain[payerIn(accounts, chain):]
		room, known := own[chain[0]], true
		for _, limited := range chain {
			entry, exists := accounts[limited]
			if !exists || unknown[limited] {
				known = false
				break
			}
			room = min(room, addSaturated(available[limited], overdraftOf(entry)))
		}
		if known {
			t.room[name] = room
		}
	}
	return t
}

// payerIn is the position in a chain of who pays for its first account's workloads: the first whose funding is its own.
func payerIn(accounts map[string]account, chain []string) int {
	for i, name := range chain {
		if entry, known := accounts[name]; !known || entry.object.Spec.Policy.Funding != v1alpha1.FundingAncestor {
			return i
		}
	}
	return len(chain) - 1 // a root pays itself
}

// runsItsMost reports whether an account, by what it shows, allows no further running job.
func runsItsMost(a account) bool {
	return a.object != nil && a.object.Spec.Policy.RunningJobs > 0 && a.object.Status.Running >= a.object.Spec.Policy.RunningJobs
}

// overdraftOf is an account's overdraft limit; an empty or unreadable one is none.
func overdraftOf(a account) ledger.Microcredits {
	overdraft, _ := ledger.ParseCredits(string(a.object.Spec.Policy.OverdraftLimit))
	return overdraft
}

func (t *tree) rootOf(name string) string {
	if root, known := t.root[name]; known {
		return root
	}
	return name
}

// chainOf is the account and its ancestors, itself first.
func chainOf(accounts map[string]account, name string) []string {
	chain := []string{name}
	for len(chain) < maxDepth {
		entry, known := accounts[name]
		if !known || entry.object.Spec.Parent == "" || slices.Contains(chain, entry.object.Spec.Parent) {
			break
		}
		name = entry.object.Spec.Parent
		chain = append(chain, name)
	}
	return chain
}

// addSaturated adds amounts of which neither is beyond ±ledger.MaxAmount, and stays there itself.
func addSaturated(a, b ledger.Microcredits) ledger.Microcredits {
	return min(max(a+b, -ledger.MaxAmount), ledger.MaxAmount)
}
