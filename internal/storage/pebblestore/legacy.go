package pebblestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Format 1
//
// Stores of format 1 have one key for each reading. legacy.go describes its keys and
// values, which a store has while it is being converted.

// Versions of format 1's values.
const (
	readingVersion       = 1
	sharedReadingVersion = 2
	legacyRecordVersion  = 1
)

// readingsStart is a key before those of all readings of format 1 and after all others.
const readingsStart = 0x20

const maxReadingKeyBytes = vitals.MaxNameBytes + 1 + 8

// closedKey exists while the store is closed, if it was closed cleanly: then no device
// has a tail. Its value is closedVersion.
const (
	closedKey     = "\x00closed"
	closedVersion = 1
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

// record returns r as a storage.Record.
func (r *reading) record(timeUnixMs int64) storage.Record {
	record := storage.Record{TimeUnixMs: timeUnixMs, ReceivedUnixMs: r.receivedUnixMs, Values: r.values}
	if gateway := r.gateway; !gateway.IsZero() {
		record.Gateway = &gateway
	}
	return record
}

// decodeLegacyRecord decodes the record b of format 1 into d.
func decodeLegacyRecord(b []byte, d *device) error {
	known, rest, err := header(b, legacyRecordVersion, 8)
	if err != nil {
		return err
	}
	if known == 0 {
		return errSigns
	}
	if len(rest) != 10*bits.OnesCount8(known) {
		return errLength
	}
	*d = device{newestUnixMs: int64(binary.BigEndian.Uint64(b[1:])), known: known, sealedUnixMs: noSegment}
	if d.newestUnixMs < 0 {
		return errTime
	}
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

// isClosed reports whether the store was closed cleanly.
func isClosed(db *pebble.DB) (bool, error) {
	value, closer, err := db.Get([]byte(closedKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, corrupt(err)
	}
	// Another version may have another meaning: then read the tails.
	closed := len(value) == 1 && value[0] == closedVersion
	return closed, closer.Close()
}

// A tailReader reads the tails of devices. It is fastest if these are read in the order of
// their names.
type tailReader struct {
	it  *pebble.Iterator
	key []byte
}

func newTailReader(r pebble.Reader) (*tailReader, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{readingsStart}})
	if err != nil {
		return nil, err
	}
	return &tailReader{it: it, key: make([]byte, 0, maxReadingKeyBytes)}, nil
}

// read adds the tail of the device to d.
func (t *tailReader) read(name *vitals.Name, d *device) error {
	t.key = appendReadingKey(t.key[:0], name, uint64(d.newestUnixMs)+1)
	prefix := t.key[:len(t.key)-8]
	for ok := t.it.SeekGE(t.key); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Next() {
		_, ms, err := decodeReadingKey(t.it.Key())
		if err != nil {
			return fmt.Errorf("%w: key of a reading of device %s: %w", storage.ErrCorrupt, name, err)
		}
		value, err := t.it.ValueAndErr()
		if err != nil {
			return err
		}
		var r reading
		if err := decodeReading(value, &r); err != nil {
			return readingError(name, ms, err)
		}
		d.update(ms, &r.values)
	}
	return t.it.Error()
}
