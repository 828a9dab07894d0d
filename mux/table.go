package mux

import (
	"hash/maphash"
	"slices"
)

// A nodeSet finds nodes by their keys. Built-in maps are slower.
type nodeSet struct {
	// few holds the nodes, linked by node.next, until there are more than
	// maxFew.
	few  *node
	many *nodeTable
	n    int
}

// maxFew is the maximum number of nodes that are searched linearly.
const maxFew = 6

// get returns the node with the key, or nil.
func (s *nodeSet) get(key string) *node {
	if s.many != nil {
		return *s.many.slot(key)
	}
	for n := s.few; n != nil; n = n.next {
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
	s.n++
	n := &node{key: key, next: s.few}
	s.few = n
	switch {
	case s.n <= maxFew:
	case s.many != nil && 2*s.n <= len(s.many.slots):
		*s.many.slot(key) = n
	default:
		size := 32
		for size < 4*s.n {
			size *= 2
		}
		s.many = &nodeTable{seed: maphash.MakeSeed(), slots: make([]*node, size)}
		for n := s.few; n != nil; n = n.next {
			*s.many.slot(n.key) = n
		}
	}
	return n
}

func (s *nodeSet) empty() bool { return s.n == 0 }

// A nodeTable is a hash table with open addressing. At least half of the slots
// are free. Their number is a power of two.
type nodeTable struct {
	seed  maphash.Seed
	slots []*node
}

// slot returns the slot of a key, which is empty if the key is not in the table.
func (t *nodeTable) slot(key string) **node {
	mask := uint64(len(t.slots) - 1)
	for i := maphash.String(t.seed, key); ; i++ {
		if s := &t.slots[i&mask]; *s == nil || (*s).key == key {
			return s
		}
	}
}

// A keysByLength finds the nodes whose keys are the beginning, or the end, of a
// text. A search costs one lookup for each length among the keys.
type keysByLength struct {
	nodeSet
	lengths []int // of the keys, each once
}

func (k *keysByLength) add(key string) *node {
	if !slices.Contains(k.lengths, len(key)) {
		k.lengths = append(k.lengths, len(key))
	}
	return k.nodeSet.add(key)
}
