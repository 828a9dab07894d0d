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
	timer      *time.Timer // nil: never set
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
