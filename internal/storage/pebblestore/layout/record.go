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
	LatestUnixMs [vitals.NumSigns]int64
	Latest       [vitals.NumSigns]vitals.Hundredths
	Offsets      [vitals.NumSigns]vitals.UTCOffset // of the latest times
	Known        uint8                             // bit s is set when sign s has a latest value

	// Small has the numbers of readings of the last Smalls segments, if these are small, in the order
	// of time.
	Smalls uint8
	Small  [MaxSmall]uint16
}

// Update updates d with a record. The first offset from UTC that a record is given may be that of a
// later reading, so it is updated if d has the values already.
func (d *Record) Update(timeUnixMs int64, values *vitals.Values, offset vitals.UTCOffset) {
	d.NewestUnixMs = max(d.NewestUnixMs, timeUnixMs)
	for s := range vitals.Sign(vitals.NumSigns) {
		v, ok := values.Get(s)
		switch {
		case !ok || d.Known&(1<<s) != 0 && timeUnixMs < d.LatestUnixMs[s]:
		case d.Known&(1<<s) == 0 || timeUnixMs > d.LatestUnixMs[s]:
			d.Known |= 1 << s
			d.Latest[s], d.LatestUnixMs[s], d.Offsets[s] = v, timeUnixMs, offset
		case offset != 0:
			d.Offsets[s] = offset
		}
	}
}

// Forget makes d one without latest values of the signs.
func (d *Record) Forget(signs uint8) {
	for s := range vitals.NumSigns {
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
	dst = append(dst, d.Known)
	for s := range vitals.NumSigns {
		if d.Known&(1<<s) != 0 {
			dst = binary.BigEndian.AppendUint64(dst, uint64(d.LatestUnixMs[s]))
			dst = binary.BigEndian.AppendUint16(dst, uint16(d.Latest[s]))
			if version == offsetVersion {
				dst = binary.BigEndian.AppendUint16(dst, uint16(d.Offsets[s]))
			}
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
	return 1 + 8 + 1 + latestBytes(d.version())*bits.OnesCount8(d.Known) + 8 + 2*int(d.Smalls)
}

// version returns the version of a record.
func (d *Record) version() byte {
	if d.Offsets == [vitals.NumSigns]vitals.UTCOffset{} {
		return recordVersion
	}
	return offsetVersion
}

// latestBytes returns the number of bytes of each latest value in a record.
func latestBytes(version byte) int {
	if version == offsetVersion {
		return 12
	}
	return 10
}

// DecodeRecord decodes the record b into d.
func DecodeRecord(b []byte, d *Record) error {
	version := byte(recordVersion)
	if len(b) > 0 && b[0] == offsetVersion {
		version = offsetVersion
	}
	known, rest, err := header(b, version, 8)
	if err != nil {
		return err
	}
	if known == 0 {
		return errSigns
	}
	signs := latestBytes(version) * bits.OnesCount8(known)
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
	for s := range vitals.NumSigns {
		if d.Known&(1<<s) == 0 {
			continue
		}
		d.LatestUnixMs[s] = int64(binary.BigEndian.Uint64(b))
		d.Latest[s] = vitals.Hundredths(binary.BigEndian.Uint16(b[8:]))
		if d.LatestUnixMs[s] < 0 {
			return errTime
		}
		if d.LatestUnixMs[s] > d.NewestUnixMs {
			return errOrder
		}
		if version == offsetVersion {
			if d.Offsets[s] = vitals.UTCOffset(binary.BigEndian.Uint16(b[10:])); d.Offsets[s] < 0 || d.Offsets[s] > maxUTCOffset {
				return errOffset
			}
		}
		b = b[latestBytes(version):]
	}
	return nil
}

// header checks the version in b's first byte. It returns the presence bits, which follow
// after skip bytes, and the rest of b.
func header(b []byte, version byte, skip int) (present uint8, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errLength
	}
	if b[0] != version {
		return 0, nil, errVersion
	}
	if len(b) < skip+2 {
		return 0, nil, errLength
	}
	present = b[1+skip]
	if present&^allSigns != 0 {
		return 0, nil, errSigns
	}
	return present, b[skip+2:], nil
}
