package query

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// DefaultMaxReads is the default number of concurrent read requests.
const DefaultMaxReads = 64

// readWait is how long a request waits for a place.
const readWait = 1 * time.Second

// A Bound bounds the number of concurrent read requests, because each keeps its page in
// memory until the client has read it. It divides its places among clients (package
// share), so that a slow client does not block the others.
type Bound struct {
	mu      sync.Mutex
	left    int       // free places; guarded by mu
	waiters []*waiter // oldest first, at most as many as places; guarded by mu
	most    int
	kind    share.Resource // of the places
}

// A waiter is a request waiting for a place.
type waiter struct {
	holder *share.Holder
	taken  chan struct{} // closed when it has a place
}

// NewBound returns a Bound with n places.
func NewBound(n int) *Bound { return NewBoundOf(n, share.Places) }

// NewBoundOf returns a Bound with n places, which clients hold as a resource.
func NewBoundOf(n int, kind share.Resource) *Bound { return &Bound{left: n, most: n, kind: kind} }

// BusyFor returns the Retry-After of the answer to a request that got no place. It is jittered, so that clients that
// were rejected together do not retry together.
func BusyFor() time.Duration { return time.Duration(1+rand.IntN(5)) * time.Second }

// Admit takes a place for an authorized request. If it did, the caller must call leave at the end
// of the request. A nil Bound has places for all.
func (b *Bound) Admit(r *http.Request, access *gate.Access, holders *share.Holders) (leave func(), ok bool) {
	if b == nil {
		return func() {}, true
	}
	holder := access.Holder(holders, gate.PeerOf(r))
	if !b.Enter(r.Context(), holder) {
		holders.Put(holder)
		return nil, false
	}
	return func() {
		b.Leave(holder)
		holders.Put(holder)
	}, true
}

// Enter takes a place for a holder. If none is free, it waits up to one second. It
// reports whether it took a place, which the caller must return with Leave.
func (b *Bound) Enter(ctx context.Context, h *share.Holder) bool {
	b.mu.Lock()
	if b.take(h) {
		b.mu.Unlock()
		return true
	}
	if len(b.waiters) >= b.most {
		b.mu.Unlock()
		return false
	}
	w := &waiter{h, make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()

	timer := time.NewTimer(readWait)
	defer timer.Stop()
	select {
	case <-w.taken:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiters, w)
	if i >= 0 {
		b.waiters = slices.Delete(b.waiters, i, i+1)
	}
	return i < 0 // Leave assigned the place first
}

// Taken returns the number of places that are taken.
func (b *Bound) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.most - b.left)
}

// Leave returns a place, which goes to the oldest waiter whose holder may take one.
func (b *Bound) Leave(h *share.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Give(b.kind, 1)
	b.left++
	b.waiters = slices.DeleteFunc(b.waiters, func(w *waiter) bool {
		taken := b.take(w.holder)
		if taken {
			close(w.taken)
		}
		return taken
	})
}

// take takes a place for h if there is one. b.mu must be held.
func (b *Bound) take(h *share.Holder) bool {
	if b.left == 0 || !h.Take(b.kind, 1, int64(b.left-1)) {
		return false
	}
	b.left--
	return true
}
