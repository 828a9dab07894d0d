package pebblestore

import "errors"

// ErrReadOnly means that the store was opened with Options.ReadOnly. Append returns it
// with storage.ErrNotWritten.
var ErrReadOnly = errors.New("the store is opened read-only")
