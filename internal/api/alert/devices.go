package alert

import (
	"hash/maphash"
	"iter"
	"maps"

	"github.com/pulsegate/pulsegate/vitals"
)

// A devices finds what is kept of a device by its name.
//
// Looking up a device at random waits for memory, so the map has hashes of names: a map of names is several
// times as large, beyond the processor's caches.
type devices struct {
	hash   func(*vitals.Name) uint64
	byHash map[uint64]*watched
	others map[vitals.Name]*watched // whose hash another device had when they were added; hardly ever any
}

func newDevices() devices {
	seed := maphash.MakeSeed()
	return devices{
		hash:   func(name *vitals.Name) uint64 { return maphash.Comparable(seed, *name) },
		byHash: map[uint64]*watched{}, others: map[vitals.Name]*watched{},
	}
}

// get returns what is kept of a device, or nil.
func (d *devices) get(name *vitals.Name) *watched {
	if w := d.byHash[d.hash(name)]; w != nil && w.name == *name {
		return w
	}
	if len(d.others) == 0 {
		return nil
	}
	return d.others[*name]
}

// put adds a device that d does not have.
func (d *devices) put(w *watched) {
	if h := d.hash(&w.name); d.byHash[h] == nil {
		d.byHash[h] = w
	} else {
		d.others[w.name] = w
	}
}

// remove removes a device that d has.
func (d *devices) remove(w *watched) {
	if h := d.hash(&w.name); d.byHash[h] == w {
		delete(d.byHash, h)
	} else {
		delete(d.others, w.name)
	}
}

func (d *devices) len() int { return len(d.byHash) + len(d.others) }

// all returns what is kept of all devices, in no order.
func (d *devices) all() iter.Seq[*watched] {
	return func(yield func(*watched) bool) {
		for w := range maps.Values(d.byHash) {
			if !yield(w) {
				return
			}
		}
		maps.Values(d.others)(yield)
	}
}
