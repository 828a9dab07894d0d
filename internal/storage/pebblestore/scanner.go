package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A deviceScanner reads the records of devices in the order of their names.
type deviceScanner struct {
	records *pebble.Iterator
	err     error

	name   vitals.Name // of the current device
	record layout.Record
}

func newDeviceScanner(r pebble.Reader) (*deviceScanner, error) {
	records, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.RecordPrefix}, UpperBound: []byte{layout.RecordPrefix + 1}})
	if err != nil {
		return nil, err
	}
	return &deviceScanner{records: records}, nil
}

// first moves to the first device whose record's key is not before from.
func (sc *deviceScanner) first(from []byte) bool { return sc.take(sc.records.SeekGE(from)) }

func (sc *deviceScanner) next() bool { return sc.take(sc.records.Next()) }

func (sc *deviceScanner) take(ok bool) bool {
	if !ok || sc.err != nil {
		return false
	}
	if sc.name, sc.err = layout.DecodeRecordKey(sc.records.Key()); sc.err != nil {
		sc.err = fmt.Errorf("%w: key of a device record: %w", storage.ErrCorrupt, sc.err)
		return false
	}
	value, err := sc.records.ValueAndErr()
	if err != nil {
		sc.err = err
		return false
	}
	if err = layout.DecodeRecord(value, &sc.record); err != nil {
		sc.err = seal.RecordError(&sc.name, err)
	}
	return sc.err == nil
}

// close closes the iterator and returns the first error of the scan.
func (sc *deviceScanner) close() error {
	err := sc.err
	if closeErr := sc.records.Close(); err == nil {
		err = closeErr
	}
	return damage.Wrap(err)
}
