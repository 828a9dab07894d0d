package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A deviceScanner reads the records of devices in the order of their names.
type deviceScanner struct {
	records *pebble.Iterator
	tails   *tailReader // of a store of format 1; nil: records are of format 2 and have everything
	err     error

	name   vitals.Name // of the current device
	device device
}

func newDeviceScanner(r pebble.Reader, withTails bool) (*deviceScanner, error) {
	records, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{recordPrefix}, UpperBound: []byte{recordPrefix + 1}})
	if err != nil {
		return nil, err
	}
	sc := &deviceScanner{records: records}
	if withTails {
		if sc.tails, err = newTailReader(r); err != nil {
			return nil, joinClose(err, records)
		}
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
	if sc.tails != nil {
		err = decodeEitherRecord(value, &sc.device)
	} else {
		err = decodeRecord(value, &sc.device)
	}
	if err != nil {
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
