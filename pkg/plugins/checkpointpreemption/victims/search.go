package victims

import (
	"cmp"
	"math/bits"
	"slices"
)

// kind of a dimension of the search.
type kind int

const (
	resource kind = iota // to be given back: more is better, up to the need
	guarded              // of another account: never beyond what it borrows
	owned                // of the preemptor's own account: beyond what it borrows, it counts as taken from the guarantee
	budget               // of a disruption budget: beyond what it allows, it counts as a violation
)

// search is a problem reduced to what is scarce: a resource of which there is enough has no dimension, nor has a budget that nothing on
// the node can exceed.
type search struct {
	units []item // in the order of UIDs
	kinds []kind
	caps  []int64 // by dimension: beyond it, a resource or an allowance matters no more
	// inexact: something had to be left out.
	inexact bool
}

// item is a unit.
type item struct {
	index    int // in Problem.Units
	priority int64
	lost     int64
	gpus     int64
	adds     [maxScarce]int64
	violates int64 // of budgets that have no dimension, whatever else is taken
	never    bool
}

// label is a set of units and what it comes to.
type label struct {
	violations, guaranteed, priority, lost, gpus, units int64
	dims                                                [maxScarce]int64 // clipped at the caps
	set                                                 [maxUnits / 64]uint64
}

func newSearch(p Problem) *search {
	s := &search{}
	byUID := func(a, b int) int { return cmp.Compare(p.Units[a].UID, p.Units[b].UID) }
	order := make([]int, len(p.Units))
	for i := range order {
		order[i] = i
	}
	if len(order) > maxUnits {
		// Those that give back most GPUs are enough for a choice.
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(p.Units[b].Frees[GPUs], p.Units[a].Frees[GPUs]), byUID(a, b))
		})
		order = order[:maxUnits]
		s.inexact = true
	}
	slices.SortFunc(order, byUID)
	s.units = make([]item, len(order))
	for i, index := range order {
		u := &p.Units[index]
		s.units[i] = item{index: index, priority: int64(u.Priority), lost: u.Lost, gpus: u.Frees[GPUs]}
		if u.Stopping {
			s.units[i].priority, s.units[i].lost = NoPriority, 0
		}
	}
	for i, need := range p.Need {
		if need > 0 {
			s.add(resource, need, p.Units, func(u *Unit) int64 { return u.Frees[i] })
		}
	}
	for i, share := range p.Shares {
		of := amountOf(i, func(u *Unit) []Amount { return u.Takes })
		switch {
		case s.sum(p.Units, of) <= share.Borrowed:
		case share.Own:
			s.add(owned, share.Borrowed, p.Units, of)
		default:
			s.add(guarded, share.Borrowed, p.Units, of)
		}
	}
	for i, allowed := range p.Budgets {
		of := amountOf(i, func(u *Unit) []Amount { return u.Evicts })
		if s.sum(p.Units, of) > max(0, allowed) {
			s.add(budget, max(0, allowed), p.Units, of)
		}
	}
	return s
}

func amountOf(index int, list func(*Unit) []Amount) func(*Unit) int64 {
	return func(u *Unit) int64 {
		if u.Stopping {
			return 0
		}
		for _, amount := range list(u) {
			if amount.Index == index {
				return amount.N
			}
		}
		return 0
	}
}

func (s *search) sum(units []Unit, of func(*Unit) int64) (sum int64) {
	for i := range s.units {
		sum += of(&units[s.units[i].index])
	}
	return sum
}

// add makes a dimension. Without room for it, what it would bound is left alone, or counted in full.
func (s *search) add(k kind, limit int64, units []Unit, of func(*Unit) int64) {
	d := len(s.caps)
	if d == maxScarce {
		s.inexact = true
	}
	for i := range s.units {
		it := &s.units[i]
		amount := of(&units[it.index])
		switch {
		case d < maxScarce:
			it.adds[d] = amount
		case k == budget:
			it.violates += amount
		default:
			it.never = it.never || amount > 0
		}
	}
	if d < maxScarce {
		s.kinds, s.caps = append(s.kinds, k), append(s.caps, limit)
	}
}

// priorities are those of the units, each once, ascending.
func (s *search) priorities() []int64 {
	all := make([]int64, 0, len(s.units))
	for i := range s.units {
		all = append(all, s.units[i].priority)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// under returns the best set of units whose priority is at most bound; its priority is not compared.
func (s *search) under(bound int64) (best label, found bool) {
	if !s.sufficient(bound) {
		return label{}, false
	}
	labels := []label{{priority: NoPriority}}
	if s.enough(&labels[0]) {
		return labels[0], true
	}
	for i := range s.units {
		it := &s.units[i]
		if it.never || it.priority > bound {
			continue
		}
		grown := labels
		for j := range labels {
			extended, allowed := s.extend(labels[j], it, i)
			switch {
			case !allowed || found && compare(&extended, &best) >= 0:
			case s.enough(&extended):
				// More would only cost more.
				best, found = extended, true
			default:
				grown = append(grown, extended)
			}
		}
		labels = s.prune(grown, &best, found)
	}
	return best, found
}

// sufficient reports whether all units together would give back enough.
func (s *search) sufficient(bound int64) bool {
	for d, limit := range s.caps {
		if s.kinds[d] != resource {
			break
		}
		var sum int64
		for i := range s.units {
			if it := &s.units[i]; !it.never && it.priority <= bound {
				sum += it.adds[d]
			}
		}
		if sum < limit {
			return false
		}
	}
	return true
}

// enough reports whether a label gives back what is needed.
func (s *search) enough(l *label) bool {
	for d, limit := range s.caps {
		if s.kinds[d] == resource && l.dims[d] < limit {
			return false
		}
	}
	return true
}

// extend adds unit i to a label, unless it may not be taken as well.
func (s *search) extend(l label, it *item, i int) (label, bool) {
	l.violations += it.violates
	for d, limit := range s.caps {
		sum := l.dims[d] + it.adds[d]
		l.dims[d] = min(sum, limit)
		beyond := sum - limit
		if beyond <= 0 {
			continue
		}
		switch s.kinds[d] {
		case guarded:
			return l, false
		case owned:
			l.guaranteed += beyond
		case budget:
			l.violations += beyond
		}
	}
	l.priority = max(l.priority, it.priority)
	l.lost += it.lost
	l.gpus += it.gpus
	l.units++
	l.set[i/64] |= 1 << (i % 64)
	return l, true
}

// prune keeps the labels that no other beats.
func (s *search) prune(labels []label, best *label, found bool) []label {
	slices.SortFunc(labels, func(a, b label) int { return compare(&a, &b) })
	kept := labels[:0]
	for i := range labels {
		if found && compare(&labels[i], best) >= 0 {
			break
		}
		beaten := slices.ContainsFunc(kept, func(k label) bool { return s.atLeastAsGood(&k, &labels[i]) })
		if beaten {
			continue
		}
		if len(kept) == maxLabels {
			s.inexact = true
			break
		}
		kept = append(kept, labels[i])
	}
	return kept
}

// atLeastAsGood compares dimensions only; that a costs no more is known.
func (s *search) atLeastAsGood(a, b *label) bool {
	for d := range s.caps {
		if s.kinds[d] == resource && a.dims[d] < b.dims[d] || s.kinds[d] != resource && a.dims[d] > b.dims[d] {
			return false
		}
	}
	return true
}

// compare orders labels by all parts of the cost that add up. Of two sets of equal cost the one with the lowest UID that the other lacks
// comes first, which no unit added to both can change.
func compare(a, b *label) int {
	if order := cmp.Or(
		cmp.Compare(a.violations, b.violations), cmp.Compare(a.guaranteed, b.guaranteed),
		cmp.Compare(a.lost, b.lost), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.units, b.units),
	); order != 0 {
		return order
	}
	for w := range a.set {
		if differ := a.set[w] ^ b.set[w]; differ != 0 {
			if a.set[w]&(differ&-differ) != 0 {
				return -1
			}
			return 1
		}
	}
	return 0
}

// indices are a label's units in Problem.Units.
func (s *search) indices(l *label) []int {
	var indices []int
	for w, word := range l.set {
		for ; word != 0; word &= word - 1 {
			indices = append(indices, s.units[w*64+bits.TrailingZeros64(word)].index)
		}
	}
	return indices
}
