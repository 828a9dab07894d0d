package layout

import (
	"encoding/binary"
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
	NewestUnixMs int64
	SealedUnixMs int64 // time of the last reading in the device's segments, or NoSegment
	LatestUnixMs [vitals.MaxSigns]int64
	Latest       [vitals.MaxSigns]vitals.Value
	Offsets      [vitals.MaxSigns]vitals.UTCOffset // of the latest times
	Known        uint32                            // bit s is set when sign s has a latest value
	Sizes
}

// Sizes has the numbers of readings of the last segments of a device.
type Sizes struct {
	// Small has the numbers of readings of the last Smalls segments, if these are small, in the order
	// of time.
	Smalls uint8
	Small  [MaxSmall]uint16
}

// Update updates d with a record. The first offset from UTC that a record is given may be that of a
// later reading, so it is updated if d has the values already.
func (d *Record) Update(timeUnixMs int64, values *vitals.Values, offset vitals.UTCOffset) {
	d.NewestUnixMs = max(d.NewestUnixMs, timeUnixMs)
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
	version := d.version()
	dst = append(dst, version)
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.NewestUnixMs))
	if version == signsVersion {
		dst = binary.BigEndian.AppendUint32(dst, d.Known)
	} else {
		dst = append(dst, byte(d.Known))
	}
	for rest := d.Known; rest != 0; rest &= rest - 1 {
		s := bits.TrailingZeros32(rest)
		dst = binary.BigEndian.AppendUint64(dst, uint64(d.LatestUnixMs[s]))
		if version == signsVersion {
			dst = binary.BigEndian.AppendUint32(dst, uint32(d.Latest[s]))
		} else {
			dst = binary.BigEndian.AppendUint16(dst, uint16(d.Latest[s]))
		}
		if version != recordVersion {
			dst = binary.BigEndian.AppendUint16(dst, uint16(d.Offsets[s]))
		}
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.SealedUnixMs))
	for _, n := range d.Small[:d.Smalls] {
		dst = binary.BigEndian.AppendUint16(dst, n)
	}
	return dst
}

// RecordBytes returns the number of bytes that AppendRecord appends.
func RecordBytes(d *Record) int {
	version := d.version()
	return 1 + 8 + knownBytes(version) + latestBytes(version)*bits.OnesCount32(d.Known) + 8 + 2*int(d.Smalls)
}

// version returns the version of a record.
func (d *Record) version() byte {
	switch {
	case d.Known&^firstSigns != 0:
		return signsVersion
	case d.Offsets == [vitals.MaxSigns]vitals.UTCOffset{}:
		return recordVersion
	default:
		return offsetVersion
	}
}

// knownBytes returns the number of bytes of the presence in a record.
func knownBytes(version byte) int {
	if version == signsVersion {
		return 4
	}
	return 1
}

// latestBytes returns the number of bytes of each latest value in a record.
func latestBytes(version byte) int {
	switch version {
	case recordVersion:
		return 10
	case offsetVersion:
		return 12
	default:
		return 14
	}
}

// DecodeRecord decodes the record b into d.
func DecodeRecord(b []byte, d *Record) error {
	if len(b) == 0 {
		return errLength
	}
	version := b[0]
	if version < recordVersion || version > signsVersion {
		return errVersion
	}
	if len(b) < 1+8+knownBytes(version) {
		return errLength
	}
	known := uint32(b[9])
	if version == signsVersion {
		known = binary.BigEndian.Uint32(b[9:])
	}
	rest := b[9+knownBytes(version):]
	if known == 0 || version != signsVersion && known&^firstSigns != 0 {
		return errSigns
	}
	signs := latestBytes(version) * bits.OnesCount32(known)
	if len(rest) < signs+8 || len(rest)%2 != 0 || len(rest) > signs+8+2*MaxSmall {
		return errLength
	}
	*d = Record{NewestUnixMs: int64(binary.BigEndian.Uint64(b[1:])), Known: known}
	if d.NewestUnixMs < 0 {
		return errTime
	}
	if err := d.decodeLatest(rest, version); err != nil {
		return err
	}
	if d.version() != version {
		return errOffset
	}
	rest = rest[signs:]
	d.SealedUnixMs = int64(binary.BigEndian.Uint64(rest))
	if d.SealedUnixMs < NoSegment || d.SealedUnixMs > d.NewestUnixMs {
		return errTime
	}
	for rest = rest[8:]; len(rest) > 0; rest = rest[2:] {
		n := binary.BigEndian.Uint16(rest)
		if n == 0 || d.SealedUnixMs == NoSegment {
			return ErrSizes
		}
		d.Small[d.Smalls] = n
		d.Smalls++
	}
	return nil
}

// decodeLatest decodes the latest value of each sign that d knows, with its time, from the
// start of b, which must be long enough and from a record of the version.
func (d *Record) decodeLatest(b []byte, version byte) error {
	for rest := d.Known; rest != 0; rest &= rest - 1 {
		s := bits.TrailingZeros32(rest)
		d.LatestUnixMs[s] = int64(binary.BigEndian.Uint64(b))
		if d.LatestUnixMs[s] < 0 {
			return errTime
		}
		if d.LatestUnixMs[s] > d.NewestUnixMs {
			return errOrder
		}
		offset := b[latestBytes(version)-2:]
		switch b := b[8:]; version {
		case signsVersion:
			d.Latest[s] = vitals.Value(binary.BigEndian.Uint32(b))
		default:
			d.Latest[s] = vitals.Value(binary.BigEndian.Uint16(b))
		}
		if version != recordVersion {
			if d.Offsets[s] = vitals.UTCOffset(binary.BigEndian.Uint16(offset)); d.Offsets[s] < 0 || d.Offsets[s] > maxUTCOffset {
				return errOffset
			}
		}
		b = b[latestBytes(version):]
	}
	return nil
}
