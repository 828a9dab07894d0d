package seal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

var (
	errLastTime = errors.New("the last reading is not at the time of its key")
	errReadBack = errors.New("it differs from what was written")
)

// Encode returns the value of a segment, which was verified to decode to the same rows.
func Encode(device *vitals.Name, rows []columns.Row) ([]byte, error) {
	value, _, err := encode(nil, nil, rows)
	if err != nil {
		return nil, Error(device, rows[len(rows)-1].TimeUnixMs, err)
	}
	return value, nil
}

// encode is Encode with buffers.
func encode(dst []byte, again, rows []columns.Row) ([]byte, []columns.Row, error) {
	dst = columns.AppendSegment(dst, rows)
	again, err := columns.DecodeSegment(dst, again)
	if err != nil || !equal(again, rows) {
		return dst, again, errors.Join(errReadBack, err)
	}
	return dst, again, nil
}

func equal(a, b []columns.Row) bool {
	same := len(a) == len(b)
	for i := 0; same && i < len(a); i++ {
		same = a[i].Equal(&b[i])
	}
	return same
}

// checksum returns the CRC-32C of a segment.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Error returns an error for a segment that is damaged, or cannot be read.
func Error(device *vitals.Name, lastUnixMs int64, err error) error {
	if damage.IsFault(err) {
		return fmt.Errorf("segment of device %s up to %d: %w", device, lastUnixMs, err)
	}
	return fmt.Errorf("%w: segment of device %s up to %d: %w", storage.ErrCorrupt, device, lastUnixMs, err)
}

// Decode appends the rows of the segment at an iterator's position to dst.
func Decode(it *pebble.Iterator, device *vitals.Name, dst []columns.Row) ([]columns.Row, error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return dst, damage.Wrap(err)
	}
	last := layout.SegmentKeyTime(it.Key())
	rows, err := columns.DecodeSegment(value, dst)
	if err == nil && rows[len(rows)-1].TimeUnixMs != last {
		err = errLastTime
	}
	if err != nil {
		return dst, Error(device, last, err)
	}
	return rows, nil
}

// Find returns the position of the first row that is not before timeUnixMs, and reports
// whether it is at that time.
func Find(rows []columns.Row, timeUnixMs int64) (int, bool) {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].TimeUnixMs >= timeUnixMs })
	return i, i < len(rows) && rows[i].TimeUnixMs == timeUnixMs
}

// SetRecord adds the record of a device to a batch. The encoders write into space that the
// batch has reserved.
func SetRecord(b *pebble.Batch, name *vitals.Name, d *layout.Record) error {
	var buffer [128]byte // enough for all but a few
	value := layout.AppendRecord(buffer[:0], d)
	op := b.SetDeferred(1+name.Len(), len(value))
	layout.AppendRecordKey(op.Key[:0], name)
	copy(op.Value, value)
	return op.Finish()
}

// What may be wrong with a row that is read back.
var (
	ErrUnknownGateway = errors.New("its gateway is not in the dictionary")
	ErrUnknownSign    = errors.New("its sign is not defined")
)

// Summary returns a record as a storage.Device.
func Summary(name vitals.Name, d *layout.Record) storage.Device {
	p := storage.Device{Name: name, NewestUnixMs: d.NewestUnixMs}
	for s := range p.Latest {
		if d.Known&(1<<s) != 0 {
			p.Latest[s] = storage.Latest{TimeUnixMs: d.LatestUnixMs[s], UTCOffset: d.Offsets[s], Value: d.Latest[s], Known: true}
		}
	}
	return p
}

// RecordError returns an error for a device whose record is damaged.
func RecordError(device *vitals.Name, err error) error {
	return fmt.Errorf("%w: record of device %s: %w", storage.ErrCorrupt, device, err)
}

// IsOf reports whether an iterator is at a segment of the device with this prefix.
func IsOf(it *pebble.Iterator, prefix []byte) bool { return bytes.HasPrefix(it.Key(), prefix) }
