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

	// recovered says that the store was there, and not closed in good order.
	recovered bool

	maintenance *maintenance // nil when read-only

	options Options

	opened closers // everything that Close closes, the tree last
	treeAt int     // what opened holds of the tree begins here

	// mu makes Append and Close take turns. It guards what follows.
	mu      sync.Mutex
	settler *settler // nil when read-only
	stuck   bool     // do not call Pebble again

	closed      atomic.Bool
	failure     atomic.Pointer[error] // why no further group is taken
	deviceCount atomic.Int64          // in the settler's table
}

var (
	_ storage.Store   = (*Store)(nil)
	_ storage.Remover = (*Store)(nil)
)

// Append implements [storage.Store].
//
// After a failed write it returns storage.ErrFailed, and Options.Fatal has been
// called. When a look-up meets damaged files, it returns storage.ErrFailed,
// store.ErrNotWritten and storage.ErrCorrupt, and readers may go on.
func (s *Store) Append(group []*storage.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(group); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	s.settler.reset()
	if err := s.settler.settle(group); err != nil {
		s.fail(err)
		return fmt.Errorf("append group: %w: %w: %w", storage.ErrNotWritten, storage.ErrFailed, err)
	}
	size := 0
	if !s.settler.batch.Empty() {
		size = s.settler.batch.Len()
		start := time.Now()
		if err := s.commit(); err != nil {
			s.fail(err)
			return fmt.Errorf("append group: %w: %w", storage.ErrFailed, err)
		}
		s.counters.syncs.Add(1)
		s.counters.batchBytes.Add(int64(size))
		s.counters.syncNanos.Add(int64(time.Since(start)))
		s.views.publish(s.db.NewSnapshot())
	}
	s.counters.lookups.Add(s.settler.lookups)
	s.deviceCount.Store(int64(s.settler.table.len()))
	return nil
}

// admit reports why a group cannot be taken.
func (s *Store) admit(group []*storage.Entry) error {
	if err := s.Ready(); err != nil {
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

// commit writes the batch and waits for its sync. When it fails, what Pebble holds
// in memory is not to be trusted any more, and the store fails with it.
func (s *Store) commit() error {
	return s.guard(func() error { return s.settler.batch.Commit(pebble.Sync) })
}

// guard calls write and returns the alarm that it rings as an error. Any other panic
// is a defect, behind which Pebble may hold its locks for ever.
func (s *Store) guard(write func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatalError:
			err = p
		default:
			s.stuck = true
			s.alarm.sound(fmt.Sprintf("panic: %v", p))
			panic(p)
		}
	}()
	return write()
}

// fail lets no further group in.
func (s *Store) fail(err error) { s.failure.CompareAndSwap(nil, &err) }

// Ready returns nil when the store would take a group now, and otherwise why not:
// an error that wraps store.ErrClosed, store.ErrFailed, storage.ErrDiskLow or
// ErrReadOnly. It waits for nothing.
func (s *Store) Ready() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if s.readOnly {
		return ErrReadOnly
	}
	if err := s.failed(); err != nil {
		return err
	}
	return s.disk.ready()
}

// failed returns an error that wraps storage.ErrFailed after a failure.
func (s *Store) failed() error {
	if err := s.failure.Load(); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrFailed, *err)
	}
	if cause := s.alarm.cause.Load(); cause != nil {
		return fmt.Errorf("%w: %s", storage.ErrFailed, *cause)
	}
	return nil
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
		if s.failed() == nil && s.disk.ready() == nil {
			err = errors.Join(err, s.guard(func() error { return s.settler.table.writeRecords(s.db) }))
			s.files.sound = err == nil
		}
	}
	if err = errors.Join(err, s.opened.Close()); err != nil {
		return fmt.Errorf("close store %s: %w", s.dir, err)
	}
	return nil
}
