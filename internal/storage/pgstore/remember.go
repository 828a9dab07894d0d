package pgstore

import (
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A keeper adds what this server acknowledges to its memory.
type keeper struct{ *database }

// keep adds a transaction, which has accepted readings, or assignments. It must be called after the commit, before the slot of the mark is
// released, and before any client is answered.
func (s keeper) keep(e history.Entry, k mark, accepted []*storage.Entry) {
	if s.memory == nil {
		return
	}
	e.Mark = history.Mark{Slot: history.Slot{Server: s.marks.server, Slot: int16(k.slot)}, Number: k.number}
	e.Epoch, e.UnixMs = s.marks.currentEpoch(), time.Now().UnixMilli()
	s.memory.Add(e, accepted)
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

// clockSkewMs is the greatest difference of the clocks of two servers, in ms. It matters only for what different histories have.
const clockSkewMs = 60_000

// matches reports whether c removes readings of a device and time.
func (c *change) matches(device *vitals.Name, timeUnixMs int64) bool {
	switch c.Kind {
	case erasedDevice, erasedAssignment:
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

// removes reports whether c has removed what it matches of an entry. In doubt it has, and was perhaps made before that was acknowledged: see
// docs/adr/0026-repair.md, "Before or after".
func (c *change) removes(e *history.Entry, receivedUnixMs int64) (removed, doubtful bool) {
	switch {
	case c.Epoch < e.Epoch || c.Epoch == e.Epoch && e.Generation >= c.Learned:
		return false, false
	case c.Epoch == e.Epoch && c.Learned == c.Since:
		return true, false
	}
	removed = receivedUnixMs <= c.AtMs+clockSkewMs
	return removed, removed && c.Kind != removedOld && receivedUnixMs > c.AtMs-clockSkewMs
}

// removals are the changes that this server knows, by device. Those without a device concern all.
type removals map[vitals.Name][]change

func (s changelog) removals() removals {
	all := removals{}
	for _, c := range s.all() {
		all[c.Device] = append(all[c.Device], c)
	}
	return all
}

// reading reports whether a reading of an entry was removed: see change.removes.
func (r removals) reading(e *history.Entry, reading *history.Reading) (removed, doubtful bool) {
	return r.any(&reading.Device, e, reading.ReceivedUnixMs, func(c *change) bool { return c.matches(&reading.Device, reading.TimeUnixMs) })
}

// assignment reports whether the assignment of an entry was removed.
func (r removals) assignment(e *history.Entry) (removed, doubtful bool) {
	a := &e.Assignments[0]
	return r.any(&a.Device, e, e.UnixMs, func(c *change) bool { return c.matchesAssignment(a) })
}

func (r removals) any(device *vitals.Name, e *history.Entry, receivedUnixMs int64, matches func(*change) bool) (removed, doubtful bool) {
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
