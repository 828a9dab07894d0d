package pebblestore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A Store is an open directory. It implements [storage.Store].
type Store struct {
	dir      string // as given to Open, for messages
	path     string // absolute, where the file system has such
	files    *directory
	db       *pebble.DB
	readOnly bool
	views    views
	disk     *diskWatch
	alarm    *alarm
	counters counters
	troubles troubles
	scrubbed scrubCounters

	// recovered says that the store was there, and not closed in good order.
	recovered bool

	maintenance *maintenance // nil when read-only

	options Options

	opened closers // everything that Close closes, the tree last
	treeAt int     // what opened holds of the tree begins here

	// mu makes Append and Close take turns. It guards what follows.
	mu      sync.Mutex
	settler *settler      // nil when read-only
	stuck   bool          // do not call Pebble again
	renewed chan struct{} // nil: nothing waits; closed when the tree is closed to be opened again

	closed atomic.Bool

	deviceCount atomic.Int64 // in the settler's table
}

var (
	_ storage.Store   = (*Store)(nil)
	_ storage.Remover = (*Store)(nil)
)

// Append implements [storage.Store].
//
// After a failed write it returns storage.ErrFailed, and Options.Fatal has been
// called. A reading whose look-up meets a damaged file, or one that cannot be read, is
// Unreadable.
func (s *Store) Append(group []*storage.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(group); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	s.settler.reset()
	if err := s.settler.settle(group); err != nil {
		s.alarm.stop(err)
		return fmt.Errorf("append group: %w: %w: %w", storage.ErrNotWritten, storage.ErrFailed, err)
	}
	size := 0
	if !s.settler.batch.Empty() {
		size = s.settler.batch.Len()
		start := time.Now()
		if err := s.commit(s.settler.batch); err != nil {
			return fmt.Errorf("append group: %w", err)
		}
		s.counters.syncs.Add(1)
		s.counters.batchBytes.Add(int64(size))
		s.counters.syncNanos.Add(int64(time.Since(start)))
		s.views.publish(s.db.NewSnapshot())
	}
	s.counters.lookups.Add(s.settler.lookups)
	if err := s.settler.unreadable; err != nil {
		s.options.Log.Error("late readings were refused: what is stored at their times cannot be read", "dir", s.dir, "error", err)
		s.troubles.degrade(err)
	}
	s.noteDevices()
	return nil
}

// noteDevices publishes how many devices the table holds. s.mu must be held.
func (s *Store) noteDevices() { s.deviceCount.Store(int64(s.settler.table.len())) }

// admit reports why a group cannot be taken.
func (s *Store) admit(group []*storage.Entry) error {
	if err := s.ready(); err != nil {
		return err
	}
	for i, e := range group {
		switch r := e.Reading; {
		case r.Device.IsZero():
			return fmt.Errorf("reading %d has no device", i)
		case r.Values.IsZero():
			return fmt.Errorf("reading %d has no value", i)
		case r.TimeUnixMs < 0:
			return fmt.Errorf("reading %d has a time before 1970", i)
		}
	}
	return nil
}

// commit makes b durable. When it fails, what Pebble holds in memory is not to be
// trusted any more, and the store fails with it.
func (s *Store) commit(b *pebble.Batch) error {
	if err := s.guard(func() error { return commit(s.db, b) }); err != nil {
		s.alarm.sound(fmt.Sprintf("the log cannot be written: %v", err))
		return s.alarm.failure()
	}
	return nil
}

// commit makes b durable, or returns the error of the log. Batch.Commit would give that
// to Logger.Fatalf, and return nil.
//
// Pebble calls ApplyNoSyncWait experimental; it is the first half of Commit, and
// SyncWait the second.
func commit(db *pebble.DB, b *pebble.Batch) error {
	if err := db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return err
	}
	return b.SyncWait()
}

// guard calls Pebble. A panic of that is a defect, after which Pebble may hold its locks
// for ever.
func (s *Store) guard(call func() error) error {
	defer func() {
		if p := recover(); p != nil {
			s.stuck = true
			s.alarm.sound(fmt.Sprintf("panic: %v", p))
			panic(p)
		}
	}()
	return call()
}

// Ready returns nil when the store would take a group now, and otherwise why not:
// an error that wraps storage.ErrClosed, storage.ErrFailed, storage.ErrDiskLow or
// ErrReadOnly. It waits for nothing.
func (s *Store) Ready() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if s.readOnly {
		return ErrReadOnly
	}
	if err := s.alarm.failed(); err != nil {
		return err
	}
	return s.disk.ready()
}

// Degraded returns nil, or the first damage of stored files that was found since Open. The
// store takes readings even so, but for those that have to be compared with what is
// damaged.
func (s *Store) Degraded() error {
	if err := s.troubles.degraded.Load(); err != nil {
		return *err
	}
	return nil
}

// ready is Ready for a caller that returns the error.
func (s *Store) ready() error {
	err := s.Ready()
	if errors.Is(err, storage.ErrFailed) {
		return s.alarm.failure()
	}
	return err
}

// Close implements [storage.Store]. It writes the records of all devices that have a
// tail, so that the next Open is quick. After a failure it may return an error; the
// directory is free again even so.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return fmt.Errorf("close store: %w", storage.ErrClosed)
	}
	if s.maintenance != nil {
		s.maintenance.close()
	}
	s.alarm.closing.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck {
		return fmt.Errorf("close store %s: %w: the process must end first", s.dir, storage.ErrFailed)
	}
	s.views.close()
	var err error
	if s.settler != nil {
		err = s.settler.closeBatch()
		// The records spare the next Open a look at every device's tail. What
		// is stored is safe without.
		if s.alarm.failure() == nil && s.disk.ready() == nil {
			err = errors.Join(err, s.writeRecords())
			s.files.sound = err == nil
		}
	}
	if err = errors.Join(err, s.opened.Close()); err != nil {
		return fmt.Errorf("close store %s: %w", s.dir, err)
	}
	return nil
}
