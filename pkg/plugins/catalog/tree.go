package catalog

import (
	"slices"

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
	// room is how much each account could still reserve: the least, over itself and every ancestor, of what the ancestor's subtree has
	// available plus its overdraft limit. An account is left out where a figure it needs is missing.
	room map[string]ledger.Microcredits
}

func treeOf(accounts map[string]account) *tree {
	t := &tree{root: map[string]string{}, changed: map[string]int64{}, room: map[string]ledger.Microcredits{}}
	chains := make(map[string][]string, len(accounts))
	available := map[string]ledger.Microcredits{} // of the whole subtree
	unknown := map[string]bool{}
	for name, entry := range accounts {
		chain := chainOf(accounts, name)
		chains[name] = chain
		root := chain[len(chain)-1]
		t.root[name] = root
		t.changed[root] = max(t.changed[root], entry.changed)
		own, err := ledger.ParseCredits(string(entry.object.Status.Available))
		for _, above := range chain {
			unknown[above] = unknown[above] || err != nil
			available[above] = addSaturated(available[above], own)
		}
	}
	for name, chain := range chains {
		room, known := ledger.MaxAmount, true
		for _, limited := range chain {
			entry, exists := accounts[limited]
			if !exists || unknown[limited] {
				known = false
				break
			}
			// An empty or unreadable limit is none.
			overdraft, _ := ledger.ParseCredits(string(entry.object.Spec.Policy.OverdraftLimit))
			room = min(room, addSaturated(available[limited], overdraft))
		}
		if known {
			t.room[name] = room
		}
	}
	return t
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
