package seal

import (
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Device is a device with its record.
type Device struct {
	Name vitals.Name
	layout.Record
}

// Records returns the devices of a tree in the order of their names, beginning with a key, and ends with the first
// error. A Device is valid until the next one.
func Records(r pebble.Reader, from []byte) iter.Seq2[*Device, error] {
	return func(yield func(*Device, error) bool) {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{layout.RecordPrefix + 1}})
		if err != nil {
			yield(nil, damage.Wrap(err))
			return
		}
		var d Device
		more := true
		for ok := it.First(); ok && more; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				break // Close returns it
			}
			if d.Name, err = layout.DecodeRecordKey(it.Key()); err != nil {
				err = fmt.Errorf("%w: key of a device record: %w", storage.ErrCorrupt, err)
			} else if err = layout.DecodeRecord(value, &d.Record); err != nil {
				err = RecordError(&d.Name, err)
			}
			more = yield(&d, err) && err == nil
		}
		if err := it.Close(); err != nil && more {
			yield(nil, damage.Wrap(err))
		}
	}
}
