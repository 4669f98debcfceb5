package placement

import (
	"hash/maphash"
	"sync"
)

// table remembers values of nodes. It is of fixed size, each node has one place in it, and what is in the way is replaced: it
// neither grows nor allocates, however many nodes there are. It is safe for use by several goroutines.
type table struct {
	seed   maphash.Seed
	places []place
	locks  [64]sync.Mutex
}

type place struct {
	node  Node
	value float64
	full  bool
}

// tableSize is a power of two. At 64 bytes a place, a table is 2 MiB.
const tableSize = 1 << 15

func newTable() *table { return &table{seed: maphash.MakeSeed(), places: make([]place, tableSize)} }

func (t *table) at(n *Node) (*place, *sync.Mutex) {
	at := maphash.Comparable(t.seed, *n) % tableSize
	return &t.places[at], &t.locks[at%uint64(len(t.locks))]
}

func (t *table) get(n *Node) (value float64, known bool) {
	p, lock := t.at(n)
	lock.Lock()
	defer lock.Unlock()
	return p.value, p.full && p.node == *n
}

func (t *table) put(n *Node, value float64) {
	p, lock := t.at(n)
	lock.Lock()
	defer lock.Unlock()
	*p = place{*n, value, true}
}
