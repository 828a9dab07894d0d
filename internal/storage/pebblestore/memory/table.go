package memory

import (
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Device is the state of a device that settling and sealing need. It contains no pointers,
// so the garbage collector does not scan a table of a million devices. What every reading needs comes first:
// each further line of the processor's cache is one more wait for memory.
type Device struct {
	NewestUnixMs int64

	// inWindow is the number of the device in the active window, if window is that window's
	// number.
	window   uint32
	inWindow uint32

	// The latest values of the first signs, their times and the offsets of these.
	unixMs  [layout.FirstSigns]int64
	values  [layout.FirstSigns]uint16
	offsets [layout.FirstSigns]vitals.UTCOffset

	known uint8 // as in layout.Record, or hasMore

	layout.Sizes
	SealedUnixMs int64 // as in layout.Record
}

// moreSigns is the number of signs whose latest values are not in a Device.
const moreSigns = vitals.MaxSigns - layout.FirstSigns

// hasMore is set in Device.known if Table.more has the device.
const hasMore = 1 << 7

// A moreLatest has the latest values of these signs.
type moreLatest struct {
	known   uint32
	unixMs  [moreSigns]int64
	values  [moreSigns]vitals.Value
	offsets [moreSigns]vitals.UTCOffset
}

// firstSigns is the presence of the first signs.
const firstSigns = 1<<layout.FirstSigns - 1

// ChunkDevices is the number of devices for which a table grows at once.
const ChunkDevices = 1024

// A Table holds every device of the store. TestDeviceBytes asserts how much a device takes.
type Table struct {
	names  nameSet
	chunks [][]Device // of ChunkDevices each, so that growing copies nothing
	Active Activity   // of the devices; it has its own lock
	free   []uint32   // numbers of devices that were removed

	more map[uint32]*moreLatest // by the numbers of devices that have signs beyond the first ones
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{names: newNameSet(), more: map[uint32]*moreLatest{}} }

// Len returns the number of devices.
func (t *Table) Len() int { return t.names.used }

// Assigned returns the number of numbers that were assigned so far. Devices that were removed have a
// negative newest time.
func (t *Table) Assigned() uint32 { return uint32(t.Len() + len(t.free)) }

// Hash returns the hash of a name, for FindHashed and AddHashed.
func (t *Table) Hash(name *vitals.Name) uint32 { return t.names.hash(name) }

// Find returns the number of a device, and whether t holds it.
func (t *Table) Find(name *vitals.Name) (uint32, bool) { return t.names.find(name) }

// FindHashed is like Find, given the hash of the name.
func (t *Table) FindHashed(name *vitals.Name, hash uint32) (uint32, bool) {
	return t.names.findHashed(name, hash)
}

// Name returns the name of a device by its number.
func (t *Table) Name(i uint32) vitals.Name { return t.names.at(i) }

// At returns a device by its number. The pointer stays valid.
func (t *Table) At(i uint32) *Device { return &t.chunks[i/ChunkDevices][i%ChunkDevices] }

// Record returns the record of a device by its number.
func (t *Table) Record(i uint32) (r layout.Record) {
	d := t.At(i)
	r.NewestUnixMs, r.SealedUnixMs, r.Known, r.Sizes = d.NewestUnixMs, d.SealedUnixMs, uint32(d.known&firstSigns), d.Sizes
	copy(r.LatestUnixMs[:], d.unixMs[:])
	for s, v := range d.values {
		r.Latest[s] = vitals.Value(v)
	}
	copy(r.Offsets[:], d.offsets[:])
	if d.known&hasMore != 0 {
		m := t.more[i]
		r.Known |= m.known
		copy(r.LatestUnixMs[layout.FirstSigns:], m.unixMs[:])
		copy(r.Latest[layout.FirstSigns:], m.values[:])
		copy(r.Offsets[layout.FirstSigns:], m.offsets[:])
	}
	return r
}

// Set sets the record of a device by its number.
func (t *Table) Set(i uint32, r *layout.Record) {
	d := t.At(i)
	d.NewestUnixMs, d.SealedUnixMs, d.known, d.Sizes = r.NewestUnixMs, r.SealedUnixMs, uint8(r.Known&firstSigns), r.Sizes
	copy(d.unixMs[:], r.LatestUnixMs[:])
	for s := range d.values {
		d.values[s] = uint16(r.Latest[s])
	}
	copy(d.offsets[:], r.Offsets[:])
	known := r.Known &^ firstSigns
	if known == 0 {
		delete(t.more, i)
		return
	}
	m := t.more[i]
	if m == nil {
		m = new(moreLatest)
		t.more[i] = m
	}
	d.known |= hasMore
	m.known = known
	copy(m.unixMs[:], r.LatestUnixMs[layout.FirstSigns:])
	copy(m.values[:], r.Latest[layout.FirstSigns:])
	copy(m.offsets[:], r.Offsets[layout.FirstSigns:])
}

// Replace is Set for a device whose newest time changes.
func (t *Table) Replace(i uint32, r *layout.Record) {
	t.Active.Moved(t.At(i).NewestUnixMs, r.NewestUnixMs)
	t.Set(i, r)
}

// Update updates a device by its number with a record: see [layout.Record.Update].
func (t *Table) Update(i uint32, timeUnixMs int64, values *vitals.Values, offset vitals.UTCOffset) {
	if values.Present()&^firstSigns != 0 {
		r := t.Record(i)
		r.Update(timeUnixMs, values, offset)
		t.Set(i, &r)
		return
	}
	d := t.At(i)
	newest := timeUnixMs > d.NewestUnixMs
	d.NewestUnixMs = max(d.NewestUnixMs, timeUnixMs)
	for s := range vitals.Sign(layout.FirstSigns) {
		v, ok := values.Get(s)
		switch {
		case !ok:
		case newest || d.known&(1<<s) == 0 || timeUnixMs > d.unixMs[s]:
			d.values[s], d.unixMs[s], d.offsets[s] = uint16(v), timeUnixMs, offset
		case timeUnixMs == d.unixMs[s] && offset != 0:
			d.offsets[s] = offset
		}
	}
	d.known |= uint8(values.Present())
}

// Add adds a device that t does not hold and returns its number.
func (t *Table) Add(name *vitals.Name, r *layout.Record) uint32 {
	i := t.AddHashed(name, t.names.hash(name), r.NewestUnixMs)
	t.Set(i, r)
	return i
}

// AddHashed adds a device without latest values and segments, given the hash of the name.
func (t *Table) AddHashed(name *vitals.Name, hash uint32, newestUnixMs int64) uint32 {
	i := uint32(t.Len())
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else if i%ChunkDevices == 0 {
		t.chunks = append(t.chunks, make([]Device, ChunkDevices))
	}
	t.names.put(name, hash, i)
	*t.At(i) = Device{NewestUnixMs: newestUnixMs, SealedUnixMs: layout.NoSegment}
	return i
}

// Remove removes a device, if t holds it. The next device added reuses its number.
func (t *Table) Remove(name *vitals.Name) { t.removeHashed(name, t.names.hash(name)) }

func (t *Table) removeHashed(name *vitals.Name, hash uint32) {
	i, ok := t.names.findHashed(name, hash)
	if !ok {
		return
	}
	t.Active.Moved(t.At(i).NewestUnixMs, -1)
	t.At(i).NewestUnixMs = -1
	delete(t.more, i)
	t.free = append(t.free, i)
	t.names.delete(hash, i)
}
