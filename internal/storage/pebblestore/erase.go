package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How a device is erased
//
// One batch removes a device's readings for readers. Their bytes are in more places:
// tables, the log, files of old logs kept for reuse, and the key bounds of tables in the
// manifest. So an erasure has these steps:
//
//  1. The intent is written, durably. From here on the erasure will be finished, by
//     the next start if necessary.
//  2. One batch deletes the ranges of the device's keys. The intent is updated before
//     the next group is admitted: later readings of the device are new and stay.
//  3. Wait for readers of older snapshots: compactions would keep what these see.
//  4. The ranges are compacted down to the last level. A deletion at each end of a
//     range makes every table between take part, also one to which a background
//     compaction has already moved the range deletion together with what it deletes.
//     Wait again for readers of snapshots older than these deletions, for which a
//     compaction would keep the deletions.
//  5. Verify that no table has a key of the device, or the range deletion.
//  6. The tree is closed and reopened, while Append and readers wait. That makes a new
//     log and a new manifest. The old ones, and tables that nothing refers to, are
//     removed.
//  7. The erasure is recorded by the caller's function, and the intent is removed. After
//     a crash between the two it is recorded twice, but it is never left unrecorded.
//
// Blocks freed by the file system, and earlier backups, may still hold the bytes.
// TestErase searches the files for the bytes; TestEraseCrash crashes at every step.

// Erase implements [storage.Remover]. It removes all readings of a device permanently:
// when it returns nil, none of the store's files contains their bytes. Readings of the
// device that arrive after the removal has begun are new, and stay. A device without
// readings is erased if a file may hold bytes of it: Expire leaves bytes in files.
//
// After an error that wraps storage.ErrUnfinished the erasure has begun. Erasing the
// device again finishes it; otherwise the next start does. After any other error nothing
// was removed: the error wraps storage.ErrNotFound, storage.ErrBusy, storage.ErrDiskLow,
// storage.ErrFailed, storage.ErrClosed or ErrReadOnly. Erase first finishes an earlier
// unfinished erasure, and passes it to Options.OnErased.
func (s *Store) Erase(device vitals.Name) (storage.Erasure, error) {
	return s.EraseRecorded(device, func(storage.Erasure) error { return nil })
}

// EraseRecorded is [Store.Erase] for a caller that keeps a record. It calls record after
// the bytes are removed and before the erasure counts as finished. If record returns an
// error, the erasure is unfinished, and is recorded again when it is finished. Close waits
// for record, which must not call the store.
func (s *Store) EraseRecorded(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
	e, err := s.erase(device, record)
	if err != nil {
		return e, fmt.Errorf("erase device %s: %w", device, err)
	}
	return e, nil
}

func (s *Store) erase(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
	if err := s.ready(); err != nil {
		return storage.Erasure{}, err
	}
	done, err := s.maintenance.begin("an erasure")
	if err != nil {
		return storage.Erasure{}, err
	}
	defer done()
	in, err := s.files.readIntent()
	if err != nil {
		return storage.Erasure{}, err
	}
	if in != nil {
		if in.Device == device && !s.knows(device) {
			err := s.finish(in, record)
			return in.Erasure, err
		}
		if err := s.finish(in, s.options.OnErased); err != nil {
			return storage.Erasure{}, err
		}
	}
	if !s.knows(device) {
		// Expire may have removed its readings, but not their bytes.
		held, err := s.mayHold(device)
		if err != nil {
			return storage.Erasure{}, err
		}
		if !held {
			return storage.Erasure{}, storage.ErrNotFound
		}
	}
	if err := s.checkSpace(device); err != nil {
		return storage.Erasure{}, err
	}
	in = &intent{step: stepRemove, Erasure: storage.Erasure{Device: device}}
	if err := s.files.writeIntent(in); err != nil {
		if undone := s.files.removeIntent(); undone != nil && !errors.Is(undone, fs.ErrNotExist) {
			// The intent may exist. Then the next start would remove readings that are
			// acknowledged from now on.
			return storage.Erasure{}, fmt.Errorf("%w: %w", storage.ErrUnfinished, s.failErasure(err))
		}
		return storage.Erasure{}, err
	}
	err = s.finish(in, record)
	return in.Erasure, err
}

// knows reports whether a device has readings.
func (s *Store) knows(device vitals.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.settler.table.byName[device]
	return ok
}

// failErasure fails the store because the stored intent may be wrong.
func (s *Store) failErasure(err error) error {
	s.alarm.raise(fmt.Sprintf("the progress of an erasure cannot be stored: %v", err))
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// checkSpace returns an error that wraps storage.ErrDiskLow if there is not enough space to
// rewrite the tables that hold a device.
func (s *Store) checkSpace(device vitals.Name) error {
	free := s.disk.freeBytes.Load()
	if free == 0 { // unknown
		return nil
	}
	need, err := s.eraseBytes(deviceRanges(&device))
	if err != nil {
		return err
	}
	if need += 2*uint64(s.options.MemTableBytes) + smallFilesBytes; free < need {
		return fmt.Errorf("%w: %d bytes are free, and the erasure may take %d", storage.ErrDiskLow, free, need)
	}
	return nil
}

// finish does the remaining steps of an erasure.
func (s *Store) finish(in *intent, record func(storage.Erasure) error) error {
	if in.step == stepRemove {
		if err := s.remove(in); err != nil {
			return fmt.Errorf("%w: remove readings: %w", storage.ErrUnfinished, err)
		}
	}
	if err := s.purge(in.Device); err != nil {
		return fmt.Errorf("%w: the readings are removed; purge their bytes: %w", storage.ErrUnfinished, err)
	}
	if err := record(in.Erasure); err != nil {
		return fmt.Errorf("%w: the readings and their bytes are removed; record that: %w", storage.ErrUnfinished, err)
	}
	if err := s.files.removeIntent(); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrUnfinished, err)
	}
	return nil
}

// remove deletes the device's keys, and updates the intent.
func (s *Store) remove(in *intent) error {
	var before *pebble.Snapshot
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.alarm.reportedErr(); err != nil {
			return err
		}
		before = s.db.NewSnapshot()
		if err := s.removeLocked(&in.Device); err != nil {
			return err
		}
		in.step = stepPurge
		if err := s.files.writeIntent(in); err != nil {
			// The next start would remove readings that are acknowledged from now on.
			return s.failErasure(err)
		}
		return nil
	}()
	if before == nil {
		return err
	}
	if err == nil {
		in.Readings, err = s.count(before, &in.Device)
	}
	if err = errors.Join(err, before.Close()); err != nil {
		return err
	}
	return s.files.writeIntent(in)
}

// removeLocked deletes a device's keys and removes it from the table.
func (s *Store) removeLocked(device *vitals.Name) error {
	b := s.db.NewBatch()
	for _, r := range deviceRanges(device) {
		if err := b.DeleteRange(r.start, r.end, nil); err != nil {
			return joinClose(err, b)
		}
	}
	if err := s.commitLocked(b); err != nil {
		return err
	}
	if _, ok := s.settler.table.byName[*device]; ok {
		s.settler.table.remove(device)
	}
	s.publishDeviceCount()
	return nil
}

// commitLocked commits a batch that is not Append's, publishes a snapshot, and closes the
// batch.
func (s *Store) commitLocked(b *pebble.Batch) error {
	if err := s.commit(b); err != nil {
		return err
	}
	s.views.publish(s.db.NewSnapshot())
	return b.Close()
}

// count returns the number of a device's readings in a snapshot.
func (s *Store) count(snap *pebble.Snapshot, device *vitals.Name) (n int64, err error) {
	r := deviceRanges(device)[0]
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: r.start, UpperBound: r.end})
	if err != nil {
		return 0, corrupt(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%ctxEvery == 0 && s.maintenance.ctx.Err() != nil {
			return 0, joinClose(storage.ErrClosed, it)
		}
	}
	return n, corrupt(it.Close())
}

// maxPurges bounds how often the ranges are compacted. Once is enough unless a table
// was moved to the next level without being rewritten.
const maxPurges = 4

// purge removes the bytes of deleted keys from the store's files.
func (s *Store) purge(device vitals.Name) error {
	if err := s.awaitReaders(); err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err := s.compactDevice(&device); err != nil {
			return err
		}
		err := s.awaitErased(&device)
		if err == nil {
			break
		}
		if n == maxPurges || !errors.Is(err, errNotErased) {
			return err
		}
	}
	return s.renewTree()
}

// elisionFor bounds the wait for a compaction that Pebble starts in the background.
const elisionFor = 500 * time.Millisecond

// awaitErased waits until verifyErased finds the device erased, at most for elisionFor.
//
// If a level has nothing but a table of deletions, the table stays until Pebble drops it
// in the background. Another compaction at the same time would only replace it by
// another such table.
func (s *Store) awaitErased(device *vitals.Name) (err error) {
	ctx, cancel := context.WithTimeout(s.maintenance.ctx, elisionFor)
	defer cancel()
	polled := poll(ctx, func() (bool, error) {
		err = s.verifyErased(device)
		return !errors.Is(err, errNotErased), nil
	})
	if polled != nil && s.maintenance.ctx.Err() != nil {
		return storage.ErrClosed
	}
	return err
}

// awaitReaders publishes a new snapshot and waits for the readers of older ones.
func (s *Store) awaitReaders() error {
	s.mu.Lock()
	if err := s.alarm.reportedErr(); err != nil {
		s.mu.Unlock()
		return err
	}
	older := s.views.turn()
	s.views.publish(s.db.NewSnapshot())
	s.mu.Unlock()
	older.Wait()
	return nil
}

// compactDevice compacts the ranges of a device down to the last level.
func (s *Store) compactDevice(device *vitals.Name) error {
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.ready(); err != nil {
			return err
		}
		b := s.db.NewBatch()
		for _, r := range deviceRanges(device) {
			for _, key := range [][]byte{r.before, r.after} {
				if err := b.Delete(key, nil); err != nil {
					return joinClose(err, b)
				}
			}
		}
		return s.commitLocked(b)
	}()
	if err != nil {
		return err
	}
	if err := s.awaitReaders(); err != nil {
		return err
	}
	if err := s.flush(s.maintenance.ctx); err != nil {
		return err
	}
	for _, r := range deviceRanges(device) {
		if err := s.db.Compact(s.maintenance.ctx, r.before, r.after, false); err != nil {
			return corrupt(err)
		}
	}
	return nil
}

// A keyRange is the range of keys from start, inclusive, to end, exclusive. before and
// after are keys that enclose the range and at which nothing is ever stored.
type keyRange struct{ before, start, end, after []byte }

// deviceRanges returns the ranges of a device's readings and of its record.
func deviceRanges(device *vitals.Name) [2]keyRange {
	readings := append(device.AppendTo(nil), 0)
	record := appendRecordKey(nil, device)
	// A key that sorts after all possible previous names and is not a name itself.
	previous := append(slices.Clone(record), 0xff)
	previous[len(record)-1]--
	after := append(slices.Clone(record), 0)
	return [2]keyRange{
		{
			before: readings, // without a time
			start:  readings,
			end:    append(device.AppendTo(nil), 1),
			after:  append(slices.Clone(readings), "\xff\xff\xff\xff\xff\xff\xff\xff"...), // a negative time
		},
		{before: previous, start: record, end: after, after: after},
	}
}

// renewTree closes and reopens the tree, which makes a new log and a new manifest, and
// removes all files that are no longer needed.
func (s *Store) renewTree() error {
	// Flush first: the shorter the log, the shorter Append waits.
	if err := s.flush(s.maintenance.ctx); err != nil {
		return err
	}
	s.awaitIdle()
	tables, err := s.reopen()
	if err != nil {
		return err
	}
	return s.awaitRemoval(tables)
}

// idleFor bounds the wait for a moment without compactions. Closing the tree waits for
// running compactions, and Append waits for the tree.
const idleFor = 2 * time.Second

func (s *Store) awaitIdle() {
	ctx, cancel := context.WithTimeout(s.maintenance.ctx, idleFor)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { return s.db.Metrics().Compact.NumInProgress == 0, nil })
}

// reopen closes and reopens the tree. It returns the tables that are no longer referred
// to, which Pebble removes.
func (s *Store) reopen() (obsolete []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrFailed) {
			s.alarm.raise(fmt.Sprintf("it cannot be reopened after an erasure: %v", err))
			err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
		}
	}()
	s.views.pause()
	defer func() { s.views.resume() }()
	tree := s.opened[s.treeAt:]
	s.opened = s.opened[:s.treeAt]
	err = errors.Join(s.settler.closeBatch(), s.guard(tree.Close))
	if s.renewed != nil {
		close(s.renewed)
		s.renewed = nil
	}
	if err != nil {
		return nil, err
	}
	before, err := s.files.fs.List(s.path)
	if err != nil {
		return nil, err
	}
	o := s.options
	o.MinFreeBytes = -1 // there is almost nothing to replay
	if s.db, err = openPebble(s.files, o, s.alarm, s.disk, &s.troubles, &s.opened); err != nil {
		return nil, err
	}
	s.settler.db, s.settler.batch = s.db, newBatch(s.db)
	s.views.publish(s.db.NewSnapshot())
	obsolete, err = s.removeOld(before)
	s.options.Log.Info("store reopened after an erasure", "dir", s.dir, "writes_waited", time.Since(begun))
	return obsolete, err
}

// removeOld removes old logs and manifests, and returns the tables that the tree does not
// refer to. names are the files that existed before the tree was reopened.
//
// The readings of the logs are in tables now; see Replayed in the package comment.
func (s *Store) removeOld(names []string) (tables []string, err error) {
	live, err := s.liveTables()
	if err != nil {
		return nil, err
	}
	desc, err := pebble.Peek(s.path, s.files.fs)
	if err != nil {
		return nil, err
	}
	current := s.files.fs.PathBase(desc.ManifestFilename)
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, tableSuffix):
			if !live[name] {
				tables = append(tables, name)
			}
		case strings.HasSuffix(name, logSuffix), strings.HasPrefix(name, manifestPrefix) && name != current:
			err := s.files.fs.Remove(s.files.fs.PathJoin(s.path, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble removes some of them too
				return nil, err
			}
		}
	}
	return tables, syncDir(s.files.fs, s.path)
}

// liveTables returns the names of the tables that the tree refers to.
func (s *Store) liveTables() (map[string]bool, error) {
	files, err := tableFiles(s.db)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, f := range files {
		live[f.name] = true
	}
	return live, nil
}

// awaitRemoval waits until Pebble has removed tables in the background.
func (s *Store) awaitRemoval(tables []string) error {
	err := poll(s.maintenance.ctx, func() (bool, error) {
		names, err := s.files.fs.List(s.path)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(tables, func(t string) bool { return slices.Contains(names, t) }), nil
	})
	if err != nil {
		return fmt.Errorf("remove old tables: %w", err)
	}
	return syncDir(s.files.fs, s.path)
}

// poll calls cond periodically until it returns true or an error, or until ctx ends.
func poll(ctx context.Context, cond func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
