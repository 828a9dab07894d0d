package oidc

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// MaxCached bounds the verified tokens in the cache, each of which has at most [MaxTokenBytes].
const MaxCached = 4096

// ways is the number of entries of a set.
const ways = 8

// A verified is a token that was verified. It does not change.
type verified struct {
	text        string
	principal   *token.Principal
	untilUnixMs int64  // it expires then
	generation  uint64 // of the keys and rules
}

// A cache holds verified tokens, in sets that are selected by a hash with a random seed. A look-up
// compares the whole text: a token differs from another in its signature, which nobody but the
// provider can make. What the time of the comparison reveals is no help, because a set cannot be
// selected without its hash.
//
// Look-ups take no lock.
type cache struct {
	seed maphash.Seed
	mu   sync.Mutex // held while entries change
	sets [MaxCached / ways][ways]atomic.Pointer[verified]
}

// set returns the set of a token.
func set[T string | []byte](c *cache, text T) *[ways]atomic.Pointer[verified] {
	var hash uint64
	switch text := any(text).(type) {
	case string:
		hash = maphash.String(c.seed, text)
	case []byte:
		hash = maphash.Bytes(c.seed, text)
	}
	return &c.sets[hash%uint64(len(c.sets))]
}

// cached returns the entry of a token, or nil.
func cached[T string | []byte](c *cache, text T) *verified {
	of := set(c, text)
	for i := range of {
		if v := of[i].Load(); v != nil && v.text == string(text) {
			return v
		}
	}
	return nil
}

// put adds an entry. It replaces one of the same token, and if its set is full one of other keys or
// rules, else the one that expires first.
func (c *cache) put(v *verified) {
	of := set(c, v.text)
	c.mu.Lock()
	defer c.mu.Unlock()
	victim, best := &of[0], int64(math.MaxInt64)
	for i := range of {
		old, rank := of[i].Load(), int64(math.MinInt64)
		switch {
		case old != nil && old.text == v.text:
			of[i].Store(nil)
		case old != nil && old.generation == v.generation:
			rank = old.untilUnixMs
		}
		if rank < best {
			victim, best = &of[i], rank
		}
	}
	victim.Store(v)
}
