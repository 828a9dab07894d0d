package pgstore

import (
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A keeper adds what this server acknowledges to its memory.
type keeper struct{ *database }

// keep adds a transaction, which has accepted readings, or assignments, of which more may follow. It must be called
// once for a transaction, after the commit, before the slot of the mark is released, and before any client is answered.
func (s keeper) keep(e history.Entry, k mark, accepted []*storage.Entry, more ...history.Entry) {
	if s.memory == nil {
		return
	}
	e.Mark = history.Mark{Slot: history.Slot{Server: s.marks.server, Slot: int16(k.slot)}, Number: k.number}
	e.Epoch, e.UnixMs = s.marks.currentEpoch(), time.Now().UnixMilli()
	for i := range more {
		a := &more[i]
		a.Mark, a.Generation, a.Epoch, a.UnixMs = e.Mark, e.Generation, e.Epoch, e.UnixMs
	}
	s.memory.Add(e, accepted, more...)
}

// keepSigns keeps the numbers of signs, which the readings have. A database that forgets may have others.
func (s keeper) keepSigns() error {
	if s.opt.RememberDir == "" || s.memory == nil {
		return nil
	}
	text, err := storage.EncodeSigns(s.signs)
	if err == nil {
		s.memory.SetSigns(text)
	}
	return err
}

// keepChanges keeps the changes that this server knows.
func (s keeper) keepChanges() {
	if s.opt.RememberDir == "" || s.memory == nil {
		return
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	var all []history.Change
	for _, c := range changelog(s).all() {
		all = append(all, c.Change)
	}
	s.memory.SetChanges(all)
}

// resume takes over what earlier runs knew. This run begins another history.
func (s keeper) resume() error {
	if text := s.memory.Signs(); len(text) > 0 {
		if err := storage.RestoreSigns(s.signs, text); err != nil {
			return err
		}
	}
	m := s.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = s.memory.Past().Epoch
	for _, c := range s.memory.Changes() {
		m.changes = append(m.changes, change{Change: c})
		m.epoch, m.generation = max(m.epoch, c.Epoch), max(m.generation, c.Generation)
	}
	m.epoch++
	return nil
}

// clockSkewMs is the greatest difference of the clocks of two servers, in ms. It matters only for what different
// histories have.
const clockSkewMs = 60_000

// matches reports whether c removes readings of a device and time.
func (c *change) matches(device *vitals.Name, timeUnixMs int64) bool {
	switch c.Kind {
	case erasedDevice, erasedAssignment, erasedValues:
		return c.Device == *device && c.FromMs <= timeUnixMs && timeUnixMs <= c.ToMs
	case removedOld:
		return timeUnixMs <= c.ToMs
	}
	return false
}

// matchesAssignment reports whether c removes an assignment.
func (c *change) matchesAssignment(a *storage.Assignment) bool {
	return c.Device == a.Device && (c.Kind == erasedDevice || c.Kind == erasedAssignment && c.FromMs == a.FromUnixMs)
}

// removes reports whether c has removed what it matches of an entry. In doubt it has, and was perhaps made before that
// was acknowledged: see docs/adr/0026-repair.md, "Decision: changes".
func (c *change) removes(e *history.Entry, receivedUnixMs int64) (removed, doubtful bool) {
	switch {
	case c.Epoch < e.Epoch || c.Epoch == e.Epoch && e.Generation >= c.Learned:
		return false, false
	case c.Epoch == e.Epoch && c.Learned == c.Since:
		return true, false
	}
	removed = receivedUnixMs <= c.AtMs+clockSkewMs
	return removed, removed && c.Kind != removedOld && (c.open || receivedUnixMs > c.AtMs-clockSkewMs)
}

// removals are the changes that this server knows, by device. Those without a device concern all.
type removals map[vitals.Name][]change

// Erasures of assignments that were not there are those of the ones that the memory has, and that no other erasure has
// removed: their times may be others' since.
func (s changelog) removals() (removals, error) {
	all := removals{}
	var absent []change
	known := s.all()
	if err := s.decide(known); err != nil {
		return nil, err
	}
	for _, c := range known {
		if c.Kind == erasedAbsent {
			absent = append(absent, c)
		} else {
			all[c.Device] = append(all[c.Device], c)
		}
	}
	if len(absent) == 0 {
		return all, nil
	}
	latest := map[storage.AssignmentKey]history.Entry{}
	for e, err := range s.memory.All() {
		if err != nil {
			return nil, err
		}
		for _, a := range e.Assignments {
			made := *e
			made.Readings, made.Assignments = nil, []storage.Assignment{a}
			latest[a.Key()] = made
		}
	}
	derived := removals{}
	for _, e := range latest {
		if removed, _ := all.assignment(&e); removed {
			continue
		}
		for i := range absent {
			if c, ok := absent[i].of(&e.Assignments[0]); ok {
				derived[c.Device] = append(derived[c.Device], c)
			}
		}
	}
	for device, changes := range derived {
		all[device] = append(all[device], changes...)
	}
	return all, nil
}

// of returns the erasure of an assignment that c, an erasedAbsent, asks for.
func (c change) of(a *storage.Assignment) (erased change, ok bool) {
	ok = a.Subject == c.Subject && (c.Device == (vitals.Name{}) || c.Device == a.Device && c.FromMs == a.FromUnixMs)
	c.Kind, c.Device, c.FromMs, c.ToMs, c.open = erasedAssignment, a.Device, a.FromUnixMs, a.ToUnixMs-1,
		a.ToUnixMs == storage.OpenEnd
	return c, ok
}

// ended returns the entry of an assignment with the end that was asked for while it was not there.
func (r removals) ended(e *history.Entry) *history.Entry {
	for i := range r[e.Assignments[0].Device] {
		c, a := &r[e.Assignments[0].Device][i], &e.Assignments[0]
		if c.Kind != endedAbsent || c.Subject != a.Subject || c.FromMs != a.FromUnixMs || c.ToMs >= a.ToUnixMs {
			continue
		}
		if asked, _ := c.removes(e, e.UnixMs); asked {
			ended := *e
			ended.Assignments = slices.Clone(e.Assignments)
			a = &ended.Assignments[0]
			a.ToUnixMs, a.By, a.NamedUnixMs, a.ChangedUnixMs = c.ToMs, storage.ByHand, 0, c.AtMs
			e = &ended
		}
	}
	return e
}

// erasure returns c, an erasedValues, as an erasure.
func (c *change) erasure() *storage.Erasure {
	return &storage.Erasure{
		Device: c.Device, FromUnixMs: c.FromMs, ToUnixMs: c.ToMs + 1,
		Signs: c.Signs, Gateway: c.Gateway, Shared: c.Shared,
	}
}

// ofGateway reports whether c is an erasure of a gateway's values.
func (c *change) ofGateway() bool { return c.Kind == erasedValues && !c.Gateway.IsZero() }

// undecided reports whether a server cannot know which readings c, an erasure of a gateway's values, has selected:
// another server may have acknowledged a part of them. Such an erasure is not repeated, because it could remove what
// had stayed.
func (c *change) undecided(server int64) bool {
	if !c.ofGateway() {
		return false
	}
	for slot := range c.before {
		if slot.Server != server {
			return true
		}
	}
	return c.before == nil // another server has made it, or an earlier run
}

// A heard is a reading as it was between two changes, as far as this server remembers.
type heard struct {
	signs   uint32 // presence
	gateway vitals.Name
	shared  bool
	next    int // the first change that was not made yet
}

// add adds what a gateway has sent, as groups settle it.
func (h *heard) add(r *history.Reading) {
	present := r.Values.Present()
	switch {
	case h.signs == 0:
		h.gateway, h.shared = r.Gateway, false
	case present&^h.signs == 0: // a duplicate
		return
	default:
		h.shared = h.shared || h.gateway != r.Gateway
		if h.gateway.IsZero() {
			h.gateway = r.Gateway
		}
	}
	h.signs |= present
}

// make makes changes of the device up to number n.
func (h *heard) make(all []*change, n int, r *vitals.Reading) {
	for ; h.next < n; h.next++ {
		c, t := all[h.next], r.TimeUnixMs
		switch {
		case h.signs == 0 || c.unknown || !c.matches(&r.Device, t):
			continue
		case c.ofGateway() && (h.gateway != c.Gateway || h.shared && !c.Shared):
			c.kept[t] = true
			continue
		case c.ofGateway():
			c.selected[t] = true
		}
		if c.Kind == erasedValues && c.Signs != 0 {
			h.signs &^= c.Signs
		} else {
			h.signs = 0
		}
	}
}

// decide sets the times of the readings that erasures of a gateway's values have selected and kept, as far as this
// server remembers: it makes the changes of their devices again, in their order, on what came between them.
func (s changelog) decide(all []change) error {
	byDevice := map[vitals.Name][]*change{}
	for i := range all {
		if c := &all[i]; c.ofGateway() {
			c.unknown, c.selected, c.kept = c.undecided(s.marks.server), map[int64]bool{}, map[int64]bool{}
			byDevice[c.Device] = nil
		}
	}
	for i := range all {
		if of, ok := byDevice[all[i].Device]; ok {
			byDevice[all[i].Device] = append(of, &all[i])
		}
	}
	if len(byDevice) == 0 {
		return nil
	}
	type place struct {
		device     vitals.Name
		timeUnixMs int64
	}
	found := map[place]*heard{}
	for e, err := range s.memory.All() {
		if err != nil {
			return err
		}
		for i := range e.Readings {
			r := &e.Readings[i]
			of, at := byDevice[r.Device], place{r.Device, r.TimeUnixMs}
			if !slices.ContainsFunc(of, func(c *change) bool { return c.ofGateway() && c.matches(&at.device, at.timeUnixMs) }) {
				continue
			}
			if found[at] == nil {
				found[at] = &heard{}
			}
			n := slices.IndexFunc(of, func(c *change) bool { removes, _ := c.removes(e, r.ReceivedUnixMs); return removes })
			if n < 0 {
				n = len(of)
			}
			found[at].make(of, n, &r.Reading)
			found[at].add(r)
		}
	}
	for at, h := range found {
		of := byDevice[at.device]
		h.make(of, len(of), &vitals.Reading{Device: at.device, TimeUnixMs: at.timeUnixMs})
	}
	return nil
}

// selects reports whether c removes values of a reading.
func (c *change) selects(r *history.Reading) bool {
	return c.matches(&r.Device, r.TimeUnixMs) && (!c.ofGateway() || c.selected[r.TimeUnixMs])
}

// reading reports whether a reading of an entry was removed: see change.removes. If only some of its values were, it
// removes these from reading.
func (r removals) reading(e *history.Entry, reading *history.Reading) (removed, doubtful bool) {
	for i := range r[reading.Device] {
		c := &r[reading.Device][i]
		if c.Kind != erasedValues || c.Signs == 0 || !c.selects(reading) {
			continue
		}
		if does, perhaps := c.removes(e, reading.ReceivedUnixMs); does {
			left := c.erasure().Left(&reading.Values)
			doubtful = doubtful || perhaps && left != reading.Values
			if reading.Values = left; left.IsZero() {
				return true, doubtful
			}
		}
	}
	removed, perhaps := r.any(&reading.Device, e, reading.ReceivedUnixMs, func(c *change) bool {
		return c.Signs == 0 && c.selects(reading)
	})
	return removed, doubtful || perhaps
}

// assignment reports whether the assignment of an entry was removed.
func (r removals) assignment(e *history.Entry) (removed, doubtful bool) {
	a := &e.Assignments[0]
	return r.any(&a.Device, e, e.UnixMs, func(c *change) bool { return c.matchesAssignment(a) })
}

func (r removals) any(device *vitals.Name, e *history.Entry, receivedUnixMs int64, matches func(*change) bool) (removed,
	doubtful bool) {
	for _, some := range [][]change{r[*device], r[vitals.Name{}]} {
		for i := range some {
			if !matches(&some[i]) {
				continue
			}
			does, perhaps := some[i].removes(e, receivedUnixMs)
			if does && !perhaps {
				return true, false
			}
			removed, doubtful = removed || does, doubtful || perhaps
		}
	}
	return removed, doubtful
}
