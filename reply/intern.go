package reply

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync/atomic"
)

// An Interner keeps header values that recur, such as the Location of a popular
// resource, in a table of bounded size. To find a value does not allocate and
// takes no lock.
//
// What it returns is immutable. A value that another one has displaced stays as
// it was for those who hold it, so that nobody has to say when a response is
// finished. It is safe for concurrent use.
//
// Invariant: an entry is not written after it was published
// (TestInternerConcurrent, under the race detector).
type Interner struct {
	seed     maphash.Seed
	mask     uint64
	maxBytes int
	sets     []internSet
}

// An internSet holds the values of one part of the hashes, the newest first. A
// value that comes to a full set displaces the oldest.
type internSet [4]atomic.Pointer[interned]

type interned struct {
	hash  uint64
	value [1]string
}

// NewInterner returns an Interner for the given number of values, of at most
// maxBytes bytes each. Longer ones are not kept. Values displace each other at
// random before the table is full: up to half of entries they seldom do.
//
// The memory is bounded by entries (rounded up to a power of two, at least 4)
// times maxBytes and some 50 bytes.
func NewInterner(entries, maxBytes int) *Interner {
	if entries > 1<<24 {
		panic("reply: Interner of more than 16,777,216 entries")
	}
	ways := len(internSet{})
	n := 1 << bits.Len(uint(max(entries, ways)-1)) / ways
	return &Interner{
		seed:     maphash.MakeSeed(),
		mask:     uint64(n - 1),
		maxBytes: maxBytes,
		sets:     make([]internSet, n),
	}
}

// Value returns s as a header value. It allocates only if s is not in the
// table. It does not retain s. The slice must not be modified.
func (t *Interner) Value(s string) []string {
	if len(s) > t.maxBytes {
		return bucket(s)
	}
	hash := maphash.String(t.seed, s)
	if v := find(t, hash, s); v != nil {
		return v
	}
	// The clone keeps a short value from holding on to a long string.
	return t.add(hash, strings.Clone(s))
}

// ValueBytes is [Interner.Value] for text that is not a string yet. It does not
// retain b.
func (t *Interner) ValueBytes(b []byte) []string {
	if len(b) > t.maxBytes {
		return bucket(string(b))
	}
	hash := maphash.Bytes(t.seed, b)
	if v := find(t, hash, b); v != nil {
		return v
	}
	return t.add(hash, string(b))
}

// find returns the value of s, or nil.
func find[T string | []byte](t *Interner, hash uint64, s T) []string {
	set := &t.sets[hash&t.mask]
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == hash && e.value[0] == string(s) {
			return e.value[:]
		}
	}
	return nil
}

// add publishes s. Two calls at a time may lose an entry, or have one twice, but
// never mix them. The table is a cache: it may forget.
func (t *Interner) add(hash uint64, s string) []string {
	e := &interned{hash: hash, value: [1]string{s}}
	set := &t.sets[hash&t.mask]
	for i := len(set) - 1; i > 0; i-- {
		set[i].Store(set[i-1].Load())
	}
	set[0].Store(e)
	return e.value[:]
}
