package pebblestore

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/pulsegate/pulsegate/vitals"
)

// The package comment describes these formats byte by byte.
const (
	recordVersion = 2 // of a record without offsets from UTC
	offsetVersion = 3 // of a record with at least one
	assignVersion = 1

	maxUTCOffset = vitals.UTCOffset(2*vitals.MaxUTCOffsetMinutes + 1)

	// The first bytes of the kinds of keys.
	statePrefix   = 0x00
	recordPrefix  = 0x01
	segmentPrefix = 0x02
	groupPrefix   = 0x03
	gatewayPrefix = 0x04
	assignPrefix  = 0x05
	subjectPrefix = 0x06
	lastPrefix    = subjectPrefix

	// Keys of states.
	groupsKey   = "\x00groups"   // the number of the next group, if no later one is stored
	gatewaysKey = "\x00gateways" // the number of the next gateway
	readingsKey = "\x00readings" // the number of readings in segments
	sweepKey    = "\x00sweep"    // exists, with an empty value, while the dictionary must be swept

	// uncountedKey exists, with an empty value, if damaged readings were removed that could not be
	// counted: then readingsKey is too large.
	uncountedKey = "\x00uncounted"

	// allSigns is the presence of every sign.
	allSigns = 1<<vitals.NumSigns - 1

	maxSegmentKeyBytes = 1 + vitals.MaxNameBytes + 1 + 8
)

// Errors of the decoders. Their texts contain no values, because they reach logs.
var (
	errVersion = errors.New("unknown version")
	errLength  = errors.New("wrong length")
	errSigns   = errors.New("invalid presence bits")
	errGateway = errors.New("gateway is not a name")
	errDevice  = errors.New("device is not a name")
	errTime    = errors.New("time is negative")
	errOffset  = errors.New("invalid offset from UTC")
	errOrder   = errors.New("latest value is newer than the record")
	errSmall   = errors.New("invalid sizes of segments")
	errKey     = errors.New("invalid key")
)

// appendRecordKey appends the key of a device's record.
func appendRecordKey(dst []byte, device *vitals.Name) []byte {
	return device.AppendTo(append(dst, recordPrefix))
}

// decodeRecordKey returns the device of a record's key.
func decodeRecordKey(key []byte) (vitals.Name, error) {
	if len(key) == 0 || key[0] != recordPrefix {
		return vitals.Name{}, errDevice
	}
	device, err := vitals.ParseName(key[1:])
	if err != nil {
		return vitals.Name{}, errDevice
	}
	return device, nil
}

// appendSegmentPrefix appends what the keys of a device's segments begin with.
func appendSegmentPrefix(dst []byte, device *vitals.Name) []byte {
	return append(device.AppendTo(append(dst, segmentPrefix)), 0)
}

// appendSegmentKey appends the key of the segment whose last reading is at lastUnixMs. That
// may be one more than the last millisecond, which gives an exclusive bound.
func appendSegmentKey(dst []byte, device *vitals.Name, lastUnixMs uint64) []byte {
	return binary.BigEndian.AppendUint64(appendSegmentPrefix(dst, device), lastUnixMs)
}

// appendSegmentsEnd appends the first key after those of a device's segments.
func appendSegmentsEnd(dst []byte, device *vitals.Name) []byte {
	return append(device.AppendTo(append(dst, segmentPrefix)), 1)
}

// decodeSegmentKey returns the device and the time of a segment's key.
func decodeSegmentKey(key []byte) (vitals.Name, int64, error) {
	end := len(key) - 9
	if end < 2 || key[0] != segmentPrefix || key[end] != 0 {
		return vitals.Name{}, 0, errLength
	}
	device, err := vitals.ParseName(key[1:end])
	if err != nil {
		return vitals.Name{}, 0, errDevice
	}
	ms := int64(binary.BigEndian.Uint64(key[end+1:]))
	if ms < 0 {
		return vitals.Name{}, 0, errTime
	}
	return device, ms, nil
}

// segmentKeyTime returns the time in the key of a segment that is known to be valid.
func segmentKeyTime(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[len(key)-8:])) }

// appendGroupKey appends the key of a group.
func appendGroupKey(dst []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, groupPrefix), number)
}

// decodeGroupKey returns the number of a group's key.
func decodeGroupKey(key []byte) (uint64, error) {
	if len(key) != 9 || key[0] != groupPrefix {
		return 0, errKey
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

// appendGatewayKey appends the key of a gateway's name.
func appendGatewayKey(dst []byte, number uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, gatewayPrefix), number)
}

// decodeGatewayKey returns the number of the key of a gateway's name.
func decodeGatewayKey(key []byte) (uint32, error) {
	if len(key) != 5 || key[0] != gatewayPrefix {
		return 0, errKey
	}
	return binary.BigEndian.Uint32(key[1:]), nil
}

// appendRecord appends the value of d's record.
func appendRecord(dst []byte, d *device) []byte {
	version := d.version()
	dst = append(dst, version)
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.newestUnixMs))
	dst = append(dst, d.known)
	for s := range vitals.NumSigns {
		if d.known&(1<<s) != 0 {
			dst = binary.BigEndian.AppendUint64(dst, uint64(d.latestUnixMs[s]))
			dst = binary.BigEndian.AppendUint16(dst, uint16(d.latest[s]))
			if version == offsetVersion {
				dst = binary.BigEndian.AppendUint16(dst, uint16(d.offsets[s]))
			}
		}
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.sealedUnixMs))
	for _, n := range d.small[:d.smalls] {
		dst = binary.BigEndian.AppendUint16(dst, n)
	}
	return dst
}

// recordBytes returns the number of bytes that appendRecord appends.
func recordBytes(d *device) int {
	return 1 + 8 + 1 + latestBytes(d.version())*bits.OnesCount8(d.known) + 8 + 2*int(d.smalls)
}

// version returns the version of d's record.
func (d *device) version() byte {
	if d.offsets == [vitals.NumSigns]vitals.UTCOffset{} {
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

// decodeRecord decodes the record b into d.
func decodeRecord(b []byte, d *device) error {
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
	if len(rest) < signs+8 || len(rest)%2 != 0 || len(rest) > signs+8+2*maxSmall {
		return errLength
	}
	*d = device{newestUnixMs: int64(binary.BigEndian.Uint64(b[1:])), known: known}
	if d.newestUnixMs < 0 {
		return errTime
	}
	if err := d.decodeLatest(rest, version); err != nil {
		return err
	}
	if d.version() != version {
		return errOffset
	}
	rest = rest[signs:]
	d.sealedUnixMs = int64(binary.BigEndian.Uint64(rest))
	if d.sealedUnixMs < noSegment || d.sealedUnixMs > d.newestUnixMs {
		return errTime
	}
	for rest = rest[8:]; len(rest) > 0; rest = rest[2:] {
		n := binary.BigEndian.Uint16(rest)
		if n == 0 || d.sealedUnixMs == noSegment {
			return errSmall
		}
		d.small[d.smalls] = n
		d.smalls++
	}
	return nil
}

// decodeLatest decodes the latest value of each sign that d knows, with its time, from the
// start of b, which must be long enough and from a record of the version.
func (d *device) decodeLatest(b []byte, version byte) error {
	for s := range vitals.NumSigns {
		if d.known&(1<<s) == 0 {
			continue
		}
		d.latestUnixMs[s] = int64(binary.BigEndian.Uint64(b))
		d.latest[s] = vitals.Hundredths(binary.BigEndian.Uint16(b[8:]))
		if d.latestUnixMs[s] < 0 {
			return errTime
		}
		if d.latestUnixMs[s] > d.newestUnixMs {
			return errOrder
		}
		if version == offsetVersion {
			if d.offsets[s] = vitals.UTCOffset(binary.BigEndian.Uint16(b[10:])); d.offsets[s] < 0 || d.offsets[s] > maxUTCOffset {
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
