package pebblestore

import (
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A device is the state of a device that settling and sealing need. It contains no pointers,
// so the garbage collector does not scan a table of a million devices.
type device struct {
	layout.Record

	// inWindow is the number of the device in the active window, if window is that window's
	// number.
	window   uint32
	inWindow uint32
}

// public returns a record as a storage.Device.
func public(name vitals.Name, d *layout.Record) storage.Device {
	p := storage.Device{Name: name, NewestUnixMs: d.NewestUnixMs}
	for s := range p.Latest {
		if d.Known&(1<<s) != 0 {
			p.Latest[s] = storage.Latest{TimeUnixMs: d.LatestUnixMs[s], UTCOffset: d.Offsets[s], Value: d.Latest[s], Known: true}
		}
	}
	return p
}

// A table holds every device of the store. TestDeviceBytes asserts how much a device takes.
type table struct {
	names  nameSet
	chunks [][]device // of chunkDevices each, so that growing copies nothing
	active activity   // of the devices; it has its own lock
	free   []uint32   // numbers of devices that were removed
}

func newTable() *table { return &table{names: newNameSet()} }

func (t *table) len() int { return t.names.used }

// at returns a device by its number. The pointer stays valid.
func (t *table) at(i uint32) *device { return &t.chunks[i/chunkDevices][i%chunkDevices] }

// add adds a device that t does not hold and returns its number.
func (t *table) add(name *vitals.Name, d device) uint32 {
	return t.addHashed(name, t.names.hash(name), d)
}

func (t *table) addHashed(name *vitals.Name, hash uint32, d device) uint32 {
	i := uint32(t.len())
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else if i%chunkDevices == 0 {
		t.chunks = append(t.chunks, make([]device, chunkDevices))
	}
	t.names.put(name, hash, i)
	*t.at(i) = d
	return i
}

// remove removes a device, if t holds it. The next device added reuses its number.
func (t *table) remove(name *vitals.Name) { t.removeHashed(name, t.names.hash(name)) }

func (t *table) removeHashed(name *vitals.Name, hash uint32) {
	i, ok := t.names.findHashed(name, hash)
	if !ok {
		return
	}
	t.active.moved(t.at(i).NewestUnixMs, -1)
	t.at(i).NewestUnixMs = -1
	t.free = append(t.free, i)
	t.names.delete(hash, i)
}

// appendNewest appends the newest times of the devices in chunk i to dst, and reports
// whether there are further chunks.
func (t *table) appendNewest(dst []int64, i int) (_ []int64, more bool) {
	if i >= len(t.chunks) {
		return dst, false
	}
	used := t.len() + len(t.free) // numbers assigned so far
	for j := range t.chunks[i][:min(chunkDevices, used-i*chunkDevices)] {
		if ms := t.chunks[i][j].NewestUnixMs; ms >= 0 {
			dst = append(dst, ms)
		}
	}
	return dst, i+1 < len(t.chunks)
}
