package pebblestore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
	"github.com/pulsegate/pulsegate/vitals"
)

// An engine is the tree of an open store, with what is in memory for the next group, and what
// readers see. The tree can be replaced by another one of the same files: see tree.reopen.
type engine struct {
	committer
	views views // what readers see

	options     Options
	dir         string // as given to Open, for messages
	path        string // absolute, if the file system has absolute paths
	files       *datadir.Dir
	disk        *space.Watch
	maintenance *maintenance // nil if read-only
	troubles    troubles
	counters    counters
	dead        dead
	gateways    *dictionary
	signs       *vitals.Signs
	closed      atomic.Bool
	assigned    atomic.Bool  // there may be assignments
	deviceCount atomic.Int64 // number of devices in the settler's table

	gatewayCount atomic.Int64

	cursorKey []byte // of changes; never modified

	// openedUnixMs is the time right before the store was opened, if it may not have kept events before; otherwise 0. It
	// is never modified.
	openedUnixMs int64

	decoded groupCache

	// mu serializes Append, Close, and the writes of Erase and Expire. It guards the
	// following fields.
	mu        sync.Mutex
	settler   *settler // nil if read-only
	nextGroup uint64
	renewed   chan struct{} // closed when the tree has been closed for a reopen; nil means nothing waits for it
	opened    closers       // everything that Close closes, in reverse order
	treeAt    int           // index in opened of the tree's first closer
	progress  sync.Cond     // of mu: signaled when a window is sealed, in part or as a whole
}

// enter begins a read. It returns the current view, which the caller must release.
func (e *engine) enter(ctx context.Context) (*view, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e.views.acquire()
}

// publish makes what is stored now visible to readers. e.mu must be held.
func (e *engine) publish() {
	s := e.settler
	at := viewPosition{
		firstGroup: s.active.FirstGroup, nextGroup: e.nextGroup, changedUnixMs: s.storedUnixMs,
		starts: s.journal.starts, expired: s.journal.expired,
	}
	if s.frozen != nil {
		at.firstGroup = s.frozen.FirstGroup
	}
	e.views.publish(e.db.NewSnapshot(), at, s.active, s.frozen)
}

// changed adds an event to a batch that removes something. The caller of a removal reads no clock. If events are not
// kept, no position from before is known afterwards. e.mu must be held.
func (e *engine) changed(b *pebble.Batch, event *layout.Event) error {
	s := e.settler
	if !s.journal.keeps {
		return s.changes(b, e.nextGroup, nil)
	}
	s.clockUnixMs = max(s.clockUnixMs, time.Now().UnixMilli())
	err := s.changes(b, e.nextGroup, event)
	if event.Kind == layout.EventExpired { // what arrives after it has a later time of change
		err = errors.Join(err, e.pass(b, s.clockUnixMs))
	}
	return err
}

// pass gives what is changed later a later time than one that has been given. e.mu must be held.
func (e *engine) pass(b *pebble.Batch, unixMs int64) error {
	if e.settler.clockUnixMs != unixMs {
		return nil
	}
	e.settler.clockUnixMs++
	return e.settler.setClock(b)
}

// publishDeviceCount publishes the numbers of devices in the table and of gateways. e.mu must be held.
func (e *engine) publishDeviceCount() {
	e.deviceCount.Store(int64(e.settler.table.Len()))
	e.gatewayCount.Store(int64(len(e.gateways.byName)))
}

// commitAndPublish commits a batch that is not Append's, publishes a view, and closes the batch. e.mu
// must be held.
func (e *engine) commitAndPublish(b *pebble.Batch) error {
	if err := e.commit(b); err != nil {
		return err
	}
	e.publish()
	return b.Close()
}

// Ready returns nil if the store would accept a group now, and otherwise an error that
// wraps storage.ErrClosed, storage.ErrFailed, storage.ErrDiskLow or ErrReadOnly. It does
// not block.
func (e *engine) Ready() error {
	if e.closed.Load() {
		return storage.ErrClosed
	}
	if e.options.ReadOnly {
		return ErrReadOnly
	}
	if err := e.alarm.err(); err != nil {
		return err
	}
	return e.disk.Ready()
}

// ready is like Ready, for a caller that returns the error: see alarm.reportedErr.
func (e *engine) ready() error {
	err := e.Ready()
	if errors.Is(err, storage.ErrFailed) {
		return e.alarm.reportedErr()
	}
	return err
}

// Degraded returns the first damage of stored files found since Open, or nil. The store
// still accepts readings, except those that must be compared with damaged data.
func (e *engine) Degraded() error {
	if err := e.troubles.degraded.Load(); err != nil {
		return *err
	}
	return nil
}

// foundDamage logs damage that does not stop the store, and reports it as such.
func (e *engine) foundDamage(what string, err error) {
	e.options.Log.Error(what, "dir", e.dir, "error", err)
	e.troubles.degrade(err)
}

// flush writes the memtable to a table, concurrently with Append. If the disk is full,
// Pebble retries: flush then waits until ctx ends or the store is closed.
func (e *engine) flush(ctx context.Context) error {
	flushed, renewed, err := e.startFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-renewed:
		// A flush that has not begun when the tree is closed never ends. Reopening
		// the tree has flushed the log.
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.alarm.reportedErr()
	case <-e.maintenance.ctx.Done():
		return storage.ErrClosed
	case <-ctx.Done():
		if e.maintenance.ctx.Err() != nil { // ctx may be one that ends with it
			return storage.ErrClosed
		}
		return ctx.Err()
	}
}

// startFlush starts a flush. It returns a channel that is closed when it has ended, and one that
// is closed when the tree is closed for a reopen.
func (e *engine) startFlush() (flushed, renewed <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.renewed == nil {
		e.renewed = make(chan struct{})
	}
	if e.closed.Load() { // a closed DB panics
		return nil, nil, storage.ErrClosed
	}
	if err := e.alarm.reportedErr(); err != nil {
		return nil, nil, err
	}
	// The flush ends the log: what is being committed must be synced before.
	e.committing.Lock()
	defer e.committing.Unlock()
	err = e.guard(func() (err error) { flushed, err = e.db.AsyncFlush(); return err })
	return flushed, e.renewed, err
}

// tableFiles returns the files of the tables that the store has now.
func (e *engine) tableFiles() ([]datadir.Table, error) {
	v, err := e.views.acquire() // keeps the tree open
	if err != nil {
		return nil, err
	}
	defer e.views.release(v)
	return datadir.Tables(e.db)
}

// metrics returns Pebble's metrics, which are zero after Close.
func (e *engine) metrics() *pebble.Metrics {
	v, err := e.views.acquire() // keeps the tree open
	if err != nil {
		return new(pebble.Metrics)
	}
	defer e.views.release(v)
	return e.db.Metrics()
}

// sealedRowBytes is how many bytes the sealing of a row may write to tables.
const sealedRowBytes = 16

// neededBytes returns how many bytes the store may still write without a further group.
func (e *engine) neededBytes() (uint64, error) {
	v, err := e.views.acquire() // keeps the tree open
	if err != nil {
		return 0, err
	}
	defer e.views.release(v)
	levels, err := e.db.SSTables()
	if err != nil {
		return 0, err
	}
	// Both windows may be sealed without a further group.
	sealing := 2 * uint64(e.options.WindowRows) * sealedRowBytes
	return space.Reserve(levels, uint64(e.options.MemTableBytes), sealing), nil
}
