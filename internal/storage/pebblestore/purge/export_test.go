package purge

import (
	"context"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// Parse parses the text of an intent, and returns it as it is written again.
func Parse(text []byte) ([]byte, error) {
	in, err := parse(text)
	if err != nil {
		return nil, err
	}
	return in.text(), nil
}

// A Cut is a removal from the segments of a device.
type Cut struct {
	Device       vitals.Name
	FromMs, ToMs int64
	Most         int64
	Small        int
}

// Do adds the removal to a batch, and updates the record of the device.
func (x Cut) Do(db *pebble.DB, b *pebble.Batch, d *layout.Record) (readings int64, gone bool, unread, err error) {
	it, err := newSegmentIter(context.Background(), db)
	if err != nil {
		return 0, false, nil, err
	}
	defer it.Close()
	c := cut{device: &x.Device, fromMs: x.FromMs, toMs: x.ToMs, most: x.Most, small: x.Small, rewrites: x.FromMs > 0,
		gateways: map[uint32]bool{}}
	if c.most == 0 {
		c.most = math.MaxInt64
	}
	if err = c.segments(it, b, d); err == nil && c.first != nil {
		gone, err = c.record(it, b, d, nil)
	}
	return c.readings, gone, c.unread, err
}
