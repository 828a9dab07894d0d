package pebblestore

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A deviceScanner reads devices in the order of their names, each from its record and
// its tail.
type deviceScanner struct {
	records *pebble.Iterator
	tails   *tailReader // nil: only records
	err     error

	name   vitals.Name // of the current device
	device device
}

func newDeviceScanner(r pebble.Reader, withTails bool) (*deviceScanner, error) {
	sc := &deviceScanner{}
	var err error
	sc.records, err = r.NewIter(&pebble.IterOptions{LowerBound: []byte{recordPrefix}, UpperBound: []byte{recordsEnd}})
	if err != nil {
		return nil, err
	}
	if !withTails {
		return sc, nil
	}
	if sc.tails, err = newTailReader(r); err != nil {
		return nil, joinClose(err, sc.records)
	}
	return sc, nil
}

// first moves to the first device whose record's key is not before from.
func (sc *deviceScanner) first(from []byte) bool { return sc.take(sc.records.SeekGE(from)) }

func (sc *deviceScanner) next() bool { return sc.take(sc.records.Next()) }

func (sc *deviceScanner) take(ok bool) bool {
	if !ok || sc.err != nil {
		return false
	}
	if sc.name, sc.err = decodeRecordKey(sc.records.Key()); sc.err != nil {
		sc.err = fmt.Errorf("%w: key of a device record: %w", storage.ErrCorrupt, sc.err)
		return false
	}
	value, err := sc.records.ValueAndErr()
	if err != nil {
		sc.err = err
		return false
	}
	if err := decodeRecord(value, &sc.device); err != nil {
		sc.err = recordError(&sc.name, err)
		return false
	}
	if sc.tails != nil {
		sc.err = sc.tails.read(&sc.name, &sc.device)
	}
	return sc.err == nil
}

// close closes the iterators and returns the first error of the scan.
func (sc *deviceScanner) close() error {
	err := sc.err
	if closeErr := sc.records.Close(); err == nil {
		err = closeErr
	}
	if sc.tails != nil {
		if closeErr := sc.tails.it.Close(); err == nil {
			err = closeErr
		}
	}
	return corrupt(err)
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
	t.key = appendReadingKey(t.key[:0], name, uint64(d.recordedUnixMs)+1)
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
		d.tail++
	}
	return t.it.Error()
}
