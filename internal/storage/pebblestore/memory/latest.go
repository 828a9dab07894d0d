package memory

import (
	"encoding/binary"
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	// A slot has the number of its device, and then an entry for each sign that the device has, in the order of
	// the signs: the time of the latest value, the value, and the offset of the time from UTC.
	ownerBytes = 4
	entryBytes = 8 + 4 + 2

	slotChunkBytes = 64 << 10 // of a chunk of slots, at most
)

// A shelf holds the slots of all devices with the same number of signs, without gaps between them.
type shelf struct {
	signs  int // more than 0
	used   uint32
	chunks [][]byte
}

// slot returns a slot by its number.
func (s *shelf) slot(i uint32) []byte {
	size := ownerBytes + s.signs*entryBytes
	perChunk := uint32(slotChunkBytes / size)
	return s.chunks[i/perChunk][int(i%perChunk)*size:][:size]
}

// add adds a slot of a device, and returns its number.
func (s *shelf) add(owner uint32) uint32 {
	i := s.used
	size := ownerBytes + s.signs*entryBytes
	if perChunk := uint32(slotChunkBytes / size); i == uint32(len(s.chunks))*perChunk {
		s.chunks = append(s.chunks, make([]byte, int(perChunk)*size))
	}
	s.used++
	binary.NativeEndian.PutUint32(s.slot(i), owner)
	return i
}

// remove removes a slot. It moves the last slot into its place, and returns the device of that one.
func (s *shelf) remove(i uint32) (moved uint32) {
	s.used--
	last := s.slot(s.used)
	copy(s.slot(i), last)
	moved = binary.NativeEndian.Uint32(last)
	if perChunk := uint32(slotChunkBytes / len(last)); s.used == uint32(len(s.chunks)-1)*perChunk {
		s.chunks = s.chunks[:len(s.chunks)-1]
	}
	return moved
}

// An entry is the latest value of a sign in a slot.
type entry []byte

func (e entry) timeUnixMs() int64 { return int64(binary.NativeEndian.Uint64(e)) }

func (e entry) value() vitals.Value { return vitals.Value(binary.NativeEndian.Uint32(e[8:])) }

func (e entry) offset() vitals.UTCOffset { return vitals.UTCOffset(binary.NativeEndian.Uint16(e[12:])) }

func (e entry) set(timeUnixMs int64, v vitals.Value, offset vitals.UTCOffset) {
	binary.NativeEndian.PutUint64(e, uint64(timeUnixMs))
	binary.NativeEndian.PutUint32(e[8:], uint32(v))
	e.setOffset(offset)
}

func (e entry) setOffset(offset vitals.UTCOffset) {
	binary.NativeEndian.PutUint16(e[12:], uint16(offset))
}

// entryOf returns the entry of a sign, given as a bit of known, in a slot.
func entryOf(slot []byte, known, bit uint32) entry {
	at := ownerBytes + bits.OnesCount32(known&(bit-1))*entryBytes
	return slot[at : at+entryBytes : at+entryBytes]
}

// shelf returns the shelf of the devices with that many signs, which is not 0.
func (t *Table) shelf(signs int) *shelf { return &t.shelves[signs-1] }

// slot returns the slot of a device, which has signs.
func (t *Table) slot(d *Device) []byte { return t.shelf(bits.OnesCount32(d.known)).slot(d.slot) }

// setKnown makes known the signs of a device. If that changes their number, the contents of its slot are undefined.
func (t *Table) setKnown(i uint32, known uint32) {
	d := t.At(i)
	from, to := bits.OnesCount32(d.known), bits.OnesCount32(known)
	d.known = known
	if from == to {
		return
	}
	if from > 0 {
		moved := t.shelf(from).remove(d.slot)
		t.At(moved).slot = d.slot // which changes nothing if it is d
	}
	if to > 0 {
		d.slot = t.shelf(to).add(i)
	}
}

// Record returns the record of a device by its number.
func (t *Table) Record(i uint32) (r layout.Record) {
	d := t.At(i)
	r.NewestUnixMs, r.ArrivedUnixMs, r.SealedUnixMs, r.Known, r.Sizes = d.NewestUnixMs, d.ArrivedUnixMs, d.SealedUnixMs,
		d.known, d.Sizes
	if d.known == 0 {
		return r
	}
	slot := t.slot(d)
	for rest := d.known; rest != 0; rest &= rest - 1 {
		s, e := bits.TrailingZeros32(rest), entryOf(slot, d.known, rest&-rest)
		r.LatestUnixMs[s], r.Latest[s], r.Offsets[s] = e.timeUnixMs(), e.value(), e.offset()
	}
	return r
}

// Set sets the record of a device by its number.
func (t *Table) Set(i uint32, r *layout.Record) {
	t.setKnown(i, r.Known)
	d := t.At(i)
	d.NewestUnixMs, d.ArrivedUnixMs, d.SealedUnixMs, d.Sizes = r.NewestUnixMs, r.ArrivedUnixMs, r.SealedUnixMs, r.Sizes
	if d.known == 0 {
		return
	}
	slot := t.slot(d)
	for rest := d.known; rest != 0; rest &= rest - 1 {
		s := bits.TrailingZeros32(rest)
		entryOf(slot, d.known, rest&-rest).set(r.LatestUnixMs[s], r.Latest[s], r.Offsets[s])
	}
}

// Update updates a device by its number with a record: see [layout.Record.Update].
func (t *Table) Update(i uint32, timeUnixMs, changedUnixMs int64, values *vitals.Values, offset vitals.UTCOffset) {
	d, present := t.At(i), values.Present()
	if present&^d.known != 0 {
		r := t.Record(i)
		r.Update(timeUnixMs, changedUnixMs, values, offset)
		t.Set(i, &r)
		return
	}
	d.NewestUnixMs, d.ArrivedUnixMs = max(d.NewestUnixMs, timeUnixMs), max(d.ArrivedUnixMs, changedUnixMs)
	slot := t.slot(d)
	for rest := present; rest != 0; rest &= rest - 1 {
		e := entryOf(slot, d.known, rest&-rest)
		switch latest := e.timeUnixMs(); {
		case timeUnixMs > latest:
			v, _ := values.Get(vitals.Sign(bits.TrailingZeros32(rest)))
			e.set(timeUnixMs, v, offset)
		case timeUnixMs == latest && offset != 0:
			e.setOffset(offset)
		}
	}
}
