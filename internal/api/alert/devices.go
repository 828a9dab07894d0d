package alert

import (
	"hash/maphash"
	"iter"

	"github.com/pulsegate/pulsegate/vitals"
)

// A devices finds what is kept of a device by its name. It is a hash table with linear probing.
//
// Looking up a device at random waits for memory, so a look-up reads one place of the table and the
// device itself. A map of names would read twice as much memory.
type devices struct {
	hash   func(*vitals.Name) uint64
	places []place // a power of two, of which at least a quarter is free
	n      int
}

type place struct {
	hash uint64
	w    *watched // nil means that the place is free
}

func newDevices() devices {
	seed := maphash.MakeSeed()
	return devices{hash: func(name *vitals.Name) uint64 { return maphash.Comparable(seed, *name) }, places: make([]place, 8)}
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
	// A look-up ends at a free place. So each device after it moves into it, unless the look-up of that device begins after the free place.
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
