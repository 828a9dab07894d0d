package live

import (
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/vitals"
)

// A queue has what one subscriber is to get. Hub.mu guards it.
type queue struct {
	access    gate.Access
	pending   []*state            // oldest first
	has       map[*state]struct{} // of pending
	alerts    [][]byte            // oldest first; at most maxPending
	dropped   uint64              // events that were not sent, and not yet reported to the client
	resume    bool                // the latest readings are to be read from the store
	writing   []vitals.Name       // devices in the current write
	wake      chan struct{}       // of the stream
	onDropped func(n uint64)      // counts events that were not sent
}

// noteLocked notes an event. It is called by the dispatcher.
func (q *queue) noteLocked(st *state) {
	if q.resume {
		return // it will be read
	}
	if _, ok := q.has[st]; ok {
		q.missLocked(1) // the previous one
		return
	}
	if len(q.pending) == maxPending {
		q.loseLocked(maxPending + 1)
		return
	}
	if q.has == nil {
		q.has = map[*state]struct{}{}
	}
	q.has[st] = struct{}{}
	q.pending = append(q.pending, st)
	st.waiting++
	signal(q.wake)
}

// alertLocked adds a change of an alert.
func (q *queue) alertLocked(text []byte) {
	if len(q.alerts) == maxPending {
		q.loseAlertsLocked()
		return
	}
	q.alerts = append(q.alerts, text)
	signal(q.wake)
}

// loseAlertsLocked drops the changes of alerts that wait, and one more.
func (q *queue) loseAlertsLocked() {
	q.missLocked(uint64(len(q.alerts)) + 1)
	q.alerts = nil
	signal(q.wake)
}

// missLocked counts events that the client does not get.
func (q *queue) missLocked(n uint64) {
	q.dropped += n
	q.onDropped(n)
}

// loseLocked replaces what is pending, and n events that are missed with it, by the latest
// readings.
func (q *queue) loseLocked(n uint64) {
	q.clearLocked()
	q.missLocked(n)
	q.resume = true
	signal(q.wake)
}

// clearLocked removes what is pending.
func (q *queue) clearLocked() {
	for _, st := range q.pending {
		q.releaseLocked(st)
	}
	q.pending, q.has = nil, nil
}

// releaseLocked removes a state from those that are pending.
func (q *queue) releaseLocked(st *state) {
	delete(q.has, st)
	if st.waiting--; st.waiting == 0 {
		st.text = nil
	}
}

// takeLocked moves the oldest pending events into texts. resume reports that the latest readings
// must be read instead.
func (q *queue) takeLocked(texts [][]byte) (taken [][]byte, dropped uint64, resume bool) {
	q.writing = q.writing[:0]
	if dropped, q.dropped = q.dropped, 0; q.resume {
		q.resume = false
		return texts, dropped, true
	}
	alerts := min(len(q.alerts), eventsPerWrite)
	texts = append(texts, q.alerts[:alerts]...)
	if q.alerts = q.alerts[alerts:]; len(q.alerts) == 0 {
		q.alerts = nil
	}
	n := min(len(q.pending), eventsPerWrite-alerts)
	for _, st := range q.pending[:n] {
		if st.text != nil { // not erased
			texts = append(texts, st.text)
			q.writing = append(q.writing, st.device)
		}
		q.releaseLocked(st)
	}
	if n < len(q.pending) || len(q.alerts) > 0 {
		signal(q.wake)
	}
	rest := copy(q.pending, q.pending[n:])
	clear(q.pending[rest:])
	q.pending = q.pending[:rest]
	return texts, dropped, false
}

// signal puts a signal into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
