package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
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
	return d.decodeLatest(rest, legacyRecordVersion)
}

// decodeEitherRecord decodes a record of a store of format 1. It is of format 2 if a start of this
// version was interrupted before the store became one of format 2.
func decodeEitherRecord(b []byte, d *device) error {
	if len(b) > 0 && b[0] == legacyRecordVersion {
		return decodeLegacyRecord(b, d)
	}
	return decodeRecord(b, d)
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
		d.update(ms, &r.values, 0)
	}
	return t.it.Error()
}

// A legacyState tells what a store or a view has of format 1.
type legacyState uint8

const (
	noLegacy    legacyState = iota
	legacyRows              // there may be rows; all records are of format 2
	legacyTails             // records may be of format 1, and lack the readings of their tails
)

// legacyGateway is the first number that stands for a gateway of a row of format 1, which names
// its gateway in full. Such a number is an index into the names that the reader of the row has
// gathered. It is never stored.
const legacyGateway = 1 << 31

// legacyNames are the names of gateways that rows of format 1 have named.
type legacyNames struct {
	names    []*vitals.Name
	byName   map[vitals.Name]uint32
	previous uint32
}

// number returns the number that stands for a name, 0 for the zero Name.
func (l *legacyNames) number(name *vitals.Name) uint32 {
	if name.IsZero() {
		return 0
	}
	if l.previous != 0 && *l.at(l.previous) == *name {
		return l.previous
	}
	number, ok := l.byName[*name]
	if !ok {
		if l.byName == nil {
			l.byName = map[vitals.Name]uint32{}
		}
		kept := *name
		number = legacyGateway + uint32(len(l.names))
		l.names = append(l.names, &kept)
		l.byName[kept] = number
	}
	l.previous = number
	return number
}

// at returns the name for which a number stands. It must not be modified.
func (l *legacyNames) at(number uint32) *vitals.Name { return l.names[number-legacyGateway] }

// gather adds the gateways that rows name to numbers, or to names if they are of format 1.
func (sc *rowScanner) gather(rows []columns.Row, numbers map[uint32]bool, names map[vitals.Name]bool) {
	for i := range rows {
		if number := rows[i].Gateway; number >= legacyGateway {
			names[*sc.legacy.at(number)] = true
		} else {
			numbers[number] = true
		}
	}
}

// resolve adds the numbers of names that are in the dictionary, and clears names. Rows of format
// 1 do not need the dictionary, but their conversion may have begun.
func (g *dictionary) resolve(numbers map[uint32]bool, names map[vitals.Name]bool) {
	for name := range names {
		if number, ok := g.byName[name]; ok {
			numbers[number] = true
		}
	}
	clear(names)
}

// row returns a reading of format 1 as a row.
func (l *legacyNames) row(timeUnixMs int64, r *reading) columns.Row {
	return columns.Row{
		TimeUnixMs:     timeUnixMs,
		ReceivedUnixMs: r.receivedUnixMs,
		Values:         r.values,
		Gateway:        l.number(&r.gateway),
		Shared:         r.shared,
	}
}

// A legacyScanner reads the rows of format 1 that a device has.
type legacyScanner struct {
	it         *pebble.Iterator
	device     *vitals.Name
	descending bool
	started    bool
	legacyNames
	rows []columns.Row // buffer
}

const legacyPage = 256 // rows

// reset continues with all rows of another device.
func (l *legacyScanner) reset(device *vitals.Name) {
	prefix := append(device.AppendTo(nil), 0)
	end := append(device.AppendTo(nil), 1)
	l.it.SetBounds(prefix, end)
	l.device, l.started = device, false
}

// newLegacyScanner returns a scanner of the rows with times from fromMs to before toMs.
func newLegacyScanner(ctx context.Context, r pebble.Reader, device *vitals.Name, fromMs, toMs int64, descending bool) (*legacyScanner, error) {
	it, err := r.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: appendReadingKey(nil, device, uint64(fromMs)),
		UpperBound: appendReadingKey(nil, device, uint64(toMs)),
	})
	if err != nil {
		return nil, corrupt(err)
	}
	return &legacyScanner{it: it, device: device, descending: descending}, nil
}

// next returns up to most of the next rows, or none at the end. They are valid until the next
// call. After the error of a damaged value, it continues with the next row.
func (l *legacyScanner) next(most int) ([]columns.Row, error) {
	l.rows = l.rows[:0]
	for len(l.rows) < most && l.move() {
		ms, r, err := l.decode()
		if err != nil && len(l.rows) > 0 {
			l.started = false // decode it again
			return l.rows, nil
		}
		if err != nil {
			return nil, err
		}
		l.rows = append(l.rows, l.row(ms, &r))
	}
	if len(l.rows) > 0 {
		return l.rows, nil
	}
	return nil, corrupt(l.it.Error())
}

func (l *legacyScanner) move() bool {
	if !l.started && l.it.Valid() {
		l.started = true
		return true
	}
	switch {
	case l.started && l.descending:
		return l.it.Prev()
	case l.started:
		return l.it.Next()
	}
	l.started = true
	if l.descending {
		return l.it.Last()
	}
	return l.it.First()
}

// decode decodes the row at the iterator's position.
func (l *legacyScanner) decode() (ms int64, r reading, err error) {
	_, ms, err = decodeReadingKey(l.it.Key())
	if err != nil {
		return 0, r, fmt.Errorf("%w: key of a reading of device %s: %w", storage.ErrCorrupt, l.device, err)
	}
	value, err := l.it.ValueAndErr()
	if err != nil {
		return 0, r, corrupt(err)
	}
	if err := decodeReading(value, &r); err != nil {
		return 0, r, readingError(l.device, ms, err)
	}
	return ms, r, nil
}

// findLegacy looks up a row of format 1.
func (s *settler) findLegacy(id recordID, name *vitals.Name) (*columns.Row, error) {
	s.key = appendReadingKey(s.key[:0], name, uint64(id.timeUnixMs))
	value, closer, err := s.db.Get(s.key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up reading: %w", corrupt(err))
	}
	var r reading
	if err = decodeReading(value, &r); err != nil {
		err = fmt.Errorf("look up reading: %w", readingError(name, id.timeUnixMs, err))
	}
	if err = errors.Join(err, corrupt(closer.Close())); err != nil {
		return nil, err
	}
	row := s.legacyNames.row(id.timeUnixMs, &r)
	return &row, nil
}

// isGateway reports whether the gateway of a stored row is the one with a number and a name.
func (s *settler) isGateway(stored, number uint32, name *vitals.Name) bool {
	if stored >= legacyGateway {
		return *s.legacyNames.at(stored) == *name
	}
	return stored == number
}
