package server

import (
	"runtime/debug"
	"sync"
	"time"
)

// A trimmer returns memory to the operating system after many TLS handshakes. The zero
// trimmer is ready to use. It is safe for concurrent use.
//
// A handshake leaves several times more garbage than its connection keeps. Idle
// connections allocate nothing, so no collection would run for two minutes, and the
// runtime would keep the memory after it, for a heap of twice the size in use.
type trimmer struct {
	mu         sync.Mutex
	handshakes int         // since memory was returned
	timer      *time.Timer // nil means never set
}

const (
	trimHandshakes = 1000             // fewer are not worth a collection
	trimDelay      = 10 * time.Second // after the last of them
)

// handshake counts a handshake.
func (t *trimmer) handshake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.handshakes++; t.handshakes < trimHandshakes {
		return
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(trimDelay, t.trim)
	} else {
		t.timer.Reset(trimDelay)
	}
}

func (t *trimmer) trim() {
	t.mu.Lock()
	t.handshakes = 0
	t.mu.Unlock()
	debug.FreeOSMemory()
}

const (
	// maxBallastBytes makes the garbage of about 250 handshakes one collection.
	maxBallastBytes = 16 << 20

	ballastPartBytes = 1 << 20
)

// newBallast returns memory that is never read or written. It takes at most 1/32 of usableBytes,
// of which Go's memory limit, to which the ballast counts, is at least a quarter.
//
// A server with TLS has 2 MB on its heap and allocates 80 KB for a handshake. As the
// collector runs whenever the heap has doubled, it would run after every 25 handshakes.
// The ballast makes the heap larger for that rule, and only for that one: it takes address
// space, but no memory where the runtime need not clear it. So it is allocated first, and
// in parts, as one part that reuses freed memory would be cleared as a whole.
func newBallast(usableBytes int64) [][]byte {
	parts := make([][]byte, min(maxBallastBytes, usableBytes/32)/ballastPartBytes)
	for i := range parts {
		parts[i] = make([]byte, ballastPartBytes)
	}
	return parts
}
