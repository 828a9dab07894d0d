package alert

import (
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A board has the runs of all devices, for one set of rules. Engine.mu guards it.
type board struct {
	shared   bool // other servers write to the store
	rules    []Rule
	devices  map[vitals.Name]*watched
	touched  []*watched               // may have changed since they were settled
	unread   map[vitals.Name]struct{} // devices whose runs must be read from the store
	sweep    uint32                   // number of sweeps that have begun
	complete bool                     // one has ended
}

// A watched is what is kept of a device.
type watched struct {
	name    vitals.Name
	runs    []run  // by rule; nil if no rule is for the device
	touched bool   // it is in board.touched
	sweep   uint32 // in which it was seen last
}

func newBoard(rules []Rule, shared bool) *board {
	return &board{shared: shared, rules: rules, devices: map[vitals.Name]*watched{}, unread: map[vitals.Name]struct{}{}}
}

// of returns what is kept of a device.
func (b *board) of(device *vitals.Name) *watched {
	w := b.devices[*device]
	if w == nil {
		w = &watched{name: *device, runs: newRuns(b.rules, device), sweep: b.sweep}
		b.devices[*device] = w
	}
	return w
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
	w := b.of(device)
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
			if b.shared && u.active && !u.reported {
				b.unread[*device] = struct{}{} // another server may have stored a late value within the run
			}
		case !u.ignores(rule, v, r.TimeUnixMs, r.ReceivedUnixMs):
			b.unread[*device] = struct{}{}
		}
	}
	b.touch(w)
}

// compare compares what is kept of a device with its summary. The device becomes unread if its runs
// may differ from what is stored: with lost also because late readings were lost.
func (b *board) compare(d *storage.Device, lost bool) {
	w := b.of(&d.Name)
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
		case latest.Known != u.known || latest.Known && latest.TimeUnixMs != u.newestUnixMs || lost && u.met || b.shared && u.reported:
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
