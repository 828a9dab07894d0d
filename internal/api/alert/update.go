package alert

import (
	"math/bits"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An update is what matters of a reading that was stored or, with completed, has added signs to a stored
// one.
type update struct {
	device                 vitals.Name
	unixMs, receivedUnixMs int64
	completed              bool
	values                 vitals.Values // last, because the end of it is often not used
}

// A filter selects the readings that matter. For most readings that is all that alerts cost.
//
// A reading whose values meet no rule may end a run or an alert, or be the first of a device. For a calm device it matters only as
// the newest one, so it is left out: what is kept of a calm device is as old as the last sweep. A value that is older than one that was left
// out may then seem to be the newest one, and a device may seem to be silent, but none seems to have a shorter run. So what is stored of a
// device is read before an alert begins. TestModel leaves out readings, too.
type filter struct {
	signs uint32                        // bit set of those that rules are about
	unmet [vitals.MaxSigns]vitals.Range // by sign; values between the ends meet no rule
	all   bool                          // leave out nothing: by a rule about silence, too many devices would seem to be silent

	hash func(*vitals.Name) uint64
	calm atomic.Pointer[hashes] // of devices
}

func newFilter(rules []Rule, hash func(*vitals.Name) uint64) *filter {
	f := &filter{hash: hash}
	f.calm.Store(newHashes(0))
	for i := range f.unmet {
		f.unmet[i] = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	}
	for i := range rules {
		r := &rules[i]
		if r.Silent != 0 {
			f.all = f.all || r.Silent < 2*sweepAtMost
			continue
		}
		f.signs |= 1 << r.Sign
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
	if !f.all && f.meetNone(&r.Values) && f.calm.Load().has(f.hash(&r.Device)) {
		return false
	}
	u.device, u.unixMs, u.receivedUnixMs, u.completed = r.Device, r.TimeUnixMs, e.ReceivedUnixMs, e.Outcome == storage.Completed
	u.values.CopyFrom(&r.Values)
	return true
}

// meetNone reports whether values meet no rule. It may report false although they do not.
func (f *filter) meetNone(values *vitals.Values) bool {
	for signs := values.Present() & f.signs; signs != 0; signs &= signs - 1 {
		s := vitals.Sign(bits.TrailingZeros32(signs))
		if v, _ := values.Get(s); v <= f.unmet[s].Min || v >= f.unmet[s].Max {
			return false
		}
	}
	return true
}

// A hashes is a set of hashes: a hash table with linear probing, of which at least a quarter is free. While it is filled, nobody else may use it;
// afterwards several goroutines may remove and restore what it was filled with.
type hashes []atomic.Uint64

// The two last bits of a place. A place that is free has neither.
const (
	removed = 1
	used    = 2
)

// newHashes returns an empty set for n hashes.
func newHashes(n int) *hashes {
	h := make(hashes, 1<<bits.Len(uint(n+n/3)))
	return &h
}

// place returns the place of a hash, or a free one, and what it has if the hash is in the set.
func (h hashes) place(hash uint64) (p *atomic.Uint64, is uint64) {
	is = hash&^removed | used
	for i := hash >> 2; ; i++ {
		p = &h[i&uint64(len(h)-1)]
		if at := p.Load(); at == 0 || at&^removed == is {
			return p, is
		}
	}
}

func (h hashes) add(hash uint64) {
	p, is := h.place(hash)
	p.Store(is)
}

func (h hashes) has(hash uint64) bool {
	p, is := h.place(hash)
	return p.Load() == is
}

func (h hashes) remove(hash uint64) {
	p, is := h.place(hash)
	p.CompareAndSwap(is, is|removed)
}

// restore ends remove.
func (h hashes) restore(hash uint64) {
	p, is := h.place(hash)
	p.CompareAndSwap(is|removed, is)
}
