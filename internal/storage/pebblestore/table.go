package pebblestore

import (
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	// maxSmall is the largest number of sizes in a record. When a device has more trailing
	// small segments, they are merged.
	maxSmall = 16

	// noSegment is the time of the last segment of a device that has none.
	noSegment = -1
)

// A device is the state of a device that settling and sealing need. It contains no pointers,
// so the garbage collector does not scan a table of a million devices.
type device struct {
	newestUnixMs int64
	sealedUnixMs int64 // time of the last reading in the device's segments, or noSegment
	latestUnixMs [vitals.NumSigns]int64
	latest       [vitals.NumSigns]vitals.Hundredths
	offsets      [vitals.NumSigns]vitals.UTCOffset // of the latest times
	known        uint8                             // bit s is set when sign s has a latest value

	// small has the numbers of readings of the last segments, if these are small, in the
	// order of time. See sealer.
	smalls uint8
	small  [maxSmall]uint16

	// inWindow is the number of the device in the active window, if window is that window's
	// number.
	window   uint32
	inWindow uint32
}

// update updates d with a record. The first offset from UTC that a record is given may be that of a
// later reading, so it is updated if d has the values already.
func (d *device) update(timeUnixMs int64, values *vitals.Values, offset vitals.UTCOffset) {
	d.newestUnixMs = max(d.newestUnixMs, timeUnixMs)
	for s := range vitals.Sign(vitals.NumSigns) {
		v, ok := values.Get(s)
		switch {
		case !ok || d.known&(1<<s) != 0 && timeUnixMs < d.latestUnixMs[s]:
		case d.known&(1<<s) == 0 || timeUnixMs > d.latestUnixMs[s]:
			d.known |= 1 << s
			d.latest[s], d.latestUnixMs[s], d.offsets[s] = v, timeUnixMs, offset
		case offset != 0:
			d.offsets[s] = offset
		}
	}
}

// forget makes d one without latest values of the signs.
func (d *device) forget(signs uint8) {
	for s := range vitals.NumSigns {
		if signs&(1<<s) != 0 {
			d.latest[s], d.latestUnixMs[s], d.offsets[s] = 0, 0, 0
		}
	}
	d.known &^= signs
}

// public returns d as a storage.Device.
func (d *device) public(name vitals.Name) storage.Device {
	p := storage.Device{Name: name, NewestUnixMs: d.newestUnixMs}
	for s := range p.Latest {
		if d.known&(1<<s) != 0 {
			p.Latest[s] = storage.Latest{TimeUnixMs: d.latestUnixMs[s], UTCOffset: d.offsets[s], Value: d.latest[s], Known: true}
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
	t.active.moved(t.at(i).newestUnixMs, -1)
	t.at(i).newestUnixMs = -1
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
		if ms := t.chunks[i][j].newestUnixMs; ms >= 0 {
			dst = append(dst, ms)
		}
	}
	return dst, i+1 < len(t.chunks)
}
