package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
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

// Erase implements [storage.Remover]. It removes all readings and assignments of a device
// permanently: when it returns nil, none of the store's files contains their bytes. Those
// that arrive after the removal has begun are new, and stay. A device without readings is
// erased if a file may hold bytes of it: Expire leaves bytes in files, and assignments.
//
// After an error that wraps storage.ErrUnfinished the erasure has begun. Erasing the
// device again finishes it; otherwise the next start does. After any other error nothing
// was removed: the error wraps storage.ErrNotFound, storage.ErrBusy, storage.ErrDiskLow,
// storage.ErrFailed, storage.ErrClosed or ErrReadOnly. Erase first finishes an earlier
// unfinished erasure, and passes it to Options.OnErased; it gives that one up if only damage keeps
// it from being finished.
//
// Damaged readings of the device are removed, too, and not counted. If the tables that hold its
// bytes have damaged readings of other devices, the error wraps storage.ErrUnfinished and
// storage.ErrCorrupt.
func (s *Store) Erase(device vitals.Name) (storage.Erasure, error) {
	return s.EraseRecorded(device, func(storage.Erasure) error { return nil })
}

// EraseRecorded is [Store.Erase] for a caller that keeps a record. It calls record after
// the bytes are removed and before the erasure counts as finished. If record returns an
// error, the erasure is unfinished, and is recorded again when it is finished. Close waits
// for record, which must not call the store.
func (s *Store) EraseRecorded(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
	e, err := s.erase(record, func(in *intent) (bool, error) {
		held, err := s.holds(device)
		return !in.ofAssignment() && in.Device == device && !held, err
	}, func() (storage.Erasure, error) {
		return storage.Erasure{Device: device}, s.findDevice(device)
	})
	if err != nil {
		return e, fmt.Errorf("erase device %s: %w", device, err)
	}
	return e, nil
}

// findDevice returns storage.ErrNotFound if no file holds bytes of a device.
func (s *Store) findDevice(device vitals.Name) error {
	if held, err := s.holds(device); held || err != nil {
		return err
	}
	// Expire may have removed its readings, but not their bytes.
	if err := s.sweepIfDue(s.maintenance.ctx); err != nil {
		return err
	}
	held, err := s.mayHold(device)
	if err == nil && !held {
		err = storage.ErrNotFound
	}
	return err
}

// erase erases what find returns. It first finishes an unfinished erasure; if that is the
// requested one, as requested reports, there is nothing else to do.
func (s *Store) erase(record func(storage.Erasure) error, requested func(*intent) (bool, error), find func() (storage.Erasure, error)) (storage.Erasure, error) {
	if err := s.ready(); err != nil {
		return storage.Erasure{}, err
	}
	done, err := s.maintenance.begin("an erasure")
	if err != nil {
		return storage.Erasure{}, err
	}
	defer done()
	in, err := readIntent(s.files)
	if err != nil {
		return storage.Erasure{}, err
	}
	if in != nil {
		same, err := requested(in)
		if err != nil {
			return storage.Erasure{}, err
		}
		if same {
			err := s.finish(in, record)
			return in.Erasure, err
		}
		err = s.finish(in, s.options.OnErased)
		if err != nil && (in.step != stepPurge || !errors.Is(err, storage.ErrCorrupt) || s.alarm.err() != nil) {
			return storage.Erasure{}, err
		}
		if err != nil {
			// Its readings are removed. Damage must not keep those of other devices.
			s.options.Log.Error("an erasure is given up for another one, because a damaged file may hold bytes of the device", "dir", s.dir, "device", in.Device, "error", err)
		}
	}
	e, err := find()
	if err != nil {
		return storage.Erasure{}, err
	}
	if err := s.checkSpace(e.Device); err != nil {
		return storage.Erasure{}, err
	}
	in = &intent{step: stepRemove, Erasure: e}
	if err := in.write(s.files.FS, s.path); err != nil {
		return storage.Erasure{}, s.undo(err)
	}
	if err = s.finish(in, record); errors.Is(err, errNotRemoved) && s.alarm.err() == nil {
		return storage.Erasure{}, s.undo(err)
	}
	return in.Erasure, err
}

// undo removes the intent of an erasure that has removed nothing because of an error, which it
// returns.
func (s *Store) undo(err error) error {
	if undone := removeIntent(s.files); undone != nil && !errors.Is(undone, fs.ErrNotExist) {
		// The intent may exist. Then the next start would remove readings that are
		// acknowledged from now on.
		return fmt.Errorf("%w: %w", storage.ErrUnfinished, s.failErasure(err))
	}
	return err
}

// knows reports whether a device has readings.
func (s *Store) knows(device vitals.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.settler.table.Find(&device)
	return ok
}

// holds reports whether a device has readings or assignments.
func (s *Store) holds(device vitals.Name) (bool, error) {
	if s.knows(device) {
		return true, nil
	}
	return s.isAssigned(&device)
}

// isAssigned reports whether a device has assignments.
func (s *Store) isAssigned(device *vitals.Name) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alarm.reportedErr(); err != nil {
		return false, err
	}
	r := purge.AssignRange(device)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: r.Start, UpperBound: r.End})
	if err != nil {
		return false, corrupt(err)
	}
	return it.First(), corrupt(it.Close())
}

// failErasure fails the store because the stored intent may be wrong.
func (s *Store) failErasure(err error) error {
	s.alarm.raise(fmt.Sprintf("the progress of an erasure cannot be stored: %v", err))
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// checkSpace returns an error that wraps storage.ErrDiskLow if there is not enough space to
// rewrite the tables that hold a device.
func (s *Store) checkSpace(device vitals.Name) error {
	free := s.disk.FreeBytes()
	if free == 0 { // unknown
		return nil
	}
	need, err := s.eraseBytes(purge.DeviceRanges(&device))
	if err != nil {
		return err
	}
	if need += 2*uint64(s.options.MemTableBytes) + space.SmallFilesBytes; free < need {
		return fmt.Errorf("%w: %d bytes are free, and the erasure may take %d", storage.ErrDiskLow, free, need)
	}
	return nil
}

// errNotRemoved means that an erasure has not removed anything, and that its intent still says
// that it will.
var errNotRemoved = errors.New("nothing was removed")

// finish does the remaining steps of an erasure.
func (s *Store) finish(in *intent, record func(storage.Erasure) error) error {
	var gateways map[uint32]bool // nil: unknown
	if in.step == stepRemove {
		var err error
		if gateways, err = s.remove(in); errors.Is(err, errNotRemoved) && s.alarm.err() == nil {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: remove readings: %w", storage.ErrUnfinished, err)
		}
	}
	if err := s.sweepGateways(s.maintenance.ctx, gateways); err != nil {
		return fmt.Errorf("%w: the readings are removed; remove names of gateways: %w", storage.ErrUnfinished, err)
	}
	if err := s.purge(in); err != nil {
		return fmt.Errorf("%w: the readings are removed; purge their bytes: %w", storage.ErrUnfinished, err)
	}
	if err := record(in.Erasure); err != nil {
		return fmt.Errorf("%w: the readings and their bytes are removed; record that: %w", storage.ErrUnfinished, err)
	}
	if err := removeIntent(s.files); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrUnfinished, err)
	}
	return nil
}

// remove deletes the keys of what is erased, and updates the intent. It returns the gateways that
// the erased readings have named.
func (s *Store) remove(in *intent) (gateways map[uint32]bool, err error) {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	var before *view
	err = func() error {
		// Seal most readings while Append continues, so that it waits shortly.
		if err := s.sealAllAndLock(); err != nil {
			return fmt.Errorf("%w: %w", errNotRemoved, err)
		}
		defer s.mu.Unlock()
		if err := s.alarm.reportedErr(); err != nil {
			return err
		}
		var err error
		if before, err = s.views.acquire(); err != nil {
			return err
		}
		if in.ofAssignment() {
			err = s.removeAssignedLocked(before, in)
		} else {
			err = s.removeLocked(&in.Device)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errNotRemoved, err)
		}
		in.step = stepPurge
		if err := in.write(s.files.FS, s.path); err != nil {
			// The next start would remove readings that are acknowledged from now on.
			return s.failErasure(err)
		}
		return nil
	}()
	if before == nil {
		return nil, err
	}
	if err == nil {
		in.Readings, gateways, err = s.count(before, in)
	}
	s.views.release(before)
	if err != nil {
		return nil, err
	}
	if in.Readings == 0 {
		gateways = nil // a crash may have come between the removal and the sweep
	}
	return gateways, in.write(s.files.FS, s.path)
}

// removeLocked deletes a device's keys and removes it from the table. Its readings in groups
// are between those of other devices, which are sealed first.
func (s *Store) removeLocked(device *vitals.Name) error {
	s.freeze()
	c := s.newSealer(s.settler.frozen)
	c.locked = true
	c.Keep = func(name *vitals.Name, rows []columns.Row) ([]columns.Row, bool) { return rows, *name != *device }
	left := int64(0)
	c.finish = func(b *pebble.Batch) error {
		n, unread, err := s.sealedReadings(device)
		if err != nil {
			return err
		}
		if unread != nil {
			if err := b.Set([]byte(layout.UncountedKey), nil, nil); err != nil {
				return err
			}
		}
		left = s.readings.Load() - n
		if err := setReadings(b, left); err != nil {
			return err
		}
		for _, r := range purge.DeviceRanges(device) {
			if err := b.DeleteRange(r.Start, r.End, nil); err != nil {
				return err
			}
		}
		return assign.RemoveAll(b, s.db, device)
	}
	c.ended = func() {
		s.readings.Store(left)
		s.settler.table.Remove(device)
	}
	if err := c.run(); err != nil {
		s.startSealing() // try again
		return err
	}
	s.publishDeviceCount()
	return nil
}

// sealedReadings returns the number of a device's readings in segments, as countSegments does.
func (s *Store) sealedReadings(device *vitals.Name) (n int64, unread, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		return 0, nil, corrupt(err)
	}
	defer func() {
		// The error of Close is that of the last read, which was handled.
		_ = it.Close()
	}()
	return countSegments(it, layout.AppendSegmentKey(nil, device, 0), layout.AppendSegmentsEnd(nil, device))
}

// count returns the number of readings in a view that in erases, and the gateways that they
// name. It does not count damaged readings; if there are any, gateways is nil, because they may name
// others.
func (s *Store) count(v *view, in *intent) (n int64, gateways map[uint32]bool, err error) {
	fromMs, toMs := int64(0), int64(math.MaxInt64)
	if in.ofAssignment() {
		fromMs, toMs = in.FromUnixMs, in.ToUnixMs
	}
	gateways = map[uint32]bool{}
	unread, err := s.walkRows(s.maintenance.ctx, v, &in.Device, fromMs, toMs, func(rows []columns.Row) {
		n += int64(len(rows))
		for i := range rows {
			gateways[rows[i].Gateway] = true
		}
	})
	if s.maintenance.ctx.Err() != nil {
		err = storage.ErrClosed
	}
	if unread != nil {
		s.foundDamage("damaged readings are erased, and are not counted", fmt.Errorf("device %s: %w", &in.Device, unread))
		return n, nil, err
	}
	return n, gateways, err
}

// maxPurges bounds how often the ranges are compacted. Once is enough unless a table
// was moved to the next level without being rewritten.
const maxPurges = 4

// purge removes the bytes of deleted keys from the store's files.
func (s *Store) purge(in *intent) error {
	device := in.Device
	s.mu.Lock()
	ranges := s.purgedRanges(&device)
	s.mu.Unlock()
	for n := 1; ; n++ {
		err := s.compactRanges(ranges)
		if errors.Is(err, storage.ErrCorrupt) && !in.ofAssignment() {
			err = s.excise(&device, err)
		}
		if err != nil {
			return err
		}
		err = s.awaitErased(&device, ranges)
		if err == nil {
			break
		}
		if n == maxPurges || !errors.Is(err, purge.ErrHeld) {
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
func (s *Store) awaitErased(device *vitals.Name, ranges []purge.Range) (err error) {
	ctx, cancel := context.WithTimeout(s.maintenance.ctx, elisionFor)
	defer cancel()
	polled := poll(ctx, func() (bool, error) {
		err = s.verifyErased(device, ranges)
		return !errors.Is(err, purge.ErrHeld), nil
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
	s.publish()
	s.mu.Unlock()
	older.Wait()
	return nil
}

// compactRanges compacts ranges down to the last level.
func (s *Store) compactRanges(ranges []purge.Range) error {
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.ready(); err != nil {
			return err
		}
		b := s.db.NewBatch()
		for _, r := range ranges {
			for _, key := range [][]byte{r.Before, r.After} {
				if err := b.Delete(key, nil); err != nil {
					return joinClose(err, b)
				}
			}
		}
		return s.commitAndPublish(b)
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
	for _, r := range ranges {
		if err := s.db.Compact(s.maintenance.ctx, r.Before, r.After, false); err != nil {
			return corrupt(err)
		}
	}
	return nil
}

// purgedRanges returns all ranges that may have keys of a device that has been removed: those
// of purge.DeviceRanges and purge.AssignRange, the deleted groups, the dictionary of gateways, and the index
// of subjects. s.mu must be held. verifyErased sets which of the device's ranges are live.
func (s *Store) purgedRanges(device *vitals.Name) []purge.Range {
	ranges := append(purge.DeviceRanges(device), purge.AssignRange(device))
	first := s.settler.active.FirstGroup
	if s.settler.frozen != nil {
		first = s.settler.frozen.FirstGroup
	}
	groups, gateways, subjects := []byte{layout.GroupPrefix}, []byte{layout.GatewayPrefix}, []byte{layout.SubjectPrefix}
	return append(ranges,
		purge.Range{Before: groups, Start: groups, End: layout.AppendGroupKey(nil, first), After: append(layout.AppendGroupKey(nil, first-1), 0), Groups: true},
		purge.Range{Before: gateways, Start: gateways, End: []byte{layout.GatewayPrefix + 1}, After: append(layout.AppendGatewayKey(nil, math.MaxUint32), 0), Live: true},
		purge.Range{Before: subjects, Start: subjects, End: []byte{layout.SubjectPrefix + 1}, After: []byte{layout.SubjectPrefix, 0xff}, Live: true},
	)
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
	s.sealing.Lock()
	defer s.sealing.Unlock()
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
	before, err := s.files.FS.List(s.path)
	if err != nil {
		return nil, err
	}
	o := s.options
	o.MinFreeBytes = -1 // there is almost nothing to replay
	if s.db, err = openPebble(s.files, o, s.alarm, s.disk, &s.troubles, &s.opened); err != nil {
		return nil, err
	}
	s.settler.db, s.settler.batch = s.db, newBatch(s.db)
	s.publish()
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
	desc, err := pebble.Peek(s.path, s.files.FS)
	if err != nil {
		return nil, err
	}
	current := s.files.FS.PathBase(desc.ManifestFilename)
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, datadir.TableSuffix):
			if !live[name] {
				tables = append(tables, name)
			}
		case strings.HasSuffix(name, wal.LogSuffix), strings.HasPrefix(name, wal.ManifestPrefix) && name != current:
			err := s.files.FS.Remove(s.files.FS.PathJoin(s.path, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble removes some of them too
				return nil, err
			}
		}
	}
	return tables, datadir.SyncDir(s.files.FS, s.path)
}

// liveTables returns the names of the tables that the tree refers to.
func (s *Store) liveTables() (map[string]bool, error) {
	files, err := datadir.Tables(s.db)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, f := range files {
		live[f.Name] = true
	}
	return live, nil
}

// awaitRemoval waits until Pebble has removed tables in the background.
func (s *Store) awaitRemoval(tables []string) error {
	err := poll(s.maintenance.ctx, func() (bool, error) {
		names, err := s.files.FS.List(s.path)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(tables, func(t string) bool { return slices.Contains(names, t) }), nil
	})
	if err != nil {
		return fmt.Errorf("remove old tables: %w", err)
	}
	return datadir.SyncDir(s.files.FS, s.path)
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
