package gate

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// failing bounds how often an address may present what is found to be wrong only at some cost: a JWT, whose signature
// takes as long to verify as several requests, and a code, which the provider is asked about.
var failing = token.Limit{PerSecond: 10, Burst: 100}

// attempts are the buckets of addresses. A hash with a random seed selects the bucket of an address, which others
// may share: no number of addresses takes more memory, or makes one forgotten. The zero value is ready to use.
type attempts struct {
	once    sync.Once
	seed    maphash.Seed
	buckets [1024]*token.Bucket
}

// begin takes an attempt out of the bucket of a network, and returns the bucket, or nil if it is empty. The caller
// returns an attempt that does not fail.
func (a *attempts) begin(from netip.Prefix) *token.Bucket {
	now := time.Now()
	a.once.Do(func() {
		a.seed = maphash.MakeSeed()
		for i := range a.buckets {
			a.buckets[i] = token.NewBucket(failing, now)
		}
	})
	b := a.buckets[maphash.Comparable(a.seed, from)%uint64(len(a.buckets))]
	if ok, _ := b.Take(1, now); !ok {
		return nil
	}
	return b
}
