package pebblestore

import (
	"errors"
	"io"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
)

// ErrReadOnly means that the store was opened with Options.ReadOnly. Append returns it
// with storage.ErrNotWritten.
var ErrReadOnly = errors.New("pebblestore: opened read-only")

// corrupt is [damage.Wrap].
func corrupt(err error) error { return damage.Wrap(err) }

// isFault is [damage.IsFault].
func isFault(err error) bool { return damage.IsFault(err) }

// joinClose closes c and returns err joined with the error of Close.
func joinClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
