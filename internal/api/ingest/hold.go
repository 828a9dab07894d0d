package ingest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A Hold is how a front other than HTTP's answers overload: it keeps a message and does not read its connection until
// there is room, instead of rejecting what the client would send again at once. Its fields must not change.
type Hold struct {
	Core  *Core
	Until context.Context // when it ends, nothing is held any longer
	Held  *atomic.Uint64  // counts the pauses
}

// Times for which a message is held before it is rejected.
const (
	holdFor   = 10 * time.Second
	holdAgain = 250 * time.Millisecond
)

// HoldFor returns the time after which a message that has been held for a while is tried again. It is not positive if
// that has lasted long enough.
func HoldFor(retryAfter, held time.Duration) time.Duration {
	return min(max(retryAfter/4, holdAgain), holdFor-held)
}

// Receive is [Core.Receive] for a message that may be held.
func (h *Hold) Receive(ctx context.Context, d *Delivery, answer func(*Outcome)) {
	d.since = h.Core.cfg.Now()
	pause := time.Duration(0)
	d.hold = func(why Refusal) bool {
		if why.Transient {
			pause = h.pause(why.RetryAfter, d.since)
		}
		return pause > 0
	}
	for again := true; again; again = pause > 0 {
		h.wait(pause)
		pause = 0
		h.Core.Receive(ctx, d, answer)
	}
}

// Reserve reserves n further bytes of memory for a message of all bytes, which is held until they are available. It
// reports whether they are.
func (h *Hold) Reserve(holder *share.Holder, n, all int) bool {
	for since := h.Core.cfg.Now(); !h.Core.memory.ReserveFor(holder, n, all); {
		pause := h.pause(0, since)
		if pause <= 0 {
			return false
		}
		h.wait(pause)
	}
	return true
}

// pause returns how long to wait before the next attempt. It is not positive if there is none.
func (h *Hold) pause(retryAfter time.Duration, since time.Time) time.Duration {
	if h.Until.Err() != nil {
		return 0
	}
	return HoldFor(retryAfter, h.Core.cfg.Now().Sub(since))
}

func (h *Hold) wait(pause time.Duration) {
	if pause <= 0 {
		return
	}
	h.Held.Add(1)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.Until.Done():
	}
}
