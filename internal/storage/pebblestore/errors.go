package pebblestore

import (
	"errors"
	"fmt"
	"io"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrReadOnly means that the store was opened with Options.ReadOnly. Append returns it
// with storage.ErrNotWritten.
var ErrReadOnly = errors.New("pebblestore: opened read-only")

// corrupt is [damage.Wrap].
func corrupt(err error) error { return damage.Wrap(err) }

// isFault is [damage.IsFault].
func isFault(err error) bool { return damage.IsFault(err) }

// faultFirst returns the first of two errors of reads, or a fault rather than damage: what was not
// read because of a fault can be read later.
func faultFirst(a, b error) error {
	if a == nil || isFault(b) && !isFault(a) {
		return b
	}
	return a
}

// recordError returns an error for a device whose record is damaged.
func recordError(device *vitals.Name, err error) error {
	return fmt.Errorf("%w: record of device %s: %w", storage.ErrCorrupt, device, err)
}

// joinClose closes c and returns err joined with the error of Close.
func joinClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
