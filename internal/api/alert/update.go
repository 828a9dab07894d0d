package alert

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An update is what matters of a reading that was stored or, with completed, has added signs to a stored
// one. It has a bit for each rule about values: in has if the reading has a value of the rule's sign, and in met if
// that meets the condition.
type update struct {
	device                 vitals.Name
	unixMs, receivedUnixMs int64
	has, met               uint64
	filter                 *filter // of these rules
	completed              bool
}

// A filter selects the readings that matter. For most readings that is all that alerts cost.
//
// A reading matters if it may begin, prolong or end a run. Two kinds of readings are left out: of a device whose runs
// are not met, those that meet no rule; and of one whose runs that are met are all active alerts, those that meet the
// rules of these alerts and no others. Then the next sweep finds out how old the newest values are. Until then, a value
// that is older than one that was left out may seem to be the newest one, but no run seems to be shorter than it is. So
// what is stored of a device is read before an alert begins, and before one ends of which values may have been left
// out. A device may also seem to be silent; see oldMs. TestModel leaves out readings, too.
type filter struct {
	rules  []Rule
	ofSign [vitals.MaxSigns]uint64       // rules about the values of a sign
	signs  uint32                        // bit set of those that rules are about
	unmet  [vitals.MaxSigns]vitals.Range // by sign; values between the ends meet no rule
	// nothing is left out that is so old when it arrives: a device that was not known may be silent before a sweep
	oldMs int64
	all   bool // leave out nothing: by a rule about silence, too many devices would seem to be silent

	hash   func(*vitals.Name) uint64
	except atomic.Pointer[exceptions] // nil means that nothing is left out yet
}

func newFilter(rules []Rule, hash func(*vitals.Name) uint64) *filter {
	f := &filter{rules: rules, hash: hash, oldMs: math.MaxInt64}
	for i := range f.unmet {
		f.unmet[i] = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	}
	for i := range rules {
		r := &rules[i]
		if r.Silent != 0 {
			f.oldMs = min(f.oldMs, (r.Silent - 2*sweepAtMost).Milliseconds())
			f.all = f.oldMs < 0
			continue
		}
		f.signs |= 1 << r.Sign
		f.ofSign[r.Sign] |= 1 << i
		if unmet := &f.unmet[r.Sign]; r.Met.Min == vitals.MinValue {
			unmet.Min = max(unmet.Min, r.Met.Max)
		} else {
			unmet.Max = min(unmet.Max, r.Met.Min)
		}
	}
	return f
}

// fill fills an update from an entry, and reports whether it matters.
func (f *filter) fill(u *update, e *storage.Entry) bool {
	r := e.Reading
	f.look(u, &r.Values)
	if except := f.except.Load(); except != nil && e.ReceivedUnixMs-r.TimeUnixMs < f.oldMs &&
		except.get(f.hash(&r.Device)).leavesOut(u, r.TimeUnixMs) {
		return false
	}
	u.device, u.unixMs, u.receivedUnixMs, u.completed = r.Device, r.TimeUnixMs, e.ReceivedUnixMs,
		e.Outcome == storage.Completed
	return true
}

// look sets what a reading's values mean for the rules.
func (f *filter) look(u *update, values *vitals.Values) {
	u.filter, u.has, u.met = f, 0, 0
	for signs := values.Present() & f.signs; signs != 0; signs &= signs - 1 {
		s := vitals.Sign(bits.TrailingZeros32(signs))
		u.has |= f.ofSign[s]
		v, _ := values.Get(s)
		if v > f.unmet[s].Min && v < f.unmet[s].Max {
			continue
		}
		for rules := f.ofSign[s]; rules != 0; rules &= rules - 1 {
			if i := bits.TrailingZeros64(rules); f.rules[i].Met.Contains(v) {
				u.met |= 1 << i
			}
		}
	}
}

// An exception says which readings of a device are left out instead of those that meet no rule: those from fromUnixMs
// until untilUnixMs that, of the rules about their signs, meet those in active and no others. Its zero value, but for
// the hash, leaves out nothing.
type exception struct {
	hash                    uint64 // of the device
	active                  uint64
	fromUnixMs, untilUnixMs int64
}

// leavesOut reports whether a reading is left out. e is nil for a device that is no exception.
func (e *exception) leavesOut(u *update, unixMs int64) bool {
	if e == nil {
		return u.met == 0
	}
	return u.met == u.has&e.active && unixMs >= e.fromUnixMs && unixMs < e.untilUnixMs
}

// An exceptions is a hash table with linear probing, by the hashes of the devices' names. One goroutine at a time may
// change it while others read it. Most look-ups are of devices that it does not have, and read only a bit; the others
// read few pages of memory.
type exceptions struct {
	bits   []atomic.Uint64 // by the upper half of the hash: whether there may be one; 8 for each place
	places []atomic.Uint32 // by the lower half; a power of two. Each is free, gone, or an index of all
	all    []exception     // the first one is not used. One that is in a place does not change
	n      int             // number of those in all that were used
}

// What a place has that has no index.
const (
	free = 0
	gone = math.MaxUint32
)

// newExceptions returns exceptions with room for more than n.
func newExceptions(n int) *exceptions {
	places := 8 << bits.Len(uint(n))
	return &exceptions{bits: make([]atomic.Uint64, places/8), places: make([]atomic.Uint32, places),
		all: make([]exception, 1+places/4)}
}

// get returns the exception of a device, or nil.
func (x *exceptions) get(hash uint64) *exception {
	if word, bit := x.bit(hash); word.Load()&bit == 0 {
		return nil
	}
	if _, i := x.place(hash); i != free {
		return &x.all[i]
	}
	return nil
}

func (x *exceptions) bit(hash uint64) (word *atomic.Uint64, bit uint64) {
	return &x.bits[hash>>38&uint64(len(x.bits)-1)], 1 << (hash >> 32 & 63)
}

// place returns the place of an exception and what it has, or a free one.
func (x *exceptions) place(hash uint64) (place *atomic.Uint32, is uint32) {
	for at := hash; ; at++ {
		place = &x.places[at&uint64(len(x.places)-1)]
		if is = place.Load(); is == free || is != gone && x.all[is].hash == hash {
			return place, is
		}
	}
}

// set sets the exception of a device. It returns x, or its successor if x is full.
func (x *exceptions) set(e exception) *exceptions {
	if x.n+1 == len(x.all) {
		x = x.compact()
	}
	x.n++
	x.all[x.n] = e
	word, bit := x.bit(e.hash)
	word.Or(bit)
	place, _ := x.place(e.hash)
	place.Store(uint32(x.n))
	return x
}

// remove removes the exception of a device.
func (x *exceptions) remove(hash uint64) {
	if place, is := x.place(hash); is != free {
		place.Store(gone)
	}
}

// compact returns a copy that has room for more.
func (x *exceptions) compact() *exceptions {
	var all []exception
	for i := range x.places {
		if is := x.places[i].Load(); is != free && is != gone {
			all = append(all, x.all[is])
		}
	}
	x = newExceptions(len(all))
	for _, e := range all {
		x = x.set(e)
	}
	return x
}
