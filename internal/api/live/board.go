package live

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A board has the subscribers, and what they wait for. Hub.mu guards it.
type board struct {
	flags    *vitals.FlagLimits
	roster   *roster.Book             // has ranges of some devices and subjects
	subs     map[*subscriber]struct{} // at most Options.MaxSubscribers
	topics   topics
	states   map[vitals.Name]*state // of devices that had an update while they were watched
	due      []*state               // dirty, and may be sent
	cooling  []*state               // sent within coolFor, oldest first
	lastID   uint64                 // of events
	erasures uint64                 // number of erasures
}

// A state is what is known of a watched device. Hub.mu guards it.
//
// Invariant: a state is removed only if it is in none of the lists of the Hub and its
// subscribers, so that Erased finds every text.
type state struct {
	device vitals.Name

	// newestUnixMs is the time of the device's newest stored reading, if known is set.
	known        bool
	newestUnixMs int64

	// dirty means that there is an update to send. It is record, or what the store has if
	// ask is set: then the update is late if the store has a reading after uptoUnixMs.
	dirty, ask bool
	record     storage.Record
	uptoUnixMs int64
	asks       uint64 // changes whenever the store must be asked again

	queued, hot bool // in Hub.due, in Hub.cooling
	sent        time.Time
	text        []byte // the last event, while a subscriber waits to write it; never modified
	waiting     int    // number of subscribers that have it pending
}

// An update is a reading that was stored, or has completed a stored one.
type update struct {
	device, gateway vitals.Name    // gateway: of the record; the zero Name: none
	record          storage.Record // without a gateway: that of most updates is not needed

	// partial means that the stored reading has signs that this one has not.
	partial bool
}

func (u *update) fill(e *storage.Entry) (wanted bool) {
	r := e.Reading
	*u = update{
		device: r.Device, gateway: r.Gateway, partial: e.Outcome == storage.Completed,
		record: storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values,
			UTCOffset: r.UTCOffset},
	}
	return true
}

// whole returns the record of an update, with its gateway.
func (u *update) whole() storage.Record {
	r := u.record
	if gateway := u.gateway; !gateway.IsZero() {
		r.Gateway = &gateway
	}
	return r
}

// absorbLocked notes an update. swept is set once idle states were removed in this round.
func (b *board) absorbLocked(u *update, swept *bool) {
	st := b.states[u.device]
	if !b.topics.has(&u.device) {
		return // and the next subscriber makes the state unknown
	}
	if st == nil {
		if len(b.states) >= maxStates && !*swept {
			b.sweepLocked()
			*swept = true
		}
		if len(b.states) >= maxStates {
			b.loseLocked(1)
			return
		}
		st = &state{device: u.device}
		b.states[u.device] = st
	}
	switch {
	case !st.known || u.partial && u.record.TimeUnixMs >= st.newestUnixMs:
		b.askLocked(st, u.record.TimeUnixMs)
	case u.record.TimeUnixMs < st.newestUnixMs: // late
	default:
		st.record, st.newestUnixMs, st.dirty = u.whole(), u.record.TimeUnixMs, true
		b.queueLocked(st)
	}
}

// askLocked makes the dispatcher ask the store for an update that is not newer than upto.
func (b *board) askLocked(st *state, uptoUnixMs int64) {
	if !st.dirty || !st.ask {
		st.uptoUnixMs = st.record.TimeUnixMs // 0 means none
	}
	st.uptoUnixMs = max(st.uptoUnixMs, uptoUnixMs)
	st.record, st.known, st.dirty, st.ask = storage.Record{}, false, true, true
	st.asks++
	b.queueLocked(st)
}

// forgetLocked makes the newest reading of a device unknown.
func (b *board) forgetLocked(st *state) {
	st.known = false
	if st.dirty {
		b.askLocked(st, 0)
	}
}

// queueLocked makes a dirty state due, unless it was sent a moment ago.
func (b *board) queueLocked(st *state) {
	if !st.queued && !st.hot {
		st.queued = true
		b.due = append(b.due, st)
	}
}

// coolLocked makes the states due that had to wait for their next event.
func (b *board) coolLocked(now time.Time) {
	n := 0
	for n < len(b.cooling) && now.Sub(b.cooling[n].sent) >= coolFor {
		st := b.cooling[n]
		n++
		if st.hot = false; st.dirty {
			b.queueLocked(st)
		}
	}
	if b.cooling = b.cooling[n:]; len(b.cooling) == 0 {
		b.cooling = nil
	}
}

// sweepLocked removes the states of devices that have been quiet.
func (b *board) sweepLocked() {
	for device, st := range b.states {
		if !st.dirty && !st.queued && !st.hot && st.waiting == 0 {
			delete(b.states, device)
		}
	}
}

// loseLocked makes every subscriber read the latest readings, after n updates were lost.
func (b *board) loseLocked(n uint64) {
	for s := range b.subs {
		s.queue.loseLocked(n)
	}
	for _, st := range b.states {
		b.forgetLocked(st)
	}
}

// sendLocked passes a reading on to the subscribers of its device.
func (b *board) sendLocked(st *state, n *latest, subject storage.Subject, now time.Time) {
	b.lastID++
	st.text = b.appendEvent(make([]byte, 0, 384), b.lastID, n, subject)
	st.dirty, st.ask, st.record = false, false, storage.Record{}
	b.restLocked(st, now)
	b.eachLocked(&st.device, func(q *queue) { q.noteLocked(st) })
	if st.waiting == 0 {
		st.text = nil
	}
}

// restLocked makes a state that is dirty, or becomes so, wait.
func (b *board) restLocked(st *state, now time.Time) {
	st.sent, st.hot = now, true
	b.cooling = append(b.cooling, st)
}

// alertLocked passes an alert that has begun or ended on to the subscribers of its device.
func (b *board) alertLocked(a *alert.Alert) {
	var text []byte // formatted once somebody wants it
	b.eachLocked(&a.Device, func(q *queue) {
		if text == nil {
			b.lastID++
			text = fmt.Appendf(nil, "id: %d\nevent: alert\ndata: %s\n\n", b.lastID, a.AppendJSON(nil))
		}
		q.alertLocked(text)
	})
}

// eachLocked calls f with the queues of the subscribers that want a device and may read it.
func (b *board) eachLocked(device *vitals.Name, f func(*queue)) {
	b.topics.each(device, func(g group) bool {
		for s := range g {
			if s.queue.access.Covers(device) {
				f(&s.queue)
			}
		}
		return true
	})
}

// appendEvent appends a reading of a device, and of the subject of its time, as an event.
func (b *board) appendEvent(dst []byte, id uint64, n *latest, subject storage.Subject) []byte {
	dst = strconv.AppendUint(append(dst, "id: "...), id, 10)
	dst = append(dst, "\nevent: reading\ndata: "...)
	var own vitals.FlagLimits
	limits := b.roster.Current().Limits(&n.device, subject, b.flags, &own)
	return append(query.AppendReading(dst, n.device, subject, &n.record, b.flags.Signs, limits), "\n\n"...)
}
