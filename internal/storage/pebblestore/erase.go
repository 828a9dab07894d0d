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
// To remove readings from what readers see takes one batch. Its bytes are in more
// places: tables, the log, files of logs that are kept to be used again, and the key
// bounds of tables in the manifest. So an erasure goes on:
//
//  1. The intent is written, durably. From here on the erasure will be finished, by
//     the next start if need be.
//  2. One batch deletes the ranges of the device's keys. The intent says so before
//     another group is let in: what comes later is new and stays.
//  3. Readers of older snapshots are waited for: what they see would be kept.
//  4. The ranges are compacted down to the last level. A deletion at each end of them
//     makes sure that every table between takes part, also one that a compaction in
//     the background has already brought down together with what it deletes. Readers
//     of snapshots older than these deletions are waited for, too: for them a compaction
//     would keep the deletions.
//  5. No table has a key of the device any more, nor the deletion: this is looked at.
//  6. The tree is closed and opened again, while Append and readers wait. That makes a
//     new log and a new manifest. The old ones, and tables that nothing refers to, are
//     removed.
//  7. The erasure is recorded, as the caller wants it, and the intent is removed. A crash
//     between the two has it recorded twice, and never not at all.
//
// Blocks that the file system has freed are its own matter, and backups that were made
// before are out of reach. TestErase looks for the bytes; TestEraseCrash stops at
// every step.

// Erase implements [storage.Remover]. It removes all readings of a device for good: when it returns nil, their bytes
// are in none of the store's files. Readings of the device that arrive once it has
// begun to remove are new, and stay. A device that the store does not know is erased
// when a file may hold something of it: Expire leaves bytes in files.
//
// After an error that wraps storage.ErrUnfinished the erasure has begun. Erasing the
// device again finishes it, or else the next start does. After any other nothing was
// removed: it wraps storage.ErrNotFound, storage.ErrBusy, storage.ErrDiskLow,
// storage.ErrFailed, storage.ErrClosed or ErrReadOnly. An erasure that was left unfinished before is
// finished first, and told to Options.Erased.
func (s *Store) Erase(device vitals.Name) (storage.Erasure, error) {
	return s.EraseRecorded(device, func(storage.Erasure) error { return nil })
}

// EraseRecorded is [Store.Erase] for a caller who keeps a record. It calls record when
// the bytes are gone, before the erasure counts as finished, and Close waits for it.
// When record fails, the erasure is unfinished, and is told to whoever finishes it. record
// must not call the store.
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
		if err := s.finish(in, s.options.Erased); err != nil {
			return storage.Erasure{}, err
		}
	}
	if !s.knows(device) {
		// Expire may have removed its readings from what readers see, and no more.
		held, err := s.mayHold(device)
		if err != nil {
			return storage.Erasure{}, err
		}
		if !held {
			return storage.Erasure{}, storage.ErrNotFound
		}
	}
	if err := s.roomFor(device); err != nil {
		return storage.Erasure{}, err
	}
	in = &intent{step: stepRemove, Erasure: storage.Erasure{Device: device}}
	if err := s.files.writeIntent(in); err != nil {
		if undone := s.files.removeIntent(); undone != nil && !errors.Is(undone, fs.ErrNotExist) {
			// It may be there. The next start would remove what is acknowledged
			// from now on.
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

// failErasure stops a store whose intent says something else than it should.
func (s *Store) failErasure(err error) error {
	s.alarm.sound(fmt.Sprintf("an erasure cannot be noted: %v", err))
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// roomFor returns an error that wraps storage.ErrDiskLow when the tables that hold a
// device cannot be written anew for want of space.
func (s *Store) roomFor(device vitals.Name) error {
	free := s.disk.freeBytes.Load()
	if free == 0 { // nobody has looked, or it cannot be told
		return nil
	}
	need, err := s.roomToErase(deviceRanges(&device))
	if err != nil {
		return err
	}
	if need += 2*uint64(s.options.MemTableBytes) + smallFilesBytes; free < need {
		return fmt.Errorf("%w: %d bytes are free, and to erase may take %d", storage.ErrDiskLow, free, need)
	}
	return nil
}

// finish does what is left of an erasure.
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

// remove deletes the device's keys, and has the intent say so.
func (s *Store) remove(in *intent) error {
	var before *pebble.Snapshot
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.alarm.failure(); err != nil {
			return err
		}
		before = s.db.NewSnapshot()
		if err := s.removeLocked(&in.Device); err != nil {
			return err
		}
		in.step = stepPurge
		if err := s.files.writeIntent(in); err != nil {
			// The next start would remove what is acknowledged from now on.
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

// removeLocked deletes a device's keys and takes it from the table.
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
	s.noteDevices()
	return nil
}

// commitLocked commits a batch that is none of Append's, closes it, and shows what it
// has done.
func (s *Store) commitLocked(b *pebble.Batch) error {
	if err := s.commit(b); err != nil {
		return err
	}
	s.views.publish(s.db.NewSnapshot())
	return b.Close()
}

// count returns how many readings of a device a snapshot shows.
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

// maxPurges bounds how often the ranges are compacted. The first time is enough
// unless a table was moved from level to level as it is.
const maxPurges = 4

// purge brings the bytes of deleted keys off the disk.
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

// elisionFor bounds the wait for a compaction that Pebble makes by itself.
const elisionFor = 500 * time.Millisecond

// awaitErased verifies that a device is erased, until it is or for elisionFor.
//
// In a level with nothing else in it, a table of deletions alone stays as it is until
// Pebble finds it in the background and drops it. To compact again beside that would
// put the next such table in its place, and so on.
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

// awaitReaders waits for those that read older snapshots than that of now.
func (s *Store) awaitReaders() error {
	s.mu.Lock()
	if err := s.alarm.failure(); err != nil {
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
			for _, key := range [][]byte{r.before, r.behind} {
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
		if err := s.db.Compact(s.maintenance.ctx, r.before, r.behind, false); err != nil {
			return corrupt(err)
		}
	}
	return nil
}

// A keyRange holds keys from start to in front of end. before and behind are keys
// that nothing is ever stored at, with the whole range between them.
type keyRange struct{ before, start, end, behind []byte }

// deviceRanges returns the ranges of a device's readings and of its record.
func deviceRanges(device *vitals.Name) [2]keyRange {
	readings := append(device.AppendTo(nil), 0)
	record := appendRecordKey(nil, device)
	// The name that ends with the byte before, and then no name at all.
	previous := append(slices.Clone(record), 0xff)
	previous[len(record)-1]--
	behind := append(slices.Clone(record), 0)
	return [2]keyRange{
		{
			before: readings, // a time is missing
			start:  readings,
			end:    append(device.AppendTo(nil), 1),
			behind: append(slices.Clone(readings), "\xff\xff\xff\xff\xff\xff\xff\xff"...), // a negative time
		},
		{before: previous, start: record, end: behind, behind: behind},
	}
}

// renewTree closes the tree and opens it again, which makes a new log and a new
// manifest, and removes all files that are not needed any more.
func (s *Store) renewTree() error {
	// The less log there is, the shorter Append waits.
	if err := s.flush(s.maintenance.ctx); err != nil {
		return err
	}
	s.awaitQuiet()
	tables, err := s.reopen()
	if err != nil {
		return err
	}
	return s.awaitRemoval(tables)
}

// quietFor bounds the wait for a moment without compactions: closing waits for those
// that run, and Append waits for that.
const quietFor = 2 * time.Second

func (s *Store) awaitQuiet() {
	ctx, cancel := context.WithTimeout(s.maintenance.ctx, quietFor)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { return s.db.Metrics().Compact.NumInProgress == 0, nil })
}

// reopen closes the tree and opens it again. It returns the tables that nothing
// refers to any more, which Pebble removes.
func (s *Store) reopen() (obsolete []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrFailed) {
			s.alarm.sound(fmt.Sprintf("it cannot be opened again after an erasure: %v", err))
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
	o.MinFreeBytes = -1 // there is next to nothing to replay
	if s.db, err = openPebble(s.files, o, s.alarm, s.disk, &s.troubles, &s.opened); err != nil {
		return nil, err
	}
	s.settler.db, s.settler.batch = s.db, newBatch(s.db)
	s.views.publish(s.db.NewSnapshot())
	obsolete, err = s.removeOld(before)
	s.options.Log.Info("store opened again after an erasure", "dir", s.dir, "writes_waited", time.Since(begun))
	return obsolete, err
}

// removeOld removes the logs and manifests among files that were there when the tree
// was opened, and returns the tables that it does not refer to.
//
// What the logs held is in tables by now; see Replayed in the package comment.
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

// awaitRemoval waits until tables that Pebble removes in the background are gone.
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

// poll asks for a condition until it is met or ctx ends.
func poll(ctx context.Context, met func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := met()
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
