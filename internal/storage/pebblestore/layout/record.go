package layout

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/pulsegate/pulsegate/vitals"
)

const (
	// MaxSmall is the largest number of sizes in a record.
	MaxSmall = 16

	// NoSegment is the time of the last segment of a device that has none.
	NoSegment = -1
)

// A Record is what the store keeps of a device beside its readings.
type Record struct {
	NewestUnixMs  int64
	SealedUnixMs  int64 // time of the last reading in the device's segments, or NoSegment
	ArrivedUnixMs int64 // when a reading last arrived that was stored or completed one; not negative
	LatestUnixMs  [vitals.MaxSigns]int64
	Latest        [vitals.MaxSigns]vitals.Value
	Offsets       [vitals.MaxSigns]vitals.UTCOffset // of the latest times
	Known         uint32                            // bit s is set when sign s has a latest value
	Sizes
}

// Sizes has the numbers of readings of the last segments of a device.
type Sizes struct {
	// Small has the numbers of readings of the last Smalls segments, if these are small, in the order
	// of time.
	Smalls uint8
	Small  [MaxSmall]uint16
}

// Update updates d with a record that was last changed at a time. The first offset from UTC that a record is given may
// be that of a later reading, so it is updated if d has the values already.
func (d *Record) Update(timeUnixMs, changedUnixMs int64, values *vitals.Values, offset vitals.UTCOffset) {
	d.NewestUnixMs, d.ArrivedUnixMs = max(d.NewestUnixMs, timeUnixMs), max(d.ArrivedUnixMs, changedUnixMs)
	for rest := values.Present(); rest != 0; rest &= rest - 1 {
		s := vitals.Sign(bits.TrailingZeros32(rest))
		switch known := d.Known&(1<<s) != 0; {
		case known && timeUnixMs < d.LatestUnixMs[s]:
		case !known || timeUnixMs > d.LatestUnixMs[s]:
			d.Known |= 1 << s
			d.Latest[s], _ = values.Get(s)
			d.LatestUnixMs[s], d.Offsets[s] = timeUnixMs, offset
		case offset != 0:
			d.Offsets[s] = offset
		}
	}
}

// Forget makes d one without latest values of the signs.
func (d *Record) Forget(signs uint32) {
	for s := range vitals.MaxSigns {
		if signs&(1<<s) != 0 {
			d.Latest[s], d.LatestUnixMs[s], d.Offsets[s] = 0, 0, 0
		}
	}
	d.Known &^= signs
}

// AppendRecord appends a record.
func AppendRecord(dst []byte, d *Record) []byte {
	dst = binary.AppendUvarint(append(dst, recordVersion), uint64(d.NewestUnixMs))
	dst = binary.AppendUvarint(dst, uint64(d.Known))
	for rest := d.Known; rest != 0; rest &= rest - 1 {
		s := bits.TrailingZeros32(rest)
		dst = binary.AppendUvarint(dst, uint64(d.NewestUnixMs-d.LatestUnixMs[s]))
		dst = binary.AppendVarint(dst, int64(d.Latest[s]))
		dst = binary.AppendUvarint(dst, uint64(d.Offsets[s]))
	}
	sealed := uint64(0)
	if d.SealedUnixMs != NoSegment {
		sealed = uint64(d.NewestUnixMs-d.SealedUnixMs) + 1
	}
	dst = binary.AppendUvarint(dst, sealed)
	dst = binary.AppendVarint(dst, d.ArrivedUnixMs-d.NewestUnixMs)
	for _, n := range d.Small[:d.Smalls] {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// A decoder decodes varints, one after the other. After its first error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

// uvarint decodes an integer that is at most most. Otherwise, the error is tooLarge.
func (d *decoder) uvarint(most uint64, tooLarge error) uint64 {
	u, n := binary.Uvarint(d.b)
	switch {
	case d.err != nil:
	case n == 0:
		d.err = errLength
	case n < 0, n > 1 && d.b[n-1] == 0:
		d.err = errVarint
	case u > most:
		d.err = tooLarge
	default:
		d.b = d.b[n:]
		return u
	}
	return 0
}

// varint decodes a signed integer.
func (d *decoder) varint() int64 {
	u := d.uvarint(math.MaxUint64, nil)
	return int64(u>>1) ^ -int64(u&1)
}

// DecodeRecord decodes the record b into r.
func DecodeRecord(b []byte, r *Record) error {
	switch {
	case len(b) == 0:
		return errLength
	case b[0] != recordVersion:
		return errVersion
	}
	d := decoder{b: b[1:]}
	newest := d.uvarint(math.MaxInt64, errTime)
	*r = Record{NewestUnixMs: int64(newest), SealedUnixMs: NoSegment, Known: uint32(d.uvarint(math.MaxUint32, errSigns))}
	if d.err == nil && r.Known == 0 {
		return errSigns
	}
	for rest := r.Known; rest != 0; rest &= rest - 1 {
		s := bits.TrailingZeros32(rest)
		r.LatestUnixMs[s] = int64(newest - d.uvarint(newest, errTime))
		v := d.uvarint(math.MaxUint32, errValue)
		r.Latest[s] = vitals.Value(v>>1) ^ -vitals.Value(v&1)
		r.Offsets[s] = vitals.UTCOffset(d.uvarint(maxUTCOffset, errOffset))
	}
	if sealed := d.uvarint(newest+1, errTime); sealed > 0 {
		r.SealedUnixMs = int64(newest - (sealed - 1))
	}
	r.ArrivedUnixMs = r.NewestUnixMs + d.varint()
	for d.err == nil && len(d.b) > 0 {
		n := d.uvarint(math.MaxUint16, ErrSizes)
		if n == 0 || r.SealedUnixMs == NoSegment || r.Smalls == MaxSmall {
			return cmp.Or(d.err, ErrSizes)
		}
		r.Small[r.Smalls] = uint16(n)
		r.Smalls++
	}
	return d.err
}
