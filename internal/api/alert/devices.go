package alert

import (
	"hash/maphash"
	"iter"
	"math/bits"

	"github.com/pulsegate/pulsegate/vitals"
)

// A devices finds what is kept of a device by its name. It is a hash table with linear probing.
//
// Looking up a device at random waits for memory, so a look-up reads one place of the table and the
// device itself, and find looks up several devices without waiting for one after the other. A map of
// names would read twice as much memory, one device after the other.
type devices struct {
	hash   func(*vitals.Name) uint64
	places []place // a power of two, of which at least a quarter is free
	n      int
	young  uint64 // sum of what find has read of runs, so that the compiler keeps the reads
}

type place struct {
	hash uint64
	w    *watched // nil means that the place is free
}

func newDevices() devices {
	seed := maphash.MakeSeed()
	return devices{hash: func(name *vitals.Name) uint64 { return maphash.Comparable(seed, *name) },
		places: make([]place, 8)}
}

// get returns what is kept of a device, or nil.
func (d *devices) get(name *vitals.Name) *watched { return d.places[d.at(name, d.hash(name))].w }

// at returns the place of a device with a hash, or the free one that it would get.
func (d *devices) at(name *vitals.Name, hash uint64) int {
	last := uint64(len(d.places) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if p := &d.places[i]; p.w == nil || p.hash == hash && p.w.name == *name {
			return int(i)
		}
	}
}

// atOnce is how many devices find looks up: the processor waits for the memory of several of them together.
const atOnce = 16

// find looks up the devices of at most atOnce updates, and reads the first run that each update is about, so that it is
// in the cache. found is nil for devices that d does not have, and for one whose hash another device has, too.
func (d *devices) find(updates []update, found *[atOnce]*watched) {
	var hashes [atOnce]uint64
	for i := range updates {
		hashes[i] = d.hash(&updates[i].device)
	}
	last := uint64(len(d.places) - 1)
	for i := range updates {
		at := hashes[i] & last
		for d.places[at].w != nil && d.places[at].hash != hashes[i] {
			at = (at + 1) & last
		}
		found[i] = d.places[at].w
	}
	for i := range updates {
		if w := found[i]; w != nil && w.name != updates[i].device {
			found[i] = nil
		}
	}
	for i := range updates {
		if w := found[i]; w != nil {
			if run := bits.TrailingZeros64(updates[i].met | updates[i].has&w.busy); run < len(w.runs) {
				d.young += uint64(w.runs[run].young)
			}
		}
	}
}

// put adds a device that d does not have.
func (d *devices) put(w *watched) {
	if d.n++; 4*d.n > 3*len(d.places) {
		old := d.places
		d.places = make([]place, 2*len(old))
		for _, p := range old {
			if p.w != nil {
				d.places[d.at(&p.w.name, p.hash)] = p
			}
		}
	}
	hash := d.hash(&w.name)
	d.places[d.at(&w.name, hash)] = place{hash, w}
}

// remove removes a device that d has.
func (d *devices) remove(w *watched) {
	last := len(d.places) - 1
	free := d.at(&w.name, d.hash(&w.name))
	// A look-up ends at a free place. So each device after it moves into it, unless the look-up of that device begins
	// after the free place.
	for i := (free + 1) & last; d.places[i].w != nil; i = (i + 1) & last {
		if begins := int(d.places[i].hash) & last; (i-begins)&last >= (i-free)&last {
			d.places[free], free = d.places[i], i
		}
	}
	d.places[free] = place{}
	d.n--
}

// all returns what is kept of all devices, in no order.
func (d *devices) all() iter.Seq[*watched] {
	return func(yield func(*watched) bool) {
		for _, p := range d.places {
			if p.w != nil && !yield(p.w) {
				return
			}
		}
	}
}
