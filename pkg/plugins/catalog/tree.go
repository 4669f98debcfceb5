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
	// room is how much each account could still reserve, by the ledger's own rule: the least of its own available credits plus its
	// overdraft limit, and of the same for the whole subtree of itself and of every ancestor, where what other accounts have overspent
	// is left out. An account is missing where a figure it needs is.
	room map[string]ledger.Microcredits
}

func treeOf(accounts map[string]account) *tree {
	t := &tree{root: map[string]string{}, changed: map[string]int64{}, room: map[string]ledger.Microcredits{}}
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
		room, known := own[name], true
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
