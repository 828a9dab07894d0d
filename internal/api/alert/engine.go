package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/feed"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Times of an engine.
const (
	gatherFor   = 100 * time.Millisecond // updates gather for at most this long
	gatherLeast = 10 * time.Millisecond  // and for at least this long, so that few are in memory
	// while more than maxOffered are published: this costs next to nothing, and what the inbox holds counts as lost
	gatherLost  = time.Second
	settleEvery = 5 * time.Second // silence is noticed this late
	// evaluating updates, sweeps, and reading runs again, each take a hundredth of the time
	seldom      = 100
	sweepAtMost = 5 * time.Minute        // but sweeps are made so often
	readFor     = 500 * time.Millisecond // after this, devices are left for the next round, so that others do not wait
	// a little at a time, so that the share is a hundredth of each second, and not of a minute
	rereadFor  = 10 * time.Millisecond
	refreshFor = 10 * time.Second
)

// Options configure an [Engine].
type Options struct {
	// Shared says that other servers write to the store. Their readings are read at each sweep, and at
	// [Engine.Refresh].
	Shared bool

	// SweepEvery is how often what is kept of all devices is compared with the store. Default 1 min, or
	// 10 s with Shared.
	SweepEvery time.Duration

	// MaxBytes bounds the memory of states: a device takes deviceBytes, and stateBytes for each rule.
	// Devices for which there is no room have no alerts. 0 means no bound.
	MaxBytes int64

	// Retain is how long readings are kept; 0 means for ever.
	Retain time.Duration

	// Grace is how long after the start, and after the store has failed, no alert about silence begins, so
	// that gateways can send what they hold.
	Grace time.Duration

	// OnError, if not nil, is called with errors of the store.
	OnError func(error)

	// Now is time.Now by default.
	Now func() time.Time
}

// An Engine knows which alerts are active. The package comment explains it.
type Engine struct {
	reader  Reader
	opt     Options
	inbox   *feed.Inbox[update]
	filter  atomic.Pointer[filter] // of the board: what is put into the inbox
	offered atomic.Int64           // number of entries that were published since window, or a loss
	window  time.Time              // used by Publish only
	restart chan struct{}          // holds one if next may be set
	refresh chan chan struct{}     // closed when all devices were compared

	// Used by Run only.
	page     []storage.Record // of a run that is read
	rereadAt time.Time        // when devices of the order perhaps are read
	reread   time.Duration    // that this has taken since the last sweep

	mu       sync.Mutex
	next     []Rule // to be put into force; nil means none
	board    *board
	ready    bool                 // the board has all devices, but those that could not be read
	troubled time.Time            // when the store last failed, or the start
	before   []Alert              // active before the board was begun; while it is not ready
	lost     uint64               // updates that were not evaluated, and no sweep has made good
	lostEver uint64               // updates that were not evaluated
	erasures uint64               // number of calls of Erased
	sweepErr error                // of the last sweep; nil means that it has seen all devices
	readErr  error                // of an unread device that could not be read
	erased   map[vitals.Name]bool // since the last sweep: what the inbox holds of them may be erased
	changes  []Alert              // the newest last; at most maxChanges
	nChanges uint64               // number of changes since the start
	changed  chan struct{}        // closed and replaced when an alert begins or ends
}

// maxOffered bounds how many entries are looked at in gatherFor, so that publishing costs a loaded committer little.
const maxOffered = 1 << 14

// maxChanges bounds the changes that are kept until they are reported. A receiver that misses an end knows
// it by the end time of the last report.
const maxChanges = 1 << 14

// NewEngine returns an Engine, which Run runs.
func NewEngine(reader Reader, rules []Rule, opt Options) *Engine {
	if opt.SweepEvery <= 0 {
		opt.SweepEvery = time.Minute
		if opt.Shared {
			opt.SweepEvery = 10 * time.Second
		}
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	e := &Engine{
		reader: reader, opt: opt, troubled: time.Now(), restart: make(chan struct{}, 1), refresh: make(chan chan struct{}),
		board: newBoard(rules, &opt), erased: map[vitals.Name]bool{}, changed: make(chan struct{}),
	}
	e.inbox = feed.NewInbox(func(u *update, entry *storage.Entry) bool { return e.filter.Load().fill(u, entry) })
	e.filter.Store(e.board.filter)
	return e
}

// Publish takes what a durable group has stored. It never waits, and retains neither the group nor its
// entries. Groups must be published in the order of their commits.
func (e *Engine) Publish(group []*storage.Entry) {
	if e.offered.Load() <= maxOffered { // otherwise what the inbox holds counts as lost until it is taken
		if now := time.Now(); now.Sub(e.window) >= gatherFor {
			e.window = now
			e.offered.Store(0)
		}
	}
	if e.offered.Add(min(int64(len(group)), maxOffered)) > maxOffered { // never by one group alone
		e.inbox.Lose(uint64(len(group)))
		return
	}
	e.inbox.Put(group)
}

// Erased ends the alerts of a device of which readings have been erased. It does not call the store.
func (e *Engine) Erased(device vitals.Name) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before = slices.DeleteFunc(e.before, func(a Alert) bool {
		if a.Device != device {
			return false
		}
		e.changeLocked(ended(a, e.opt.nowUnixMs()))
		return true
	})
	e.erasures++
	e.erased[device] = true
	e.installLocked(&device, nil, 0)
	e.board.mark(&device, differs) // only the readings of an assignment may have been erased
}

// SetRules puts other rules into force, or returns an error if devices that are evaluated would have no
// room. Alerts that have the same labels remain active.
func (e *Engine) SetRules(rules []Rule) error {
	e.mu.Lock()
	n, most := e.board.devices.n, maxDevices(&e.opt, len(rules))
	if n <= most {
		e.next = rules
	}
	e.mu.Unlock()
	if n > most {
		return fmt.Errorf("%d rules have room for %d devices in %d bytes, and there are %d", len(rules), most,
			e.opt.MaxBytes, n)
	}
	select {
	case e.restart <- struct{}{}:
	default:
	}
	return nil
}

// rulesOf returns the rules in force, which must not be modified.
func rulesOf(e *Engine) []Rule {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.board.rules
}

// Refresh returns once all devices were compared with a store to which other servers write, so that what
// they have stored until now is known; or after refreshFor.
func (e *Engine) Refresh(ctx context.Context) {
	if !e.opt.Shared {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshFor)
	defer cancel()
	done := make(chan struct{})
	select {
	case e.refresh <- done:
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Check returns an error if devices may have no alerts, because their states cannot be read from the store or
// there is no room for them. It is a check of package health.
func (e *Engine) Check(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.sweepErr; err != nil {
		return fmt.Errorf("stored readings cannot be read: %w", err)
	}
	if err := e.readErr; err != nil {
		return fmt.Errorf("stored readings of %d devices cannot be read: %w", e.board.failed(), err)
	}
	if b := e.board; b.full {
		return fmt.Errorf(
			"%d devices have no alerts: the states of %d rules have room for %d devices; use fewer rules, or more memory",
			b.leftOut, len(b.rules), b.maxDevices)
	}
	return nil
}

// Run reads what is stored of all devices, and keeps the alerts current until ctx ends.
func (e *Engine) Run(ctx context.Context) {
	settle := time.NewTicker(settleEvery)
	defer settle.Stop()
	var buf []update
	var sweepAt, sweptAt time.Time // sweptAt is the end of the last sweep
	var took time.Duration         // by the last sweep
	gather := gatherLeast
	var refreshed []chan struct{} // to be closed when a sweep has ended, and what it has found was read
	all := true
	for {
		if now := time.Now(); !now.Before(sweepAt) {
			turned, turns := now, time.Duration(0)
			ok := e.sweep(ctx, func() { // a sweep may take seconds
				if began := time.Now(); began.Sub(turned) >= gatherFor {
					buf, _ = e.take(buf)
					e.settle(false)
					e.readUnread(ctx, false, false)
					turned = time.Now()
					turns += turned.Sub(began)
				}
			})
			all, sweptAt, e.reread = true, time.Now(), 0
			took = sweptAt.Sub(now) - turns
			if sweepAt = now.Add(max(e.opt.SweepEvery, min(seldom*took, sweepAtMost))); !ok {
				sweepAt = now.Add(settleEvery)
			}
		}
		e.readUnread(ctx, all, false)
		e.settle(all)
		all = false
		var rest <-chan time.Time
		if !e.readUnread(ctx, false, false) { // what other servers may have stored of alerts that are about to begin
			rest = time.After(gatherLeast)
		} else {
			for _, c := range refreshed {
				close(c)
			}
			refreshed = nil
		}
		select {
		case <-rest:
		case <-ctx.Done():
			return
		case <-e.restart:
			e.begin()
			sweepAt = time.Time{}
		case c := <-e.refresh:
			refreshed = append(refreshed, c)
			sweepAt = time.Time{}
		case <-settle.C:
			all = true
		case <-e.inbox.Woken():
			select {
			case <-ctx.Done():
				return
			case <-time.After(gather):
			}
		}
		began := time.Now()
		tooMany, lost := e.offered.Load() > maxOffered, false
		buf, lost = e.take(buf)
		// and not because the inbox does not hold what matters of gatherLost
		if gather = min(max(gatherLeast, seldom*time.Since(began)), gatherFor); tooMany {
			gather = gatherLost
		}
		if lost {
			if soon := sweptAt.Add(seldom * (took + e.reread)); soon.Before(sweepAt) {
				sweepAt = soon
			}
		}
	}
}

// begin begins a board for the rules of SetRules.
func (e *Engine) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		return
	}
	if e.ready { // otherwise before is of an older board
		e.before = e.board.active()
	}
	e.board, e.next, e.ready = newBoard(e.next, &e.opt), nil, false
	e.filter.Store(e.board.filter) // the sweep that follows reads what the one before has left out
}

// take takes the inbox, and reports whether that has lost something. Then the whole inbox counts as lost: the
// next sweep reads all that is stored.
func (e *Engine) take(buf []update) (updates []update, lost bool) {
	e.offered.Store(0)
	updates, n := e.inbox.Take(buf)
	if n > 0 {
		n += uint64(len(updates))
	}
	e.mu.Lock()
	e.lost += n
	e.lostEver += n
	if n == 0 {
		e.board.takeAll(updates)
	}
	for i := 0; i < len(updates) && len(e.erased) > 0; i++ {
		if e.erased[updates[i].device] {
			e.board.mark(&updates[i].device, differs)
		}
	}
	e.mu.Unlock()
	return updates, n > 0
}

// sweep compares what is kept of all devices with the store, and reports whether it has seen all. With Shared, it
// calls between now and then, if that is not nil: what is taken then is older than what is compared next.
func (e *Engine) sweep(ctx context.Context, between func()) bool {
	e.mu.Lock()
	lost := e.lost
	late := lost > 0 || e.opt.Shared
	e.board.begin(e.opt.nowUnixMs(), lost > 0)
	clear(e.erased) // the sweep reads what an update of them has made wrong
	e.mu.Unlock()
	err := e.reader.WalkDevices(ctx, func(some []storage.Device) {
		e.mu.Lock()
		for i := range some {
			e.board.compare(&some[i], late)
		}
		e.mu.Unlock()
		if between != nil && e.opt.Shared { // a store of one server may walk over a snapshot
			between()
		}
	})
	e.mu.Lock()
	if e.sweepErr = err; err != nil {
		e.troubled = time.Now()
		e.mu.Unlock()
		e.opt.report(err)
		return false
	}
	defer e.mu.Unlock()
	if lost == e.lost {
		e.lost = 0
	}
	e.board.swept()
	return true
}

// installLocked replaces what is kept of a device by what was read. If runs is nil, it has no readings
// or no rules.
func (e *Engine) installLocked(device *vitals.Name, runs []run, newestUnixMs int64) {
	delete(e.board.unread, *device)
	w := e.board.devices.get(device)
	if w == nil && runs != nil {
		w, _ = e.board.of(device)
	}
	if w == nil {
		e.board.except.remove(e.board.devices.hash(device))
		return
	}
	if runs == nil {
		runs, newestUnixMs = newRuns(e.board.rules, device), e.opt.nowUnixMs() // not silent
		defer e.board.remove(w)
	}
	for i := range runs {
		if old, u := &w.runs[i], &runs[i]; old.reported {
			u.reported = true
			if !u.active || u.cut && old.sinceUnixMs < u.sinceUnixMs {
				u.sinceUnixMs = old.sinceUnixMs
			}
		}
	}
	w.runs, w.newestUnixMs, w.busy, w.stale, w.round = runs, newestUnixMs, math.MaxUint64, 0, e.board.round
	if e.ready {
		e.settleLocked(w, e.opt.nowUnixMs(), true)
	}
}

// settle notices alerts that begin or end: of all devices, or of those that have changed.
func (e *Engine) settle(all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, now, read := e.board, e.opt.nowUnixMs(), false
	if !e.ready && b.complete && len(b.unread) == b.failed() {
		e.ready, all = true, true
		read = !e.opt.Shared && e.lost == 0 // and nothing was left out since
		e.carryLocked(now)
		close(e.changed)
		e.changed = make(chan struct{})
	}
	touched := b.touched
	b.touched = b.touched[:0]
	for _, w := range touched {
		w.touched = false
		if e.ready && !all && w.runs != nil {
			e.settleLocked(w, now, false)
		}
	}
	clear(touched)
	if e.ready && all {
		for w := range b.devices.all() {
			if w.busy != 0 || now-w.newestUnixMs >= b.leastSilentMs {
				_, unread := b.unread[w.name]
				e.settleLocked(w, now, read && !unread)
			}
		}
		b.filter.except.Store(b.except)
	}
}

// carryLocked makes alerts of the board before active on this one, or ends them.
func (e *Engine) carryLocked(nowUnixMs int64) {
	for i := range e.before {
		a := &e.before[i]
		if u := e.board.find(a); u != nil {
			u.reported = true
			e.board.reported++
			if !u.active {
				u.sinceUnixMs = a.SinceUnixMs
			}
		} else {
			e.changeLocked(ended(*a, nowUnixMs))
		}
	}
	e.before = nil
}

// settleLocked begins and ends the alerts of a device as its runs plan. If read is true, the runs were read from the
// store just now.
func (e *Engine) settleLocked(w *watched, nowUnixMs int64, read bool) {
	busy := w.busy
	w.busy = 0
	steady := exception{untilUnixMs: math.MaxInt64}
	pending := e.board.unread[w.name]
	s := settling{
		nowUnixMs: nowUnixMs, read: read, failed: pending.failed != 0,
		damaged: pending.failed != 0 && pending.failed != e.board.sweep && e.sweepErr == nil,
		grace:   time.Since(e.troubled) < e.opt.Grace,
	}
	for i := range w.runs {
		rule := &e.board.rules[i]
		if busy>>i&1 == 0 && (rule.Silent == 0 || nowUnixMs-w.newestUnixMs < rule.Silent.Milliseconds()) {
			continue
		}
		u, p := &w.runs[i], w.plan(i, rule, &s)
		if p.readFirst {
			e.board.mark(&w.name, p.order)
		}
		switch {
		case p.active && !u.reported:
			e.board.reported++
			e.changeLocked(Alert{Rule: rule, Device: w.name, SinceUnixMs: p.sinceUnixMs})
		case !p.active && u.reported:
			e.board.reported--
			e.changeLocked(ended(Alert{Rule: rule, Device: w.name, SinceUnixMs: u.sinceUnixMs}, nowUnixMs))
		}
		if u.known, u.reported = p.known, p.active; p.active {
			u.sinceUnixMs = p.sinceUnixMs
		}
		if u.met || p.active || rule.Silent != 0 && u.known {
			w.setBusy(i)
		}
		if u.active && p.active && rule.Silent == 0 {
			steady.active |= 1 << i
			steady.fromUnixMs = max(steady.fromUnixMs, p.sinceUnixMs+1)
			steady.untilUnixMs = min(steady.untilUnixMs, u.newestUnixMs+Lasts.Milliseconds()/2)
		}
	}
	e.board.leaveOut(w, steady)
}

// ended returns an alert that has ended.
func ended(a Alert, nowUnixMs int64) Alert {
	a.EndedUnixMs = max(nowUnixMs, a.SinceUnixMs)
	return a
}

// changeLocked notes an alert that has begun or ended.
func (e *Engine) changeLocked(a Alert) {
	if len(e.changes) == maxChanges {
		e.changes = slices.Delete(e.changes, 0, maxChanges/2)
	}
	e.changes = append(e.changes, a)
	e.nChanges++
	close(e.changed)
	e.changed = make(chan struct{})
}

// Newest returns at most limit of the active alerts of the devices for which wanted reports true, the newest first,
// how many there are, and how many of these devices cannot be read, so that they may have others. Changes has no
// alerts.
func (e *Engine) Newest(limit int, wanted func(*vitals.Name) bool) (newest []Alert, total, unread int, c Changes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c = e.changesLocked(e.nChanges); !c.Ready {
		return nil, 0, 0, c
	}
	for device, u := range e.board.unread {
		if u.failed != 0 && wanted(&device) {
			unread++
		}
	}
	sort := func() {
		slices.SortFunc(newest, newestFirst)
		newest = newest[:min(len(newest), limit)]
	}
	e.board.each(func(a Alert) {
		if !wanted(&a.Device) {
			return
		}
		if total++; len(newest) >= 2*limit {
			sort()
		}
		newest = append(newest, a)
	})
	sort()
	return newest, total, unread, c
}

// First implements Alerts of [query.Options]: it sets alerts[i] to the first active alert of devices[i] that has a part
// from a time on, as present finds it. Until the engine is ready, it sets none.
func First(e *Engine, devices []storage.Device, fromUnixMs int64, alerts []query.ActiveAlert) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range devices {
		w := e.board.devices.get(&devices[i].Name)
		if w == nil || !e.ready {
			continue
		}
		for place := range w.runs {
			rule, u := &e.board.rules[place], &w.runs[place]
			if !w.isBusy(place) || !u.reported || rule.Silent == 0 && devices[i].Latest[rule.Sign].TimeUnixMs < fromUnixMs {
				continue
			}
			if a := &alerts[i]; a.Name == "" || a.Silence && rule.Silent == 0 {
				*a = query.ActiveAlert{Name: rule.Name, Rule: place, Sign: rule.Sign, Silence: rule.Silent != 0,
					SinceUnixMs: max(u.sinceUnixMs, fromUnixMs)}
			}
		}
	}
}

func newestFirst(a, b Alert) int {
	return cmp.Or(cmp.Compare(b.SinceUnixMs, a.SinceUnixMs), a.Device.Compare(&b.Device),
		cmp.Compare(a.Rule.Name, b.Rule.Name))
}

// present returns the parts of alerts that lie in the present assignments of their devices, or in the present spans
// without one, so that no subject is shown an alert about another. An alert about values that began before the span is
// left out if no value of the span belongs to it. present modifies some.
func present(ctx context.Context, e *Engine, service *query.Service, some []Alert) ([]Alert, error) {
	devices := make([]vitals.Name, len(some))
	for i := range some {
		devices[i] = some[i].Device
	}
	now := e.opt.nowUnixMs()
	spans, err := service.SpansAt(ctx, devices, func(int) int64 { return now })
	if err != nil {
		return nil, err
	}
	parts := some[:0]
	for i, a := range some {
		from := spans[i].FromUnixMs
		if a.SinceUnixMs < from && a.Rule.Silent == 0 {
			if has, err := hasPart(ctx, e.reader, &a, from); err != nil {
				return nil, err
			} else if !has {
				continue
			}
		}
		if a.SinceUnixMs = max(a.SinceUnixMs, from); a.EndedUnixMs != 0 {
			a.SinceUnixMs = min(a.SinceUnixMs, a.EndedUnixMs)
		}
		a.Place = service.Roster.Current().Of(&a.Device)
		parts = append(parts, a)
	}
	return parts, nil
}

// lastRead is how many of a device's newest readings are searched for the last value of an alert that has just ended.
const lastRead = 256

// hasPart reports whether values at or after a time belong to an alert about values that began before it. Of one that
// has ended, the newest values are after its last one.
func hasPart(ctx context.Context, reader Reader, a *Alert, fromUnixMs int64) (bool, error) {
	d, err := reader.Latest(ctx, a.Device)
	if errors.Is(err, storage.ErrNotFound) || err == nil && d.Latest[a.Rule.Sign].TimeUnixMs < fromUnixMs {
		return false, nil
	}
	if err != nil || a.EndedUnixMs == 0 {
		return err == nil, err
	}
	newest := make([]storage.Record, lastRead)
	n, err := reader.Scan(ctx, storage.Range{Device: a.Device, FromUnixMs: fromUnixMs, ToUnixMs: storage.OpenEnd,
		Descending: true}, newest)
	return slices.ContainsFunc(newest[:n], func(r storage.Record) bool {
		v, ok := r.Values.Get(a.Rule.Sign)
		return ok && a.Rule.Met.Contains(v)
	}), err
}

// Changes are alerts that have begun or ended.
type Changes struct {
	Rules  int             // number of rules in force
	Ready  bool            // the states of all devices were read, or could not be; otherwise there are no alerts yet
	Alerts []Alert         // in the order of the changes
	N      uint64          // number of changes since the start, which these are the last of
	Lost   bool            // some changes are no longer kept
	Next   <-chan struct{} // closed at the next change, and when the engine becomes ready
}

// Changes returns the changes after the first n.
func (e *Engine) Changes(n uint64) Changes {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changesLocked(n)
}

func (e *Engine) changesLocked(n uint64) Changes {
	behind := e.nChanges - n
	kept := min(behind, uint64(len(e.changes)))
	return Changes{
		Rules: len(e.board.rules), Ready: e.ready, Alerts: slices.Clone(e.changes[len(e.changes)-int(kept):]), N: e.nChanges,
		Lost: kept < behind, Next: e.changed,
	}
}

// State returns the active alerts, in no order, and the changes after the first n, which have led to
// them. While the engine is not ready after a change of the rules, those stay active that were before.
func (e *Engine) State(n uint64) (active []Alert, c Changes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if active = slices.Clone(e.before); e.ready {
		active = e.board.active()
	}
	return active, e.changesLocked(n)
}

// Follow calls visit with the changes of an engine, from its start until ctx ends: like GET /v1/alerts, with the
// part of each alert that lies in the present assignment of its device. lost means that some are missing.
func Follow(ctx context.Context, e *Engine, service *query.Service, visit func(changed []Alert, lost bool)) {
	for n := uint64(0); ; {
		c := e.Changes(n)
		if n = c.N; len(c.Alerts) > 0 {
			parts, err := present(ctx, e, service, c.Alerts)
			if err != nil {
				e.opt.report(err)
			}
			visit(parts, c.Lost || err != nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.Next:
			select {
			case <-ctx.Done():
				return
			case <-time.After(gatherFor):
			}
		}
	}
}

func (opt *Options) nowUnixMs() int64 { return opt.Now().UnixMilli() }

// report passes an error to OnError, unless it means that the server stops.
func (opt *Options) report(err error) {
	if opt.OnError != nil && !errors.Is(err, storage.ErrClosed) && !errors.Is(err, context.Canceled) {
		opt.OnError(err)
	}
}
