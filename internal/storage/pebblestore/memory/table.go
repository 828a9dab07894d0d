package memory

import (
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Device is the state of a device that settling and sealing need. It contains no pointers,
// so the garbage collector does not scan a table of a million devices. What every reading needs comes first:
// each further line of the processor's cache is one more wait for memory.
type Device struct {
	NewestUnixMs  int64
	ArrivedUnixMs int64 // as in layout.Record

	// inWindow is the number of the device in the active window, if window is that window's
	// number.
	window   uint32
	inWindow uint32

	known uint32 // as in layout.Record
	slot  uint32 // number of the slot of the latest values, if there are any

	layout.Sizes
	SealedUnixMs int64 // as in layout.Record
}

// ChunkDevices is the number of devices for which a table grows at once.
const ChunkDevices = 1024

// A Table holds every device of the store. TestDeviceBytes asserts how much a device takes.
type Table struct {
	names  nameSet
	chunks [][]Device // of ChunkDevices each, so that growing copies nothing
	Active Activity   // of the devices; it has its own lock
	free   []uint32   // numbers of devices that were removed

	shelves [vitals.MaxSigns]shelf // of the latest values, by the number of signs minus 1
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{names: newNameSet()}
	for i := range t.shelves {
		t.shelves[i].signs = i + 1
	}
	return t
}

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

// Replace is Set for a device whose newest time changes.
func (t *Table) Replace(i uint32, r *layout.Record) {
	t.Active.Moved(t.At(i).NewestUnixMs, r.NewestUnixMs)
	t.Set(i, r)
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
	t.setKnown(i, 0)
	t.free = append(t.free, i)
	t.names.delete(hash, i)
}
