package postgres

import "github.com/gpubank/gpubank/pkg/ledger"

// known is what earlier batches of this process saw of which row names which, so that the next batch need not look for the
// accounts that it has to lock. It is only ever a guess: a reservation keeps its accounts and an allocation its reservation, but
// an account may get another parent, and a database be restored. checkLocked compares with the rows as they are under lock, and
// where one names an account that was not locked the batch is repeated without guesses. Its only user is the worker.
type known struct {
	parents      generations[string] // by account; "" for a root
	spending     generations[spending]
	reservations generations[string] // by pod
}

// spending is who spends a reservation and who pays it.
type spending struct{ account, payer string }

// locks are the accounts of a footprint: names and, for what is not known, where the database has to look for more.
type locks struct {
	accounts, reservations, pods []string
	// complete: the names are all there is, ancestors included.
	complete bool
}

// locks completes a footprint with what is known.
func (k *known) locks(f *footprint) locks {
	accounts, reservations, pods := make(set, len(f.accounts)), set{}, set{}
	reservation := func(uid string) {
		if of, ok := k.spending.get(uid); ok {
			accounts.add(of.account)
			accounts.add(of.payer)
		} else {
			reservations.add(uid)
		}
	}
	for uid := range f.related {
		reservation(uid)
	}
	for pod := range f.placed {
		if uid, ok := k.reservations.get(pod); ok {
			f.reservations.add(uid)
			reservation(uid)
		} else {
			pods.add(pod)
		}
	}
	for name := range f.accounts {
		accounts.add(name)
	}
	complete := len(reservations)+len(pods) == 0
	for _, name := range accounts.list() { // a copy, since ancestors are added
		for name != "" {
			parent, ok := k.parents.get(name)
			complete = complete && ok
			if _, seen := accounts[parent]; seen && parent != "" {
				break // then so are those above it, or will be
			}
			accounts.add(parent)
			name = parent
		}
	}
	return locks{accounts: accounts.list(), reservations: reservations.list(), pods: pods.list(), complete: complete}
}

// learn takes in the rows of a batch that was committed.
func (k *known) learn(state *ledger.State) {
	state.Accounts.All(func(name string, a *ledger.Account) { k.parents.put(name, a.Parent) })
	state.Reservations.All(func(uid string, r *ledger.Reservation) { k.spending.put(uid, spending{r.Account, r.Payer}) })
	state.Allocations.All(func(pod string, a *ledger.Allocation) { k.reservations.put(pod, a.Reservation) })
}

// generations is a map of bounded size that forgets what was not used for long.
type generations[V comparable] struct{ young, old map[string]V }

// generationSize: twice as many pods as a large cluster runs at once, some 100 bytes each.
const generationSize = 32_768

func (g *generations[V]) get(key string) (value V, ok bool) {
	if value, ok = g.young[key]; ok {
		return value, true
	}
	if value, ok = g.old[key]; ok {
		g.put(key, value)
	}
	return value, ok
}

func (g *generations[V]) put(key string, value V) {
	if _, renewed := g.young[key]; !renewed && len(g.young) >= generationSize {
		g.old, g.young = g.young, nil
	}
	if g.young == nil {
		g.young = make(map[string]V)
	}
	g.young[key] = value
}
