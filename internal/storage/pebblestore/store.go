package pebblestore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/verify"
)

// A Store is an open directory. It implements [storage.Store].
//
// # Lock order
//
// Each of these may be locked while those before it are held, and none before it: an operation of
// maintenance, a sweep of package purge, sealing, mu, committing. While any of them is held, these may be locked, of which
// no two are held at once: the mutexes of maintenance itself, of views, of a window, of the dictionary, and
// of the activity. A failure is reported with any of them held, so Options.OnFatal may call only what it
// names.
type Store struct {
	dir      string // as given to Open, for messages
	becomes  string // the name that Publish gives it; "": none
	path     string // absolute, if the file system has absolute paths
	files    *datadir.Dir
	db       *pebble.DB
	readOnly bool
	views    views
	disk     *space.Watch
	alarm    *alarm
	counters counters
	troubles troubles

	// recovered is true if the store existed and was not closed cleanly.
	recovered bool

	maintenance *maintenance // nil when read-only
	scrubber    *verify.Scrubber
	remover     *purge.Remover // nil when read-only

	options Options

	opened closers // everything that Close closes, in reverse order
	treeAt int     // index in opened of the tree's first closer

	// mu serializes Append, Close, and the writes of Erase and Expire. It guards the
	// following fields.
	mu        sync.Mutex
	settler   *settler // nil if read-only
	nextGroup uint64
	renewed   chan struct{} // closed when the tree has been closed for a reopen; nil: nothing waits for it

	// sealing is held while segments are changed: by the sealer, Tidy, Erase and Expire, and
	// while the tree must not change. It is locked before mu. See seal.go.
	sealing  sync.Mutex
	readings atomic.Int64 // in segments; changed with sealing held

	// notSealed is the error of a segment since the last call of sealAll, for which rows may
	// have stayed in groups. sealing guards it.
	notSealed error

	progress sync.Cond // of mu: signaled when a window is sealed, in part or as a whole

	gateways *dictionary

	rowBuffers sync.Pool // of *rowBuffers

	// committing is held during each commit. A crash may leave any part of what was not
	// synced, and the start takes a record before a later one for damaged: so at most one
	// is being written.
	committing sync.Mutex

	// handed is a batch of the sealer for the next commit to take along, or nil. See
	// commitAlong.
	handed atomic.Pointer[handedBatch]

	stuck atomic.Bool // do not call Pebble again

	closed atomic.Bool

	deviceCount atomic.Int64 // number of devices in the settler's table
}

var (
	_ storage.Store   = (*Store)(nil)
	_ storage.Remover = (*Store)(nil)
)

// Append implements [storage.Store].
//
// After a failed write it returns storage.ErrFailed, and Options.OnFatal has been called.
// A reading whose look-up finds a damaged or unreadable file is Unreadable.
func (s *Store) Append(group []*storage.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(group); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	s.settler.reset()
	s.settler.settle(group)
	adds, err := s.settler.write(group, s.nextGroup)
	if err != nil {
		s.alarm.rejectGroups(err)
		return fmt.Errorf("append group: %w: %w: %w", storage.ErrNotWritten, storage.ErrFailed, err)
	}
	if adds {
		size := s.settler.batch.Len()
		start := time.Now()
		if err := s.commit(s.settler.batch); err != nil {
			return fmt.Errorf("append group: %w", err)
		}
		s.counters.syncs.Add(1)
		s.counters.batchBytes.Add(int64(size))
		s.counters.syncNanos.Add(int64(time.Since(start)))
		s.nextGroup++
		s.settler.fill(group)
		s.publish()
		s.sealIfFull()
	}
	s.counters.lookups.Add(s.settler.lookups)
	if err := s.settler.unreadable; err != nil {
		s.options.Log.Error("late readings were rejected: the records of their times cannot be read", "dir", s.dir, "error", err)
		s.troubles.degrade(err)
	}
	s.publishDeviceCount()
	return nil
}

// publish makes what is stored now visible to readers. s.mu must be held.
func (s *Store) publish() {
	s.views.publish(s.db.NewSnapshot(), s.settler.active, s.settler.frozen)
}

// publishDeviceCount publishes the number of devices in the table. s.mu must be held.
func (s *Store) publishDeviceCount() { s.deviceCount.Store(int64(s.settler.table.Len())) }

// admit returns an error if a group cannot be accepted. It waits while the window has no
// room for it.
func (s *Store) admit(group []*storage.Entry) error {
	if err := s.awaitRoom(); err != nil {
		return err
	}
	return storage.CheckGroup(group)
}

// commit makes b durable, together with a batch that the sealer has handed over. s.mu must be held.
func (s *Store) commit(b *pebble.Batch) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	h := s.handed.Swap(nil)
	if h == nil {
		return s.write(b, nil)
	}
	h.err = storage.ErrFailed // if Pebble panics
	h.err = s.write(b, h.batch)
	return h.err
}

// commitAndPublish commits a batch that is not Append's, publishes a view, and closes the batch. s.mu
// must be held.
func (s *Store) commitAndPublish(b *pebble.Batch) error {
	if err := s.commit(b); err != nil {
		return err
	}
	s.publish()
	return b.Close()
}

// A handedBatch is a batch that the sealer has handed over.
type handedBatch struct {
	batch *pebble.Batch
	err   error // of the commit; set before Store.committing is unlocked
}

// commitAlong makes b durable with the next commit, so that groups do not wait for syncs of the
// sealer. If there is no commit to wait for, it commits b alone. s.mu must not be held.
func (s *Store) commitAlong(b *pebble.Batch) error {
	h := &handedBatch{batch: b}
	s.handed.Store(h)
	s.mu.Lock() // a running Append takes b along, or is already past its commit
	taken := s.handed.Load() != h
	s.mu.Unlock()
	if taken {
		return h.err
	}
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.handed.CompareAndSwap(h, nil) {
		return s.write(b, nil)
	}
	return h.err
}

// write adds what is in along, if it is not nil, to b, and makes b durable. s.committing must be
// held. After an error, Pebble's state in memory may differ from the disk's, so the store fails too.
//
// Batch.Commit would pass an error of the log to Logger.Fatalf, and return nil. Pebble declares
// ApplyNoSyncWait experimental: it does the first half of Commit, and SyncWait the second.
func (s *Store) write(b, along *pebble.Batch) error {
	err := s.guard(func() error {
		if along != nil {
			if err := b.Apply(along, nil); err != nil {
				return err
			}
		}
		if err := s.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
			return err
		}
		return b.SyncWait()
	})
	if err != nil {
		s.alarm.raise(fmt.Sprintf("the log cannot be written: %v", err))
		return s.alarm.reportedErr()
	}
	return nil
}

// guard runs call, which calls Pebble. If Pebble panics, which is a bug, it may never
// release its locks, so the store fails.
func (s *Store) guard(call func() error) error {
	defer func() {
		if p := recover(); p != nil {
			s.stuck.Store(true)
			s.alarm.raise(fmt.Sprintf("panic: %v", p))
			panic(p)
		}
	}()
	return call()
}

// Ready returns nil if the store would accept a group now, and otherwise an error that
// wraps storage.ErrClosed, storage.ErrFailed, storage.ErrDiskLow or ErrReadOnly. It does
// not block.
func (s *Store) Ready() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if s.readOnly {
		return ErrReadOnly
	}
	if err := s.alarm.err(); err != nil {
		return err
	}
	return s.disk.Ready()
}

// Degraded returns the first damage of stored files found since Open, or nil. The store
// still accepts readings, except those that must be compared with damaged data.
func (s *Store) Degraded() error {
	if err := s.troubles.degraded.Load(); err != nil {
		return *err
	}
	return nil
}

// ready is like Ready, for a caller that returns the error: see alarm.reportedErr.
func (s *Store) ready() error {
	err := s.Ready()
	if errors.Is(err, storage.ErrFailed) {
		return s.alarm.reportedErr()
	}
	return err
}

// Close implements [storage.Store]. It seals nothing: the next Open reads
// the windows from their groups. After a failure it may return an error, but it always
// releases the directory, unless Pebble has panicked.
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
	s.progress.Broadcast() // what Append waits for may not be sealed any more
	if s.stuck.Load() {
		return fmt.Errorf("close store %s: %w: the process must exit first", s.dir, storage.ErrFailed)
	}
	s.views.close()
	var err error
	if s.settler != nil {
		err = s.settler.closeBatch()
		s.files.Clean = err == nil && s.alarm.reportedErr() == nil && s.disk.Ready() == nil
	}
	if err = errors.Join(err, s.opened.Close()); err != nil {
		return fmt.Errorf("close store %s: %w", s.dir, err)
	}
	return nil
}
