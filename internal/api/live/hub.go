package live

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/feed"
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
	query.Service                   // PieceTimeout is of a piece of the stream; Bound and Param are not used
	Flags         vitals.FlagLimits // the signs, by default the built-in ones, and which values are flagged as unusual

	// MaxSubscribers bounds the subscribers. Default [DefaultMaxSubscribers].
	MaxSubscribers int
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

// maxStates is the number of devices whose states are kept, at about 500 bytes each.
const maxStates = 1 << 16

// A Hub passes what is stored to its subscribers. The package comment explains it.
type Hub struct {
	reader  Reader
	opt     Options
	inbox   *feed.Inbox[update]
	walking chan struct{} // holds one for each handler that reads a page

	listeners       atomic.Int64 // number of subscribers
	events, dropped atomic.Uint64

	stop, stopped chan struct{} // closed by Close, and when the dispatcher has ended

	mu     sync.Mutex
	closed bool  // guarded by mu
	board  board // guarded by mu
}

// New returns a Hub that reads from reader, and starts its dispatcher. The caller must
// Close it.
func New(reader Reader, opt Options) *Hub {
	if opt.MaxSubscribers <= 0 {
		opt.MaxSubscribers = DefaultMaxSubscribers
	}
	opt.SetDefaults()
	if opt.Flags.Signs == nil {
		opt.Flags.Signs = vitals.NewSigns()
	}
	h := &Hub{
		reader: reader, opt: opt, inbox: feed.NewInbox((*update).fill), walking: make(chan struct{}, maxWalking),
		stop: make(chan struct{}), stopped: make(chan struct{}),
		board: board{
			flags: &opt.Flags, roster: opt.Roster,
			subs: map[*subscriber]struct{}{}, topics: newTopics(), states: map[vitals.Name]*state{},
			// Identifiers increase over restarts, unless the clock is set back.
			lastID: uint64(time.Now().UnixMicro()),
		},
	}
	go h.dispatch()
	return h
}

// Publish passes on what a durable group has stored. It never waits, and retains neither the
// group nor its entries. Groups must be published in the order of their commits, each before
// the commit of the next one begins.
func (h *Hub) Publish(group []*storage.Entry) {
	if h.listeners.Load() > 0 {
		h.inbox.Put(group)
	}
}

// PublishAlerts passes on alerts that have begun or ended. lost means that some are missing. It never waits.
func (h *Hub) PublishAlerts(changed []alert.Alert, lost bool) {
	if h.listeners.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range changed {
		h.board.alertLocked(&changed[i])
	}
	for s := range h.board.subs {
		if lost {
			s.queue.loseAlertsLocked()
		}
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
	h.board.erasures++
	if st := h.board.states[device]; st != nil {
		st.text = nil
		h.board.askLocked(st, math.MaxInt64) // readings may have been stored after the erasure
	}
	var cut []*subscriber
	for s := range h.board.subs {
		if slices.Contains(s.queue.writing, device) {
			cut = append(cut, s)
		}
	}
	h.mu.Unlock()
	for _, s := range cut {
		s.stream.end(errErased)
	}
}

// Close ends all streams and the dispatcher, and rejects new subscribers.
func (h *Hub) Close() {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	subs := slices.Collect(maps.Keys(h.board.subs))
	h.mu.Unlock()
	for _, s := range subs {
		s.stream.end(errDraining)
	}
	if first {
		close(h.stop)
	}
	<-h.stopped
}

// Reasons for which a stream ends.
var (
	errErased   = errors.New("a device was erased while its reading was being written")
	errDraining = errors.New("the server is about to stop")
	errRevoked  = errors.New("the client may no longer read")
	errFull     = errors.New("too many subscribers")
)

// subscribe adds a subscriber.
func (h *Hub) subscribe(s *subscriber) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := int64(h.opt.MaxSubscribers - len(h.board.subs) - 1)
	switch {
	case h.closed:
		return errDraining
	case left < 0 || !s.holder.Take(share.Streams, 1, left):
		return errFull
	}
	h.board.subs[s] = struct{}{}
	s.since = h.board.lastID
	h.board.topics.add(s)
	h.listeners.Add(1)
	// Updates of a device that nobody watched were not seen.
	for _, d := range s.want.devices {
		if st := h.board.states[d]; st != nil {
			h.board.forgetLocked(st)
		}
	}
	if len(s.want.devices) == 0 {
		for _, st := range h.board.states {
			h.board.forgetLocked(st)
		}
	}
	h.inbox.Wake() // the dispatcher begins to check the access
	return nil
}

// unsubscribe removes a subscriber.
func (h *Hub) unsubscribe(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.queue.clearLocked()
	s.holder.Give(share.Streams, 1)
	delete(h.board.subs, s)
	h.board.topics.remove(s)
	if h.listeners.Add(-1) == 0 {
		clear(h.board.states)
		h.board.due, h.board.cooling = nil, nil
		h.inbox.Take(nil)
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
		case <-h.inbox.Woken():
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
	if len(h.board.subs) > 0 {
		next = time.Until(checked.Add(allowedEvery))
	}
	if len(h.board.cooling) > 0 {
		next = min(next, time.Until(h.board.cooling[0].sent.Add(coolFor)))
	}
	if len(h.board.due) > 0 {
		next = 0
	}
	return max(next, time.Millisecond)
}

// round passes on the updates in the inbox, and those that had to wait. It returns a buffer
// for the next round.
func (h *Hub) round(buf []update) []update {
	updates, lost := h.inbox.Take(buf)
	h.mu.Lock()
	if lost > 0 {
		h.board.loseLocked(lost)
	}
	swept := false
	for i := range updates {
		h.board.absorbLocked(&updates[i], &swept)
	}
	h.board.coolLocked(time.Now())
	// Ask without the lock. What changes before the answers is dirty and in due again.
	due := h.board.due
	h.board.due = nil
	var known, asked []question
	for _, st := range due {
		st.queued = false
		switch {
		case !st.dirty:
		case st.ask:
			asked = append(asked, question{st: st, asks: st.asks})
		default:
			known = append(known, question{st, st.asks, latest{st.device, st.record, true}})
		}
	}
	h.mu.Unlock()
	clear(updates) // they hold measured values
	for some := range slices.Chunk(known, eventsPerWrite) {
		h.answer(some)
	}
	for some := range slices.Chunk(asked, eventsPerWrite) {
		h.answer(some)
	}
	return updates
}

// A question is a state whose subject is read from the store, as is its newest reading unless that is known.
type question struct {
	st   *state
	asks uint64 // of the state
	latest
}

// A latest is the newest stored reading of a device.
type latest struct {
	device vitals.Name
	record storage.Record
	found  bool
}

// answer reads the subjects and readings from the store, and sends the readings that were updated.
func (h *Hub) answer(asked []question) {
	of := make([]latest, len(asked))
	for i, q := range asked {
		if of[i] = q.latest; !q.found {
			of[i], _ = h.newest(context.Background(), q.st.device)
		}
	}
	worn, err := h.wornAt(context.Background(), of)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, q := range asked {
		st, r := q.st, &of[i].record
		switch {
		case h.board.states[st.device] != st: // nobody is left
		case st.asks != q.asks: // outdated: it is due again
		case err != nil: // again in a moment
			h.board.restLocked(st, time.Now())
		case !of[i].found:
			st.dirty, st.ask = false, false
		case !q.found && r.TimeUnixMs > st.uptoUnixMs: // the update was late
			st.known, st.newestUnixMs = true, r.TimeUnixMs
			st.dirty, st.ask = false, false
		default:
			st.known, st.newestUnixMs = true, r.TimeUnixMs
			h.board.sendLocked(st, &of[i], worn[i].Subject, time.Now())
		}
	}
}

// newest returns a device's newest stored reading, if it has one and that can be read.
func (h *Hub) newest(ctx context.Context, device vitals.Name) (latest, error) {
	var one [1]storage.Record
	n, err := h.reader.Scan(ctx, storage.Range{Device: device, ToUnixMs: math.MaxInt64, Descending: true}, one[:])
	if err != nil {
		h.report(err)
	}
	return latest{device, one[0], n == 1 && err == nil}, err
}

// wornAt returns the spans of assignments around some readings.
func (h *Hub) wornAt(ctx context.Context, of []latest) ([]storage.Assignment, error) {
	devices := make([]vitals.Name, len(of))
	for i := range of {
		devices[i] = of[i].device
	}
	worn, err := h.opt.SpansAt(ctx, devices, func(i int) int64 { return of[i].record.TimeUnixMs })
	if err != nil {
		h.report(err)
	}
	return worn, err
}

// checkAccess ends the streams of clients that may no longer read. A blocked write fails.
func (h *Hub) checkAccess() {
	if h.opt.Gate.Open() {
		return
	}
	h.mu.Lock()
	subs := slices.Collect(maps.Keys(h.board.subs))
	h.mu.Unlock()
	for _, s := range subs {
		s.checkAccess()
	}
}

// report passes an error to OnError, unless it means that the server stops.
func (h *Hub) report(err error) {
	if !errors.Is(err, storage.ErrClosed) {
		h.opt.Report(err)
	}
}
