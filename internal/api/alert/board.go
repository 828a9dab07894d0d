package alert

import (
	"math"
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A board has the runs of all devices, for one set of rules. Engine.mu guards it.
type board struct {
	opt         *Options
	rules       []Rule
	devices     devices                // at most maxDevices
	touched     []*watched             // may have changed since they were settled
	unread      map[vitals.Name]unread // devices whose runs must be read from the store
	sweep       uint32                 // number of sweeps that have begun
	round       uint32                 // number of times that all devices of the order perhaps were read
	beganUnixMs int64                  // the last sweep
	complete    bool                   // one has ended
	cutUnixMs   int64                  // readings before this may have expired
	maxDevices  int
	full        bool // devices were left out since the last sweep has begun
	leftOut     int  // number of those that it has found
	states      int  // number of runs
	reported    int  // number of runs that are reported as active

	filter        *filter
	except        *exceptions // the filter has them once the engine is ready
	silent        uint64      // bits of the rules about silence
	leastSilentMs int64       // of those
}

// Memory of states.
const (
	stateBytes  = 32  // a run
	deviceBytes = 200 // a watched, and what the maps take
)

// maxDevices returns for how many devices Options.MaxBytes has room with a number of rules.
func maxDevices(opt *Options, rules int) int {
	if opt.MaxBytes == 0 {
		return math.MaxInt
	}
	return int(opt.MaxBytes) / (deviceBytes + stateBytes*rules)
}

// A watched is what is kept of a device. What readings that were left out would have changed is as old as the last
// sweep: see filter.
//
// Evaluating a reading mostly waits for memory. So a watched has two cache lines of 64 bytes, the second one for the
// name, and says which runs need not be looked at.
type watched struct {
	newestUnixMs int64 // of its newest reading

	// Bits of runs. A run is busy if it is met, reported as active or, of a rule about silence, known; others may have the
	// bit until the device is settled. A run is stale if values that are newer than its newest one may have been left out.
	busy, stale uint64

	runs    []run  // by rule; nil if no rule is for the device
	sweep   uint32 // in which it was seen last
	round   uint32 // in which it was read last
	touched bool   // it is in board.touched
	_       [7]byte
	name    vitals.Name
}

func (w *watched) isBusy(run int) bool { return w.busy>>run&1 != 0 }

func (w *watched) setBusy(run int) { w.busy |= 1 << run }

func newBoard(rules []Rule, opt *Options) *board {
	b := &board{opt: opt, rules: rules, devices: newDevices(), except: newExceptions(0), unread: map[vitals.Name]unread{},
		maxDevices: maxDevices(opt, len(rules)), leastSilentMs: math.MaxInt64}
	for i := range rules {
		if r := &rules[i]; r.Silent != 0 {
			b.silent |= 1 << i
			b.leastSilentMs = min(b.leastSilentMs, r.Silent.Milliseconds())
		}
	}
	b.filter = newFilter(rules, b.devices.hash)
	return b
}

// of returns what is kept of a device, and whether nothing was; or nil if there is no room for it.
func (b *board) of(device *vitals.Name) (w *watched, isNew bool) {
	if w = b.devices.get(device); w != nil {
		return w, false
	}
	if b.devices.n >= b.maxDevices {
		b.full = true
		return nil, true
	}
	w = &watched{name: *device, runs: newRuns(b.rules, device), sweep: b.sweep}
	b.devices.put(w)
	b.states += len(w.runs)
	return w, true
}

// remove removes what is kept of a device. It may still be in b.touched, without runs.
func (b *board) remove(w *watched) {
	b.devices.remove(w)
	b.except.remove(b.devices.hash(&w.name))
	b.states -= len(w.runs)
	w.runs = nil
}

// newRuns returns the runs of a device of which nothing is known, or nil if no rule is for it.
func newRuns(rules []Rule, device *vitals.Name) (runs []run) {
	name := device.String()
	for i := range rules {
		if rules[i].appliesTo(name) {
			if runs == nil {
				runs = make([]run, len(rules))
			}
			runs[i].applies = true
		}
	}
	return runs
}

// at returns whether the alert of the rule with an index is active at a time, and since when.
func (w *watched) at(i int, r *Rule, nowUnixMs int64) (sinceUnixMs int64, active bool) {
	u := &w.runs[i]
	if r.Silent == 0 {
		return u.sinceUnixMs, u.active && !u.isOver(nowUnixMs)
	}
	return w.newestUnixMs + r.Silent.Milliseconds(), w.isSilent(i, r, nowUnixMs) &&
		(r.MaxAge == 0 || nowUnixMs-w.newestUnixMs < r.MaxAge.Milliseconds())
}

// isSilent reports whether a device is silent by the rule with an index, or gone.
func (w *watched) isSilent(i int, r *Rule, nowUnixMs int64) bool {
	return w.runs[i].applies && nowUnixMs-w.newestUnixMs >= r.Silent.Milliseconds()
}

// An unread is a device whose runs must be read from the store.
type unread struct {
	order  order  // those with the least are read first
	failed uint32 // if they could not be read, the value of board.sweep then
}

type order uint8

const (
	beginning order = iota // it has an alert about values that begins if the store does not contradict it
	differs                // its runs may differ from what is stored
	silence                // it seems to be silent or gone, as all devices of a network may at once
	perhaps                // there may be values that are not known; see seldom
	numOrders
)

// mark makes a device unread.
func (b *board) mark(device *vitals.Name, o order) {
	u, is := b.unread[*device]
	if !is || o < u.order {
		u.order = o
		b.unread[*device] = u
		b.setException(exception{hash: b.devices.hash(device)}) // before it is read, so that what is stored then is taken
	}
}

// failed returns the number of unread devices that could not be read.
func (b *board) failed() (n int) {
	for _, u := range b.unread {
		if u.failed != 0 {
			n++
		}
	}
	return n
}

// touch notes that a device may have changed.
func (b *board) touch(w *watched) {
	if !w.touched {
		w.touched = true
		b.touched = append(b.touched, w)
	}
}

// takeAll adds readings.
func (b *board) takeAll(updates []update) {
	var found [atOnce]*watched
	for ; len(updates) > 0; updates = updates[min(len(updates), atOnce):] {
		some := updates[:min(len(updates), atOnce)]
		b.devices.find(some, &found)
		for i := range some {
			b.take(&some[i], found[i])
		}
	}
}

// take adds a reading of a device, of which w is kept; nil means that this is not known. The device becomes unread if
// the reading is late and matters.
func (b *board) take(r *update, w *watched) {
	if r.filter != b.filter {
		return // it was stored before the sweep that reads all devices for the rules of b
	}
	isNew := false
	if w == nil {
		if w, isNew = b.of(&r.device); w == nil {
			return
		}
		if isNew && (b.full || !b.complete) {
			b.mark(&r.device, differs) // it may have readings that no sweep has seen
		}
	}
	w.newestUnixMs = max(w.newestUnixMs, r.unixMs)
	if w.runs == nil {
		return
	}
	changed := isNew || w.busy&b.silent != 0 // a new one may be silent
	for rules := r.met | r.has&w.busy; rules != 0; rules &= rules - 1 {
		i := bits.TrailingZeros64(rules)
		rule, u, met := &b.rules[i], &w.runs[i], r.met>>i&1 != 0
		switch {
		case !u.applies:
			continue
		case r.completed: // a record keeps the time at which its first reading arrived
			b.mark(&r.device, differs)
		case !u.known || r.unixMs > u.newestUnixMs:
			// the next run may have values that were left out
			if u.take(rule, met, r.unixMs, r.receivedUnixMs) && w.stale>>i&1 != 0 {
				b.mark(&r.device, differs)
			}
		case !u.ignores(rule, met, r.unixMs, r.receivedUnixMs):
			b.mark(&r.device, differs)
		}
		changed = changed || u.met != w.isBusy(i) || u.active != u.reported
		if u.met {
			w.setBusy(i)
		}
	}
	if changed {
		b.touch(w)
	}
}

// begin begins a sweep. lost says that readings were lost since the last one.
func (b *board) begin(nowUnixMs int64, lost bool) {
	b.sweep++
	doubts := false
	for device, u := range b.unread {
		w := b.devices.get(&device)
		doubts = doubts || u.order == perhaps && w != nil && w.round != b.round
	}
	if lost || !doubts { // otherwise each is read before one is read again
		b.round++
	}
	b.beganUnixMs = nowUnixMs
	if b.full, b.leftOut = false, 0; b.opt.Retain != 0 {
		b.cutUnixMs = max(b.cutUnixMs, nowUnixMs-b.opt.Retain.Milliseconds())
	}
}

// compare compares what is kept of a device with its summary. The device becomes unread if its runs
// may differ from what is stored: with late also because late readings are not known.
func (b *board) compare(d *storage.Device, late bool) {
	w, _ := b.of(&d.Name)
	if w == nil {
		b.leftOut++
		return
	}
	w.sweep = b.sweep
	if d.NewestUnixMs < w.newestUnixMs { // readings were removed
		b.mark(&d.Name, differs)
	}
	w.newestUnixMs = max(w.newestUnixMs, d.NewestUnixMs)
	for i := range w.runs {
		rule, u := &b.rules[i], &w.runs[i]
		latest := &d.Latest[rule.Sign]
		met := rule.Met.Contains(latest.Value)
		switch {
		case !u.applies:
			continue
		case rule.Silent != 0: // many devices may be gone
			if rule.MaxAge != 0 && b.beganUnixMs-d.NewestUnixMs >= rule.MaxAge.Milliseconds() {
				u.known = true
				w.setBusy(i)
			}
			continue
		case latest.Known && (!u.known || latest.TimeUnixMs > u.newestUnixMs):
			if u.take(rule, met, latest.TimeUnixMs, math.MaxInt64) {
				b.mark(&d.Name, differs)
			}
			if met {
				w.setBusy(i)
				if !u.active { // as long as it is not read, it is not young
					b.mark(&d.Name, perhaps)
				}
			}
		case latest.Known != u.known || latest.Known && (latest.TimeUnixMs != u.newestUnixMs || met != u.met):
			b.mark(&d.Name, differs)
		}
		switch {
		case u.met && u.young > 0 && u.firstUnixMs < b.cutUnixMs:
			b.mark(&d.Name, differs)
		case u.met && late && w.round != b.round:
			b.mark(&d.Name, perhaps)
		}
	}
	b.touch(w)
}

// swept makes the devices unread that no sweep has seen since the last one began: they may be gone.
func (b *board) swept() {
	b.complete = true
	for w := range b.devices.all() {
		if w.sweep != b.sweep {
			b.mark(&w.name, differs)
		}
	}
}

// find returns the run of the rule and device of an alert, which becomes busy, or nil if there is none.
func (b *board) find(a *Alert) *run {
	w := b.devices.get(&a.Device)
	if w == nil {
		return nil
	}
	for i := range w.runs {
		if w.runs[i].applies && a.same(&Alert{Rule: &b.rules[i], Device: w.name}) {
			w.setBusy(i)
			return &w.runs[i]
		}
	}
	return nil
}

// each calls visit with each active alert.
func (b *board) each(visit func(Alert)) {
	for w := range b.devices.all() {
		for i := range w.runs {
			if !w.isBusy(i) {
				continue
			}
			if u := &w.runs[i]; u.reported {
				visit(Alert{Rule: &b.rules[i], Device: w.name, SinceUnixMs: u.sinceUnixMs})
			}
		}
	}
}

// active returns the active alerts.
func (b *board) active() (active []Alert) {
	b.each(func(a Alert) { active = append(active, a) })
	return active
}

// setException sets the exception of a device.
func (b *board) setException(e exception) {
	if b.filter.all {
		return
	}
	if x := b.except.set(e); x != b.except {
		b.except = x
		if b.filter.except.Load() != nil {
			b.filter.except.Store(x)
		}
	}
}

// leaveOut makes the filter leave out the readings of a device that do not matter now that it is settled. steady
// selects those that only prolong its active alerts.
func (b *board) leaveOut(w *watched, steady exception) {
	if _, unread := b.unread[w.name]; unread || b.filter.all {
		return // nothing is left out
	}
	steady.hash = b.devices.hash(&w.name)
	if w.busy != steady.active { // there are other runs
		steady = exception{hash: steady.hash}
	}
	switch is := b.except.get(steady.hash); {
	case w.busy == 0:
		b.except.remove(steady.hash)
	case is == nil || is.active != steady.active || is.fromUnixMs != steady.fromUnixMs ||
		is.untilUnixMs < steady.untilUnixMs-Lasts.Milliseconds()/4:
		b.setException(steady)
	}
	w.stale |= steady.active
}
