package victims

import "slices"

// maxOrdered is how many units Ordered goes over: 1,024 sets.
const maxOrdered = 10

// Ordered returns up to most choices, best first: all sets that give back enough, also those of which a part would. It is for
// what Choose cannot know, such as anti-affinity. Nil if there are too many units.
func Ordered(p Problem, most int) []Choice {
	if len(p.Units) > maxOrdered || len(p.Need) > maxScarce {
		return nil
	}
	s := newSearch(p)
	var enough []label
	for set := 1; set < 1<<len(s.units); set++ {
		l, allowed := s.of(func(i int) bool { return set&(1<<i) != 0 })
		if allowed && s.enough(&l) {
			enough = append(enough, l)
		}
	}
	choices := make([]Choice, 0, len(enough))
	for i := range enough {
		choices = append(choices, s.choice(&enough[i]))
	}
	slices.SortStableFunc(choices, func(a, b Choice) int { return a.Cost.Compare(b.Cost) })
	return choices[:min(most, len(choices))]
}

// Of returns the choice of exactly these units, by index, and whether they may be taken together and are enough.
func Of(p Problem, units []int) (Choice, bool) {
	if len(p.Need) > maxScarce {
		return Choice{}, false
	}
	s := newSearch(p)
	l, allowed := s.of(func(i int) bool { return slices.Contains(units, s.units[i].index) })
	return s.choice(&l), allowed && s.enough(&l)
}

// of is the label of a set of units, by position.
func (s *search) of(in func(i int) bool) (label, bool) {
	l := label{priority: NoPriority}
	for i := range s.units {
		if !in(i) {
			continue
		}
		if s.units[i].never {
			return l, false
		}
		var allowed bool
		if l, allowed = s.extend(l, &s.units[i], i); !allowed {
			return l, false
		}
	}
	return l, true
}
