package live

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Reader reads stored readings. Package storage documents its contract.
type Reader interface {
	Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)
	Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error)
}

// Options configure a [Hub].
type Options struct {
	Problems *problem.Set
	Flags    vitals.FlagLimits // which values are flagged as unusual
	Gate     *gate.Gate        // authorizes subscribers; nil: everybody may read everything

	// MaxSubscribers bounds the subscribers. Default [DefaultMaxSubscribers]. Holders divide
	// it among clients; nil: it is not divided.
	MaxSubscribers int
	Holders        *share.Holders

	// WriteTimeout is how long a client may take to accept a piece of the stream. It
	// replaces the server's WriteTimeout. Default 30 s.
	WriteTimeout time.Duration

	// OnError, if not nil, is called with errors of the store and of the audit log. It must
	// be safe for concurrent use.
	OnError func(error)
}

// DefaultMaxSubscribers is the default bound on subscribers. A single client may take half
// of it.
const DefaultMaxSubscribers = 2048

// Times of the dispatcher.
const (
	// coolFor is the least time between two events of a device: four per second.
	coolFor = 250 * time.Millisecond

	// gatherFor is how long the dispatcher lets updates gather: it wakes up at most 100
	// times a second, whatever the number of commits.
	gatherFor = 10 * time.Millisecond

	// allowedEvery is how often the access of all subscribers is checked.
	allowedEvery = 500 * time.Millisecond
)

// maxStates is the number of devices whose states are kept, at about 350 bytes each.
const maxStates = 1 << 16

// A Hub passes what is stored to its subscribers. The package comment explains it.
type Hub struct {
	reader  Reader
	opt     Options
	inbox   inbox
	walking chan struct{} // holds one for each handler that reads a page

	listeners       atomic.Int64 // number of subscribers
	events, dropped atomic.Uint64

	stop, stopped chan struct{} // closed by Close, and when the dispatcher has ended

	mu       sync.Mutex
	closed   bool                     // guarded by mu, like all below
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

// New returns a Hub that reads from reader, and starts its dispatcher. The caller must
// Close it.
func New(reader Reader, opt Options) *Hub {
	if opt.MaxSubscribers <= 0 {
		opt.MaxSubscribers = DefaultMaxSubscribers
	}
	if opt.WriteTimeout <= 0 {
		opt.WriteTimeout = 30 * time.Second
	}
	if opt.Gate == nil {
		opt.Gate = &gate.Gate{}
	}
	h := &Hub{
		reader: reader, opt: opt, inbox: inbox{wake: make(chan struct{}, 1)}, walking: make(chan struct{}, maxWalking),
		stop: make(chan struct{}), stopped: make(chan struct{}),
		subs: map[*subscriber]struct{}{}, topics: newTopics(), states: map[vitals.Name]*state{},
		// Identifiers increase over restarts, unless the clock is set back.
		lastID: uint64(time.Now().UnixMicro()),
	}
	go h.dispatch()
	return h
}

// Publish passes on what a durable group has stored. It never waits, and retains neither the
// group nor its entries. Groups must be published in the order of their commits, each before
// the commit of the next one begins.
func (h *Hub) Publish(group []*storage.Entry) {
	if h.listeners.Load() > 0 {
		h.inbox.put(group)
	}
}

// Erased removes what is kept of a device, after its readings have been erased. It must be
// called before the erasure counts as finished. It does not call the store.
//
// What the inbox holds of the device, or a commit that is in progress will publish, cannot be
// distinguished from what was stored after the erasure. But the device's newest reading is
// unknown from now on, so the store is asked before anything is sent.
func (h *Hub) Erased(device vitals.Name) {
	h.mu.Lock()
	h.erasures++
	if st := h.states[device]; st != nil {
		st.text = nil
		h.askLocked(st, math.MaxInt64) // readings may have been stored after the erasure
	}
	var cut []*subscriber
	for s := range h.subs {
		if s.writes(&device) {
			cut = append(cut, s)
		}
	}
	h.mu.Unlock()
	for _, s := range cut {
		s.end(errErased)
	}
}

// Close ends all streams and the dispatcher, and rejects new subscribers.
func (h *Hub) Close() {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	subs := h.subscribersLocked(nil)
	h.mu.Unlock()
	for _, s := range subs {
		s.end(errDraining)
	}
	if first {
		close(h.stop)
	}
	<-h.stopped
}

// subscribersLocked appends all subscribers to dst.
func (h *Hub) subscribersLocked(dst []*subscriber) []*subscriber {
	for s := range h.subs {
		dst = append(dst, s)
	}
	return dst
}

// Reasons for which a stream ends.
var (
	errErased   = errors.New("live: a device was erased while its reading was being written")
	errDraining = errors.New("live: the server is about to stop")
	errRevoked  = errors.New("live: the client may no longer read")
	errFull     = errors.New("live: too many subscribers")
)

// subscribe adds a subscriber.
func (h *Hub) subscribe(s *subscriber) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := int64(h.opt.MaxSubscribers - len(h.subs) - 1)
	switch {
	case h.closed:
		return errDraining
	case left < 0 || !s.holder.Take(share.Streams, 1, left):
		return errFull
	}
	h.subs[s] = struct{}{}
	s.since = h.lastID
	h.topics.add(s)
	h.listeners.Add(1)
	// Updates of a device that nobody watched were not seen.
	for _, d := range s.want.devices {
		if st := h.states[d]; st != nil {
			h.forgetLocked(st)
		}
	}
	if len(s.want.devices) == 0 {
		for _, st := range h.states {
			h.forgetLocked(st)
		}
	}
	signal(h.inbox.wake) // the dispatcher begins to check the access
	return nil
}

// unsubscribe removes a subscriber.
func (h *Hub) unsubscribe(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.clearLocked()
	s.holder.Give(share.Streams, 1)
	delete(h.subs, s)
	h.topics.remove(s)
	if h.listeners.Add(-1) == 0 {
		clear(h.states)
		h.due, h.cooling = nil, nil
		h.inbox.take(nil)
	}
}

// dispatch is the dispatcher.
func (h *Hub) dispatch() {
	defer close(h.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var buf []update
	var checked time.Time
	for {
		select {
		case <-h.stop:
			return
		case <-h.inbox.wake:
			select {
			case <-h.stop:
				return
			case <-time.After(gatherFor):
			}
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(checked) >= allowedEvery {
			checked = now
			h.checkAccess()
		}
		buf = h.round(buf)
		timer.Reset(h.idleFor(checked))
	}
}

// idleFor returns how long the dispatcher may sleep if there is no update.
func (h *Hub) idleFor(checked time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := time.Hour
	if len(h.subs) > 0 {
		next = time.Until(checked.Add(allowedEvery))
	}
	if len(h.cooling) > 0 {
		next = min(next, time.Until(h.cooling[0].sent.Add(coolFor)))
	}
	if len(h.due) > 0 {
		next = 0
	}
	return max(next, time.Millisecond)
}

// round passes on the updates in the inbox, and those that had to wait. It returns a buffer
// for the next round.
func (h *Hub) round(buf []update) []update {
	updates, lost := h.inbox.take(buf)
	h.mu.Lock()
	if lost > 0 {
		h.loseLocked(lost)
	}
	swept := false
	for i := range updates {
		h.absorbLocked(&updates[i], &swept)
	}
	now := time.Now()
	h.coolLocked(now)
	// Ask without the lock. What changes meanwhile is dirty and in due again.
	due := h.due
	h.due = nil
	var asked []question
	for _, st := range due {
		st.queued = false
		switch {
		case !st.dirty:
		case st.ask:
			asked = append(asked, question{st, st.asks})
		default:
			h.sendLocked(st, &st.record, now)
		}
	}
	h.mu.Unlock()
	clear(updates) // they hold measured values
	h.answer(asked)
	return updates
}

// A question is a state whose device's newest reading is read from the store.
type question struct {
	st   *state
	asks uint64 // of the state
}

// answer reads the newest readings from the store, and sends those that were updated.
func (h *Hub) answer(asked []question) {
	for _, q := range asked {
		st := q.st
		r, found, err := h.newest(context.Background(), st.device)
		if err != nil {
			h.report(err)
		}
		h.mu.Lock()
		switch {
		case h.states[st.device] != st: // nobody is left
		case st.asks != q.asks: // outdated: it is due again
		case err != nil || !found:
			st.dirty, st.ask = false, false
		case r.TimeUnixMs > st.uptoUnixMs: // the update was late
			st.known, st.newestUnixMs = true, r.TimeUnixMs
			st.dirty, st.ask = false, false
		default:
			st.known, st.newestUnixMs = true, r.TimeUnixMs
			h.sendLocked(st, &r, time.Now())
		}
		h.mu.Unlock()
	}
}

// newest returns a device's newest stored reading.
func (h *Hub) newest(ctx context.Context, device vitals.Name) (r storage.Record, found bool, err error) {
	var one [1]storage.Record
	n, err := h.reader.Scan(ctx, storage.Range{Device: device, ToUnixMs: math.MaxInt64, Descending: true}, one[:])
	return one[0], n == 1, err
}

// absorbLocked notes an update. swept is set once idle states were removed in this round.
func (h *Hub) absorbLocked(u *update, swept *bool) {
	st := h.states[u.Device]
	if !h.topics.has(&u.Device) {
		return // and the next subscriber makes the state unknown
	}
	if st == nil {
		if len(h.states) >= maxStates && !*swept {
			h.sweepLocked()
			*swept = true
		}
		if len(h.states) >= maxStates {
			h.loseLocked(1)
			return
		}
		st = &state{device: u.Device}
		h.states[u.Device] = st
	}
	switch {
	case !st.known || u.partial && u.TimeUnixMs >= st.newestUnixMs:
		h.askLocked(st, u.TimeUnixMs)
	case u.TimeUnixMs < st.newestUnixMs: // late
	default:
		st.record, st.newestUnixMs, st.dirty = u.record(), u.TimeUnixMs, true
		h.queueLocked(st)
	}
}

// askLocked makes the dispatcher ask the store for an update that is not newer than upto.
func (h *Hub) askLocked(st *state, uptoUnixMs int64) {
	if !st.dirty || !st.ask {
		st.uptoUnixMs = st.record.TimeUnixMs // 0: none
	}
	st.uptoUnixMs = max(st.uptoUnixMs, uptoUnixMs)
	st.record, st.known, st.dirty, st.ask = storage.Record{}, false, true, true
	st.asks++
	h.queueLocked(st)
}

// forgetLocked makes the newest reading of a device unknown.
func (h *Hub) forgetLocked(st *state) {
	st.known = false
	if st.dirty {
		h.askLocked(st, 0)
	}
}

// queueLocked makes a dirty state due, unless it was sent a moment ago.
func (h *Hub) queueLocked(st *state) {
	if !st.queued && !st.hot {
		st.queued = true
		h.due = append(h.due, st)
	}
}

// coolLocked makes the states due that had to wait for their next event.
func (h *Hub) coolLocked(now time.Time) {
	n := 0
	for n < len(h.cooling) && now.Sub(h.cooling[n].sent) >= coolFor {
		st := h.cooling[n]
		n++
		if st.hot = false; st.dirty {
			h.queueLocked(st)
		}
	}
	if h.cooling = h.cooling[n:]; len(h.cooling) == 0 {
		h.cooling = nil
	}
}

// sweepLocked removes the states of devices that have been quiet.
func (h *Hub) sweepLocked() {
	for device, st := range h.states {
		if !st.dirty && !st.queued && !st.hot && st.waiting == 0 {
			delete(h.states, device)
		}
	}
}

// loseLocked makes every subscriber read the latest readings, after n updates were lost.
func (h *Hub) loseLocked(n uint64) {
	for s := range h.subs {
		s.loseLocked(n)
	}
	for _, st := range h.states {
		h.forgetLocked(st)
	}
}

// sendLocked passes a reading on to the subscribers of its device.
func (h *Hub) sendLocked(st *state, r *storage.Record, now time.Time) {
	h.lastID++
	st.text = h.appendEvent(make([]byte, 0, 384), h.lastID, st.device, r)
	st.dirty, st.ask, st.record = false, false, storage.Record{}
	st.sent, st.hot = now, true
	h.cooling = append(h.cooling, st)
	h.topics.each(&st.device, func(g group) bool {
		for s := range g {
			if s.access.Covers(&st.device) {
				s.noteLocked(st)
			}
		}
		return true
	})
	if st.waiting == 0 {
		st.text = nil
	}
}

// appendEvent appends a reading of a device as an event.
func (h *Hub) appendEvent(dst []byte, id uint64, device vitals.Name, r *storage.Record) []byte {
	dst = strconv.AppendUint(append(dst, "id: "...), id, 10)
	dst = append(dst, "\nevent: reading\ndata: "...)
	return append(query.AppendReading(dst, device, r, &h.opt.Flags), "\n\n"...)
}

// checkAccess ends the streams of clients that may no longer read. A blocked write fails.
func (h *Hub) checkAccess() {
	if h.opt.Gate.Open() {
		return
	}
	h.mu.Lock()
	subs := h.subscribersLocked(nil)
	h.mu.Unlock()
	for _, s := range subs {
		s.checkAccess()
	}
}

// report passes an error to OnError.
func (h *Hub) report(err error) {
	if h.opt.OnError != nil && !errors.Is(err, storage.ErrClosed) && !errors.Is(err, context.Canceled) {
		h.opt.OnError(err)
	}
}
