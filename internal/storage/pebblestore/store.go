package pebblestore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/verify"
)

// A Store is an open directory. It implements [storage.Store].
//
// # Lock order
//
// Each of these may be locked while those before it are held, and none before it: an operation of
// maintenance, a sweep of package purge, segments.sealing, engine.mu, committer.committing. While any of
// them is held, these may be locked, of which no two are held at once: the mutexes of maintenance itself, of
// views, of a window, of the dictionary, and of the activity. A failure is reported with any of them held,
// so Options.OnFatal may call only what it names.
type Store struct {
	*engine   // the tree: what is committed, what readers see, and what the next group is settled with
	*segments // windows are sealed to segments, and small segments merged: Tidy
	*reader   // Latest, Scan, Devices, WalkDevices
	*removal  // Erase, EraseAssignment, Expire
	*subjects // Assign, EndAssignment, Assignments

	*changeLog // Position, VisitEvents, VisitChanged

	scrubber  *verify.Scrubber
	recovered bool   // the store existed and was not closed cleanly
	becomes   string // the name that Publish gives it, unless it is empty
}

var (
	_ storage.Store   = (*Store)(nil)
	_ storage.Remover = (*Store)(nil)
	_ storage.Changes = (*Store)(nil)
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
	adds, err := s.settler.write(s.nextGroup)
	if err != nil {
		s.alarm.rejectGroups(err)
		return fmt.Errorf("append group: %w: %w: %w", storage.ErrNotWritten, storage.ErrFailed, err)
	}
	if !s.settler.batch.Empty() {
		size := s.settler.batch.Len()
		start := time.Now()
		if err := s.commit(s.settler.batch); err != nil {
			return fmt.Errorf("append group: %w", err)
		}
		s.counters.syncs.Add(1)
		s.counters.batchBytes.Add(int64(size))
		s.counters.syncNanos.Add(int64(time.Since(start)))
		if adds {
			s.nextGroup++
			s.settler.fill()
		}
		s.publish()
		s.sealIfFull()
	}
	s.counters.lookups.Add(s.settler.lookups)
	if err := s.settler.unreadable; err != nil {
		s.options.Log.Error("late readings were rejected: the records of their times cannot be read", "dir", s.dir,
			"error", err)
		s.troubles.degrade(err)
	}
	s.publishDeviceCount()
	return nil
}

// admit returns an error if a group cannot be accepted. It waits while the window has no
// room for it.
func (s *Store) admit(group []*storage.Entry) error {
	if err := s.awaitRoom(); err != nil {
		return err
	}
	if slices.ContainsFunc(group, func(e *storage.Entry) bool { return e.Claim != nil && e.Claim.Assign }) {
		s.assigned.Store(true)
	}
	return storage.CheckGroup(group, s.signs)
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
