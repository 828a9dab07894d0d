package oidc

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// MaxCached bounds the verified tokens in the cache, each of which has at most [MaxTokenBytes].
const MaxCached = 4096

// A verified is a token that was verified. It does not change.
type verified struct {
	text        string
	principal   *token.Principal
	untilUnixMs int64  // it expires then
	generation  uint64 // of the keys and rules
}

// A cache holds verified tokens by their texts. Look-ups take no lock: the map is replaced as a whole, which takes as long as
// the verification of a token. What the time of a look-up reveals is no help, because nobody can choose a text with a hash.
type cache struct {
	mu      sync.Mutex                           // held while current is replaced
	current atomic.Pointer[map[string]*verified] // never modified; nil means empty
}

// cached returns the entry of a token, or nil.
func cached[T string | []byte](c *cache, text T) *verified {
	if all := c.current.Load(); all != nil {
		return (*all)[string(text)]
	}
	return nil
}

// put adds an entry. It replaces one of the same token. If the cache is full, entries of other keys or rules give way, or
// else the one that expires first.
func (c *cache) put(v *verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*verified{}
	if all := c.current.Load(); all != nil {
		next = maps.Clone(*all)
	}
	delete(next, v.text)
	if len(next) >= MaxCached {
		maps.DeleteFunc(next, func(_ string, old *verified) bool { return old.generation != v.generation })
	}
	if len(next) >= MaxCached {
		first := slices.MinFunc(slices.Collect(maps.Values(next)), func(a, b *verified) int { return cmp.Compare(a.untilUnixMs, b.untilUnixMs) })
		delete(next, first.text)
	}
	next[v.text] = v
	c.current.Store(&next)
}
