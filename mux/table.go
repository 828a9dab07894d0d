package mux

import (
	"hash/maphash"
	"sync/atomic"
)

// A nodeSet finds nodes by their keys. One goroutine at a time may add to it,
// under the tree's lock; any number may look up meanwhile, without a lock.
//
// Nodes are never removed or replaced, so a lookup that overlaps an addition
// finds at least the nodes that were present before.
type nodeSet struct {
	// few holds the nodes, linked by node.next, until there are too many.
	few  atomic.Pointer[node]
	many atomic.Pointer[nodeTable]
	n    int // for the writer
}

// maxFew is the maximum number of nodes that are searched linearly.
const maxFew = 6

// get returns the node with the key, or nil.
func (s *nodeSet) get(key string) *node {
	if t := s.many.Load(); t != nil {
		return t.get(key)
	}
	for n := s.few.Load(); n != nil; n = n.next {
		if n.key == key {
			return n
		}
	}
	return nil
}

// add returns the node with the key, which it creates if there is none.
func (s *nodeSet) add(key string) *node {
	if n := s.get(key); n != nil {
		return n
	}
	n := &node{key: key}
	s.n++
	t := s.many.Load()
	if t == nil && s.n <= maxFew {
		n.next = s.few.Load()
		s.few.Store(n)
		return n
	}
	if t == nil || 2*s.n > len(t.slots) {
		t = s.grow(t)
	}
	t.put(n)
	return n
}

// grow replaces the table by one with room for twice as many nodes. Lookups
// that use the old table find the nodes that were present until now.
func (s *nodeSet) grow(old *nodeTable) *nodeTable {
	size := 8
	for size < 4*s.n {
		size *= 2
	}
	t := &nodeTable{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[node], size)}
	if old == nil {
		for n := s.few.Load(); n != nil; n = n.next {
			t.put(n)
		}
	} else {
		for i := range old.slots {
			if n := old.slots[i].Load(); n != nil {
				t.put(n)
			}
		}
	}
	s.many.Store(t)
	return t
}

func (s *nodeSet) empty() bool {
	return s.few.Load() == nil && s.many.Load() == nil
}

// A nodeTable is a hash table with open addressing. At least half of the slots
// are free. The length is a power of two.
type nodeTable struct {
	seed  maphash.Seed
	slots []atomic.Pointer[node]
}

func (t *nodeTable) get(key string) *node {
	mask := uint64(len(t.slots) - 1)
	for i := maphash.String(t.seed, key); ; i++ {
		n := t.slots[i&mask].Load()
		if n == nil || n.key == key {
			return n
		}
	}
}

// put adds a node that is not in the table.
func (t *nodeTable) put(n *node) {
	mask := uint64(len(t.slots) - 1)
	for i := maphash.String(t.seed, n.key); ; i++ {
		if slot := &t.slots[i&mask]; slot.Load() == nil {
			slot.Store(n)
			return
		}
	}
}

// A keysByLength finds the nodes whose keys are the beginning, or the end, of a
// text. A search costs one lookup for each length among the keys.
type keysByLength struct {
	nodeSet

	// lengths are those of the keys, each once. The slice is replaced, never
	// modified.
	lengths atomic.Pointer[[]int]
}

func (k *keysByLength) add(key string) *node {
	n := k.nodeSet.add(key)
	var lengths []int
	if old := k.lengths.Load(); old != nil {
		lengths = *old
	}
	for _, length := range lengths {
		if length == len(key) {
			return n
		}
	}
	lengths = append(lengths[:len(lengths):len(lengths)], len(key))
	k.lengths.Store(&lengths)
	return n
}

func (k *keysByLength) all() []int {
	if lengths := k.lengths.Load(); lengths != nil {
		return *lengths
	}
	return nil
}
