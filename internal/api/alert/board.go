package alert

import (
	"math"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A board has the runs of all devices, for one set of rules. Engine.mu guards it.
type board struct {
	opt        *Options
	rules      []Rule
	devices    map[vitals.Name]*watched // at most maxDevices
	touched    []*watched               // may have changed since they were settled
	unread     map[vitals.Name]struct{} // devices whose runs must be read from the store
	sweep      uint32                   // number of sweeps that have begun
	complete   bool                     // one has ended
	cutUnixMs  int64                    // readings before this may have expired
	maxDevices int
	full       bool // devices were left out since the last sweep has begun
	leftOut    int  // number of those that it has found
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

// A watched is what is kept of a device.
type watched struct {
	name    vitals.Name
	runs    []run  // by rule; nil if no rule is for the device
	touched bool   // it is in board.touched
	sweep   uint32 // in which it was seen last
}

func newBoard(rules []Rule, opt *Options) *board {
	return &board{opt: opt, rules: rules, devices: map[vitals.Name]*watched{}, unread: map[vitals.Name]struct{}{}, maxDevices: maxDevices(opt, len(rules))}
}

// of returns what is kept of a device, and whether nothing was; or nil if there is no room for it.
func (b *board) of(device *vitals.Name) (w *watched, isNew bool) {
	if w = b.devices[*device]; w != nil {
		return w, false
	}
	if len(b.devices) >= b.maxDevices {
		b.full = true
		return nil, true
	}
	w = &watched{name: *device, runs: newRuns(b.rules, device), sweep: b.sweep}
	b.devices[*device] = w
	return w, true
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

// touch notes that a device may have changed.
func (b *board) touch(w *watched) {
	if !w.touched {
		w.touched = true
		b.touched = append(b.touched, w)
	}
}

// take adds a reading that was stored or, with completed, has added signs to a stored one. A device
// becomes unread if the reading is late and matters.
func (b *board) take(device *vitals.Name, r *storage.Record, completed bool) {
	w, isNew := b.of(device)
	if w == nil {
		return
	}
	if isNew && (b.full || !b.complete) {
		b.unread[*device] = struct{}{} // it may have readings that no sweep has seen
	}
	for i := range w.runs {
		rule, u := &b.rules[i], &w.runs[i]
		v, has := r.Values.Get(rule.Sign)
		switch {
		case !u.applies:
		case rule.Silent != 0:
			u.hear(r.TimeUnixMs)
		case !has:
		case completed: // a record keeps the time at which its first reading arrived
			b.unread[*device] = struct{}{}
		case !u.known || r.TimeUnixMs > u.newestUnixMs:
			u.take(rule, v, r.TimeUnixMs, r.ReceivedUnixMs)
		case !u.ignores(rule, v, r.TimeUnixMs, r.ReceivedUnixMs):
			b.unread[*device] = struct{}{}
		}
	}
	b.touch(w)
}

// begin begins a sweep.
func (b *board) begin(nowUnixMs int64) {
	b.sweep++
	if b.full, b.leftOut = false, 0; b.opt.Retain != 0 {
		b.cutUnixMs = max(b.cutUnixMs, nowUnixMs-b.opt.Retain.Milliseconds())
	}
}

// compare compares what is kept of a device with its summary. The device becomes unread if its runs
// may differ from what is stored: with lost also because late readings are not known.
func (b *board) compare(d *storage.Device, lost bool) {
	w, _ := b.of(&d.Name)
	if w == nil {
		b.leftOut++
		return
	}
	w.sweep = b.sweep
	for i := range w.runs {
		rule, u := &b.rules[i], &w.runs[i]
		switch latest := &d.Latest[rule.Sign]; {
		case !u.applies:
		case rule.Silent != 0:
			if d.NewestUnixMs < u.newestUnixMs { // readings were removed
				b.unread[d.Name] = struct{}{}
			}
			u.hear(d.NewestUnixMs)
		case latest.Known && (!u.known || latest.TimeUnixMs > u.newestUnixMs) && !rule.Met.Contains(latest.Value):
			u.take(rule, latest.Value, latest.TimeUnixMs, latest.TimeUnixMs) // and need not be read
		case latest.Known != u.known || latest.Known && latest.TimeUnixMs != u.newestUnixMs, u.met && (lost || b.opt.Shared || u.young > 0 && u.firstUnixMs < b.cutUnixMs):
			b.unread[d.Name] = struct{}{}
		}
	}
	b.touch(w)
}

// swept makes the devices unread that no sweep has seen since the last one began: they may be gone.
func (b *board) swept() {
	b.complete = true
	for name, w := range b.devices {
		if w.sweep != b.sweep {
			b.unread[name] = struct{}{}
		}
	}
}

// find returns the run of the rule and device of an alert, or nil if there is none.
func (b *board) find(a *Alert) *run {
	w := b.devices[a.Device]
	if w == nil {
		return nil
	}
	for i := range w.runs {
		if w.runs[i].applies && a.same(&Alert{Rule: &b.rules[i], Device: w.name}) {
			return &w.runs[i]
		}
	}
	return nil
}

// each calls visit with each active alert.
func (b *board) each(visit func(Alert)) {
	for _, w := range b.devices {
		for i := range w.runs {
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
