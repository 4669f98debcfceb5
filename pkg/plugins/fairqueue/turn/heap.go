package turn

import "container/heap"

// sorted is a heap whose members know their index, -1 while they are in none.
type sorted[T any] struct {
	members []T
	less    func(a, b T) bool
	index   func(T) *int
}

func (s *sorted[T]) Len() int           { return len(s.members) }
func (s *sorted[T]) Less(i, j int) bool { return s.less(s.members[i], s.members[j]) }
func (s *sorted[T]) Swap(i, j int) {
	s.members[i], s.members[j] = s.members[j], s.members[i]
	*s.index(s.members[i]), *s.index(s.members[j]) = i, j
}
func (s *sorted[T]) Push(x any) {
	*s.index(x.(T)) = len(s.members)
	s.members = append(s.members, x.(T))
}
func (s *sorted[T]) Pop() any {
	last := s.members[len(s.members)-1]
	var none T
	s.members[len(s.members)-1] = none
	s.members = s.members[:len(s.members)-1]
	*s.index(last) = -1
	return last
}

// put adds a member, or moves it to where it belongs now.
func (s *sorted[T]) put(member T) {
	if at := *s.index(member); at >= 0 {
		heap.Fix(s, at)
		return
	}
	heap.Push(s, member)
}

// drop removes a member, if it is there.
func (s *sorted[T]) drop(member T) {
	if at := *s.index(member); at >= 0 {
		heap.Remove(s, at)
	}
}

// first is the least member.
func (s *sorted[T]) first() (T, bool) {
	if len(s.members) == 0 {
		var none T
		return none, false
	}
	return s.members[0], true
}
