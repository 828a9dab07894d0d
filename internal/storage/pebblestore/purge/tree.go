package purge

import (
	"context"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Tree is the store, as a Remover uses it.
type Tree interface {
	// Lock calls f while nothing is written, unless the store is closed or has failed.
	Lock(f func(st *State) error) error

	// LockSegments calls f while nothing else changes segments, unless the store is closed or has failed. f
	// may call Lock.
	LockSegments(f func(db *pebble.DB) error) error

	// SealAll writes the rows of all windows to segments. Then, while nothing is written, it calls add with
	// the batch that ends the last window, commits it, and calls done. All rows are in segments then, but
	// those in s.Carried, which stay unless add removes them. After an error for which done was not called,
	// the batch is not in the tree, or the store has failed.
	SealAll(add func(st *State, b *pebble.Batch, s *seal.Sealer) error, done func() error) error

	// View returns what readers see now. The caller must release it soon.
	View(ctx context.Context) (r pebble.Reader, windows []memory.View, release func(), err error)

	// AwaitReaders waits for the readers of snapshots that were taken before the call.
	AwaitReaders() error

	// Flush writes the memtable to a table.
	Flush(ctx context.Context) error

	// Renew closes and opens the tree, which makes a new log and a new manifest, and removes all files
	// that are not needed any more.
	Renew() error

	// Ready returns why the store takes no readings, or nil. CheckSpace does the same for a rewrite of the
	// tables that have keys in ranges.
	Ready() error
	CheckSpace(ranges []Range) error

	// Failed reports whether the store has failed, and Fail makes it fail.
	Failed() bool
	Fail(cause string)

	// FoundDamage reports damage that does not stop the removal.
	FoundDamage(what string, err error)
}

// A State is what may be used while nothing is written.
type State struct {
	DB       *pebble.DB
	Table    *memory.Table
	Windows  []*memory.Window // with rows that are in no segment; at least the active one, which is the last
	Gateways Gateways
	Readings *atomic.Int64 // in segments

	// Changed adds an event to a batch, if events are kept.
	Changed func(b *pebble.Batch, e *layout.Event) error

	// Pass adds to a batch that what is changed later has a later time than one that has been given.
	Pass func(b *pebble.Batch, unixMs int64) error

	// Commit makes a batch durable and visible to readers, and closes it.
	Commit func(b *pebble.Batch) error
}

// settle sets the record of a device in the table, or removes the device if it is gone.
func (st *State) settle(name *vitals.Name, number uint32, after *layout.Record, gone bool) {
	if gone {
		st.Table.Remove(name)
	} else {
		st.Table.Replace(number, after)
	}
}

// Gateways is the dictionary of gateways.
type Gateways interface {
	// Number returns the number of a gateway, 0 if there is none with the name.
	Number(name vitals.Name) uint32

	// Numbers returns the numbers of all gateways.
	Numbers() map[uint32]bool

	// Watch makes the dictionary remember which gateways readings name from now on, until the call of
	// Watched, which returns them.
	Watch()
	Watched() map[uint32]bool

	// Forget removes a gateway, and reports whether there was one with that number.
	Forget(number uint32) bool
}
