package pebblestore

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// The package comment describes these formats byte by byte.
const (
	readingVersion       = 1
	sharedReadingVersion = 2
	recordVersion        = 1

	// recordPrefix begins the keys of device records. recordsEnd is the first key
	// after them.
	recordPrefix = 0x01
	recordsEnd   = 0x02

	// readingsStart is a key before those of all readings and after all others.
	readingsStart = 0x20

	// allSigns is the presence of every sign.
	allSigns = 1<<vitals.NumSigns - 1

	maxReadingKeyBytes = vitals.MaxNameBytes + 1 + 8
)

// Errors of the decoders. Their texts contain no values, because they reach logs.
var (
	errVersion = errors.New("unknown version")
	errLength  = errors.New("wrong length")
	errSigns   = errors.New("invalid presence bits")
	errGateway = errors.New("gateway is not a name")
	errDevice  = errors.New("device is not a name")
	errTime    = errors.New("time is negative")
	errOrder   = errors.New("latest value is newer than the record")
)

// appendReadingKey appends the key of a reading. timeUnixMs may be one more than the
// last millisecond, which gives an exclusive bound.
func appendReadingKey(dst []byte, device *vitals.Name, timeUnixMs uint64) []byte {
	dst = device.AppendTo(dst)
	dst = append(dst, 0)
	return binary.BigEndian.AppendUint64(dst, timeUnixMs)
}

// decodeReadingKey returns the device and the time of a reading's key.
func decodeReadingKey(key []byte) (vitals.Name, int64, error) {
	end := len(key) - 9
	if end < 1 || key[end] != 0 {
		return vitals.Name{}, 0, errLength
	}
	device, err := vitals.ParseName(key[:end])
	if err != nil {
		return vitals.Name{}, 0, errDevice
	}
	ms := int64(binary.BigEndian.Uint64(key[end+1:]))
	if ms < 0 {
		return vitals.Name{}, 0, errTime
	}
	return device, ms, nil
}

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

// A reading is the decoded value of a stored reading. Device and time are in its key.
type reading struct {
	values         vitals.Values
	receivedUnixMs int64
	gateway        vitals.Name
	shared         bool // other gateways have added signs
}

// appendReading appends the value of a reading.
func appendReading(dst []byte, r *reading) []byte {
	present, version := r.values.Present(), byte(readingVersion)
	if r.shared {
		version = sharedReadingVersion
	}
	dst = append(dst, version, present)
	for s := range vitals.Sign(vitals.NumSigns) {
		if v, ok := r.values.Get(s); ok {
			dst = binary.BigEndian.AppendUint16(dst, uint16(v))
		}
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.receivedUnixMs))
	return r.gateway.AppendTo(dst)
}

// readingBytes returns the number of bytes that appendReading appends.
func readingBytes(r *reading) int {
	return 2 + 2*bits.OnesCount8(r.values.Present()) + 8 + r.gateway.Len()
}

// decodeReading decodes b into r. It does not retain b.
func decodeReading(b []byte, r *reading) error {
	version := byte(readingVersion)
	if len(b) > 0 && b[0] == sharedReadingVersion {
		version = sharedReadingVersion
	}
	present, b, err := header(b, version, 0)
	if err != nil {
		return err
	}
	if present == 0 {
		return errSigns
	}
	if len(b) < 2*bits.OnesCount8(present)+8 {
		return errLength
	}
	*r = reading{shared: version == sharedReadingVersion}
	for s := range vitals.Sign(vitals.NumSigns) {
		if present&(1<<s) != 0 {
			r.values.Set(s, vitals.Hundredths(binary.BigEndian.Uint16(b)))
			b = b[2:]
		}
	}
	r.receivedUnixMs = int64(binary.BigEndian.Uint64(b))
	if b = b[8:]; len(b) == 0 {
		return nil
	}
	if r.gateway, err = vitals.ParseName(b); err != nil {
		return errGateway
	}
	return nil
}

// appendRecord appends the value of d's record.
func appendRecord(dst []byte, d *device) []byte {
	dst = append(dst, recordVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.newestUnixMs))
	dst = append(dst, d.known)
	for s := range vitals.NumSigns {
		if d.known&(1<<s) != 0 {
			dst = binary.BigEndian.AppendUint64(dst, uint64(d.latestUnixMs[s]))
			dst = binary.BigEndian.AppendUint16(dst, uint16(d.latest[s]))
		}
	}
	return dst
}

// recordBytes returns the number of bytes that appendRecord appends.
func recordBytes(d *device) int { return 1 + 8 + 1 + 10*bits.OnesCount8(d.known) }

// decodeRecord decodes the record b into d, with an empty tail.
func decodeRecord(b []byte, d *device) error {
	known, rest, err := header(b, recordVersion, 8)
	if err != nil {
		return err
	}
	if known == 0 {
		return errSigns
	}
	if len(rest) != 10*bits.OnesCount8(known) {
		return errLength
	}
	*d = device{newestUnixMs: int64(binary.BigEndian.Uint64(b[1:])), known: known}
	if d.newestUnixMs < 0 {
		return errTime
	}
	d.recordedUnixMs = d.newestUnixMs
	for s := range vitals.NumSigns {
		if known&(1<<s) == 0 {
			continue
		}
		d.latestUnixMs[s] = int64(binary.BigEndian.Uint64(rest))
		d.latest[s] = vitals.Hundredths(binary.BigEndian.Uint16(rest[8:]))
		if d.latestUnixMs[s] < 0 {
			return errTime
		}
		if d.latestUnixMs[s] > d.newestUnixMs {
			return errOrder
		}
		rest = rest[10:]
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

// record returns r as a storage.Record.
func (r *reading) record(timeUnixMs int64) storage.Record {
	record := storage.Record{TimeUnixMs: timeUnixMs, ReceivedUnixMs: r.receivedUnixMs, Values: r.values}
	if gateway := r.gateway; !gateway.IsZero() {
		record.Gateway = &gateway
	}
	return record
}
