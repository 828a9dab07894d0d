package query

import (
	"context"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// DefaultMaxReads is how many questions are answered at one time unless a server
// says otherwise.
const DefaultMaxReads = 64

// readWait is how long a question waits for others to be answered.
const readWait = 1 * time.Second

// A Bound bounds the requests that are answered at one time: each holds its page in
// memory, until the client has read it. It divides its places among those who ask
// (package share), so that one client that reads slowly does not keep out the others.
type Bound struct {
	mu      sync.Mutex
	left    int       // places; guarded by mu
	waiters []*waiter // oldest first, as many as there are places at most; guarded by mu
	most    int
}

// A waiter is a request that waits for a place.
type waiter struct {
	holder *share.Holder
	taken  chan struct{} // closed when it has got one
}

// NewBound returns a Bound of n requests.
func NewBound(n int) *Bound { return &Bound{left: n, most: n} }

// Enter takes a place for a holder, and waits for it for a second. It reports whether it
// got one, which the caller must give back by Leave.
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
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			return false
		}
	}
	return true // it got a place meanwhile
}

// Leave gives a place back, to the oldest of those that wait and may have it.
func (b *Bound) Leave(h *share.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Give(share.Places, 1)
	b.left++
	for i := 0; i < len(b.waiters); {
		w := b.waiters[i]
		if !b.take(w.holder) {
			i++
			continue
		}
		b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
		close(w.taken)
	}
}

// take takes a place, if there is one for h. b.mu is held.
func (b *Bound) take(h *share.Holder) bool {
	if b.left == 0 || !h.Take(share.Places, 1, int64(b.left-1)) {
		return false
	}
	b.left--
	return true
}
