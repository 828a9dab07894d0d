package purge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
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
//  2. All windows are sealed, and one batch deletes the ranges of the device's keys. The intent is updated
//     before the next group is admitted: later readings of the device are new and stay.
//  3. Names of gateways that no reading names any more are removed.
//  4. Wait for readers of older snapshots: compactions would keep what these see.
//  5. The ranges are compacted down to the last level. A deletion at each end of a
//     range makes every table between take part, also one to which a background
//     compaction has already moved the range deletion together with what it deletes.
//     Wait again for readers of snapshots older than these deletions, for which a
//     compaction would keep the deletions.
//  6. Verify that no table has a key of the device, or the range deletion.
//  7. The tree is closed and reopened, while Append and readers wait. That makes a new
//     log and a new manifest. The old ones, and tables that nothing refers to, are
//     removed.
//  8. The erasure is recorded by the caller's function, and the intent is removed. After
//     a crash between the two it is recorded twice, but it is never left unrecorded.
//
// If an assignment or values are erased, step 2 deletes the segments that have readings of its time, and the device's
// record, and writes them again without what is erased. Range deletions come before the new values: they are
// dropped exactly when the earlier values are, see Range.
//
// A compaction cannot read a damaged block, even if all of its keys are deleted. Then the erasure stays
// unfinished after step 3.
//
// Blocks freed by the file system, and earlier backups, may still hold the bytes.
// TestErase searches the files for the bytes; TestEraseCrash crashes at every step.

// A Remover removes readings from a store. Erasures, and Resume, must not run at the same time.
type Remover struct {
	Tree      Tree
	Dir       *datadir.Dir
	Name      string          // of the directory, for messages
	Closing   context.Context // ends when the store is being closed
	Reader    sstable.ReaderOptions
	Log       *slog.Logger
	SmallRows int // the number of readings below which a segment is small

	EventsKeep time.Duration // how long events are kept; see Forget

	OnErased  func(storage.Erasure) error   // records an erasure that another call or a start finishes
	OnExpired func(readings, devices int64) // is called with what a batch of Expire has removed

	sweeping sync.Mutex // held by Sweep

	// Tree.Lock guards these. Due is true if layout.SweepKey is stored. candidates are the gateways that
	// removed readings have named since the last sweep, nil if they are not known.
	Due        bool
	candidates map[uint32]bool
}

// errNotRemoved means that an erasure has not removed anything, and that its intent still says
// that it will.
var errNotRemoved = errors.New("nothing was removed")

// Erase erases a device, or, if e has a subject, the assignment with the device, subject and beginning of e, or values.
// It calls record after the bytes are removed and before the erasure counts as finished.
//
// It first finishes an unfinished erasure; if that is the requested one, there is nothing else to do. If only
// damage keeps another one from being finished, it is given up.
func (m *Remover) Erase(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
	in, err := ReadIntent(m.Dir)
	if err != nil {
		return storage.Erasure{}, err
	}
	if in != nil {
		exists, err := m.exists(&e)
		if err != nil {
			return storage.Erasure{}, err
		}
		same := e // as far as it is the requested one: an assignment may have ended
		if same.Readings = in.Readings; in.ofAssignment() {
			same.ToUnixMs = in.ToUnixMs
		}
		// Values that were removed leave the device.
		if same == in.Erasure && (!exists || in.OfValues()) {
			if err := m.finish(in, record); err != nil || !in.OfValues() {
				return in.Erasure, err
			}
			return eraseSince(m, in.Erasure, record)
		}
		err = m.finish(in, m.OnErased)
		if err != nil && (in.step != stepPurge || !errors.Is(err, storage.ErrCorrupt) || m.Tree.Failed()) {
			return storage.Erasure{}, err
		}
		if err != nil {
			// Its readings are removed. Damage must not keep those of other devices.
			m.Log.Error("an erasure is given up for another one, because a damaged file may hold bytes of the device", "dir",
				m.Name, "device", in.Device, "error", err)
		}
	}
	exists, err := m.exists(&e)
	if err == nil && !exists {
		err = m.remains(&e)
	}
	if err == nil {
		err = m.Tree.CheckSpace(DeviceRanges(&e.Device))
	}
	if err != nil {
		return storage.Erasure{}, err
	}
	in = &Intent{step: stepRemove, Erasure: e}
	if err := in.Write(m.Dir.FS, m.Dir.Path); err != nil {
		return storage.Erasure{}, m.undo(err)
	}
	if err = m.finish(in, record); errors.Is(err, errNotRemoved) && !m.Tree.Failed() {
		return storage.Erasure{}, m.undo(err)
	}
	return in.Erasure, err
}

// eraseSince erases the values that have come since an erasure of them that was finished only now.
func eraseSince(m *Remover, first storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
	e := first
	e.Readings = 0
	e, err := m.Erase(e, func(e storage.Erasure) error {
		if e.Readings == 0 {
			return nil
		}
		return record(e)
	})
	if errors.Is(err, storage.ErrNotFound) {
		return first, nil
	}
	e.Readings += first.Readings
	return e, err
}

// Resume finishes an erasure that an earlier process has begun. If that fails, the store is usable
// nevertheless: the readings are removed, or the store has failed. The next start tries again.
func (m *Remover) Resume(in *Intent) {
	err := m.finish(in, m.OnErased)
	if errors.Is(err, errNotRemoved) && !m.Tree.Failed() {
		err = m.fail(err) // the next start would remove readings that are acknowledged from now on
	}
	if err != nil {
		m.Log.Error("an erasure is still unfinished; the next start tries again", "dir", m.Name, "error", err)
		return
	}
	m.Log.Info("finished an earlier erasure", "dir", m.Name, "device", in.Device, "readings", in.Readings)
}

// undo removes the intent of an erasure that has removed nothing because of an error, which it
// returns.
func (m *Remover) undo(err error) error {
	if undone := removeIntent(m.Dir); undone != nil && !errors.Is(undone, fs.ErrNotExist) {
		// The intent may exist. Then the next start would remove readings that are
		// acknowledged from now on.
		return fmt.Errorf("%w: %w", storage.ErrUnfinished, m.fail(err))
	}
	return err
}

// fail fails the store because the stored intent may be wrong.
func (m *Remover) fail(err error) error {
	m.Tree.Fail(fmt.Sprintf("the progress of an erasure cannot be stored: %v", err))
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// exists is find while nothing is written.
func (m *Remover) exists(e *storage.Erasure) (exists bool, err error) {
	err = m.Tree.Lock(func(st *State) error {
		exists, err = find(st, e)
		return err
	})
	return exists, err
}

// find reports whether a device has readings or assignments, or whether an assignment exists, of which
// it then sets the end.
func find(st *State, e *storage.Erasure) (exists bool, err error) {
	all, err := assign.Of(st.DB, &e.Device)
	if e.Subject == "" {
		_, known := st.Table.Find(&e.Device)
		return known || len(all) > 0 && !e.OfValues(), err
	}
	i := slices.IndexFunc(all, func(a storage.Assignment) bool {
		return a.Subject == e.Subject &&
			a.FromUnixMs == e.FromUnixMs
	})
	if i >= 0 {
		e.ToUnixMs = all[i].ToUnixMs
	}
	return i >= 0, err
}

// remains returns nil if tables have bytes of a device that does not exist: Expire may have removed its
// readings. If none has, it makes new logs and manifests, which may have its name, and returns
// storage.ErrNotFound.
func (m *Remover) remains(e *storage.Erasure) error {
	if e.Subject != "" {
		return storage.ErrNotAssigned
	}
	if e.OfValues() {
		return storage.ErrNotFound
	}
	if err := m.Sweep(m.Closing); err != nil {
		return err
	}
	// The memtable may have what removes bytes of tables, such as the name of a gateway.
	if err := m.Tree.Flush(m.Closing); err != nil {
		return err
	}
	ranges, tables, err := m.ranges(&e.Device)
	if err != nil {
		return err
	}
	if err := tables.Lack(ranges, &e.Device); err != nil {
		if errors.Is(err, ErrHeld) {
			return nil
		}
		return err
	}
	if err := m.Tree.Renew(); err != nil {
		return err
	}
	return storage.ErrNotFound
}

// finish does the remaining steps of an erasure.
func (m *Remover) finish(in *Intent, record func(storage.Erasure) error) error {
	if in.step == stepRemove {
		if err := m.remove(in); errors.Is(err, errNotRemoved) && !m.Tree.Failed() {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: remove readings: %w", storage.ErrUnfinished, err)
		}
	}
	if err := m.Sweep(m.Closing); err != nil {
		return fmt.Errorf("%w: the readings are removed; remove names of gateways: %w", storage.ErrUnfinished, err)
	}
	if err := m.purge(in); err != nil {
		return fmt.Errorf("%w: the readings are removed; purge their bytes: %w", storage.ErrUnfinished, err)
	}
	if err := record(in.Erasure); err != nil {
		return fmt.Errorf("%w: the readings and their bytes are removed; record that: %w", storage.ErrUnfinished, err)
	}
	if err := removeIntent(m.Dir); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrUnfinished, err)
	}
	return nil
}

// remove deletes the keys of what is erased, and updates the intent.
func (m *Remover) remove(in *Intent) error {
	r := removal{m: m, in: in}
	err := m.Tree.SealAll(r.add, r.done)
	if err != nil && !r.durable {
		err = fmt.Errorf("%w: %w", errNotRemoved, err)
	}
	if r.unread != nil {
		m.Tree.FoundDamage("damaged readings are erased, and are not counted",
			fmt.Errorf("device %s: %w", &in.Device, r.unread))
	}
	return err
}

// A removal is the step of an erasure that removes the readings.
type removal struct {
	cut
	m       *Remover
	in      *Intent
	st      *State
	carried int64         // readings that were in no segment, because theirs cannot be read
	number  uint32        // of the device in the table
	known   bool          // the device is in the table
	gone    bool          // it has no readings left
	after   layout.Record // its record then
	durable bool
}

// add adds the removal to the batch that ends the last window.
func (r *removal) add(st *State, b *pebble.Batch, s *seal.Sealer) (err error) {
	in := r.in
	r.st = st
	r.cut = cut{device: &in.Device, toMs: math.MaxInt64, most: math.MaxInt64, small: r.m.SmallRows,
		gateways: map[uint32]bool{}}
	switch {
	case in.ofAssignment():
		if err = r.confirmEnd(); err == nil {
			err = r.narrow(s)
		}
		if err == nil {
			err = assign.Remove(b, in.assignment())
		}
	case in.OfValues():
		r.ofValues, r.strip = true, stripper(&in.Erasure, st.Gateways)
		err = r.narrow(s)
	default:
		s.Carried = slices.DeleteFunc(s.Carried, func(x seal.Carried) bool {
			of := s.Rows.Name(x.Device) == in.Device
			if of {
				r.carried++
			}
			return of
		})
		err = assign.RemoveAll(b, st.DB, &in.Device)
	}
	if r.number, r.known = st.Table.Find(&in.Device); err == nil && r.known {
		err = r.keys(b)
	}
	if err == nil {
		err = r.m.account(b, st, r.readings, r.unread != nil, r.gateways)
	}
	if err != nil {
		return err
	}
	return r.event(b)
}

// confirmEnd makes the intent have the end of the assignment: it may have been set again.
func (r *removal) confirmEnd() error {
	end := r.in.ToUnixMs
	if _, err := find(r.st, &r.in.Erasure); err != nil || r.in.ToUnixMs == end {
		return err
	}
	// After a crash, a start may not find the assignment, and must not take the old end.
	return r.in.Write(r.m.Dir.FS, r.m.Dir.Path)
}

// narrow makes the removal one of some of the device's readings. It fails if some of these are in a segment that cannot
// be read.
func (r *removal) narrow(s *seal.Sealer) error {
	r.fromMs, r.toMs, r.rewrites = r.in.FromUnixMs, r.in.ToUnixMs, true
	for i := range s.Carried {
		x := &s.Carried[i]
		if s.Rows.Name(x.Device) != r.in.Device {
			continue
		}
		if r.within(x.Row.TimeUnixMs) {
			return s.Unread
		}
		r.others = append(r.others, x.Row)
	}
	return nil
}

// keys adds the removal of the device's readings, and its record as it is without them.
func (r *removal) keys(b *pebble.Batch) error {
	it, err := newSegmentIter(r.m.Closing, r.st.DB)
	if err != nil {
		return err
	}
	r.after = r.st.Table.Record(r.number)
	if err = r.segments(it, b, &r.after); err == nil {
		if r.known = r.strip == nil || r.stripped > 0; r.known { // otherwise the record stays as it is
			r.gone, err = r.record(it, b, &r.after, r.st.Windows)
		}
	}
	_ = it.Close() // its error is that of the last read, which was handled
	return err
}

// done records that the removal is durable.
func (r *removal) done() error {
	r.durable = true
	r.st.Readings.Add(-r.readings)
	if r.known {
		r.st.settle(r.device, r.number, &r.after, r.gone)
	}
	r.in.step, r.in.Readings = stepPurge, r.readings+r.carried
	if r.strip != nil {
		r.in.Readings = r.stripped
	}
	if err := r.in.Write(r.m.Dir.FS, r.m.Dir.Path); err != nil {
		// The next start would remove readings that are acknowledged from now on.
		return r.m.fail(err)
	}
	return nil
}

// account adds to a batch what a removal changes beside the keys of devices: the number of readings in
// segments, and that a sweep is due. If uncounted is true, further readings are removed, which cannot be read:
// the number is too large then, and any gateway may have been named.
func (m *Remover) account(b *pebble.Batch, st *State, readings int64, uncounted bool, gateways map[uint32]bool) error {
	if uncounted {
		gateways = nil
		if err := b.Set([]byte(layout.UncountedKey), nil, nil); err != nil {
			return err
		}
	}
	left := binary.BigEndian.AppendUint64(nil, uint64(st.Readings.Load()-readings))
	if err := b.Set([]byte(layout.ReadingsKey), left, nil); err != nil {
		return err
	}
	return m.due(b, gateways)
}

// maxPurges bounds how often the ranges are compacted. Once is enough unless a table
// was moved to the next level without being rewritten.
const maxPurges = 4

// purge removes the bytes of deleted keys from the store's files.
func (m *Remover) purge(in *Intent) error {
	ranges, tables, err := m.ranges(&in.Device)
	if err != nil {
		return err
	}
	return m.prove(tables, ranges, func() error { return live(m.Tree, &in.Device, ranges) })
}

// prove compacts ranges until no table has what was deleted in them. It calls live to update which may have keys.
func (m *Remover) prove(tables *Tables, ranges []Range, live func() error) error {
	for n := 1; ; n++ {
		if err := m.compact(tables.DB, ranges); err != nil {
			return err
		}
		err := m.awaitErased(tables, ranges, live)
		if err == nil {
			return m.Tree.Renew()
		}
		if n == maxPurges || !errors.Is(err, ErrHeld) {
			return err
		}
	}
}

// ranges returns all ranges that may have keys of a device that has been removed: its own, the deleted
// groups, the dictionary of gateways, the events, and the index of subjects.
func (m *Remover) ranges(device *vitals.Name) (ranges []Range, tables *Tables, err error) {
	err = m.Tree.Lock(func(st *State) error {
		tables = &Tables{DB: st.DB, Dir: m.Dir, Reader: m.Reader}
		first := st.Windows[0].FirstGroup
		groups, gateways, subjects := []byte{layout.GroupPrefix}, []byte{layout.GatewayPrefix}, []byte{layout.SubjectPrefix}
		ranges = append(DeviceRanges(device), AssignRange(device),
			Range{Before: groups, Start: groups, End: layout.AppendGroupKey(nil, first),
				After: append(layout.AppendGroupKey(nil, first-1), 0), Groups: true},
			Range{Before: gateways, Start: gateways, End: []byte{layout.GatewayPrefix + 1},
				After: append(layout.AppendGatewayKey(nil, math.MaxUint32), 0), Live: true},
			eventRange(),
			Range{Before: subjects, Start: subjects, End: []byte{layout.SubjectPrefix + 1},
				After: []byte{layout.SubjectPrefix, 0xff}, Live: true},
		)
		return nil
	})
	return ranges, tables, err
}

// compact compacts ranges down to the last level.
func (m *Remover) compact(db *pebble.DB, ranges []Range) error {
	err := m.Tree.Lock(func(st *State) error {
		if err := m.Tree.Ready(); err != nil {
			return err
		}
		b := db.NewBatch()
		for _, r := range ranges {
			if err := errors.Join(b.Delete(r.Before, nil), b.Delete(r.After, nil)); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		return st.Commit(b)
	})
	if err != nil {
		return err
	}
	if err := m.Tree.AwaitReaders(); err != nil {
		return err
	}
	if err := m.Tree.Flush(m.Closing); err != nil {
		return err
	}
	for _, r := range ranges {
		if err := db.Compact(m.Closing, r.Before, r.After, false); err != nil {
			return damage.Wrap(err)
		}
	}
	return nil
}

// elisionFor bounds the wait for a compaction that Pebble starts in the background.
const elisionFor = 500 * time.Millisecond

// live updates whether the ranges of a device may have keys: if it has readings or assignments again, only range
// deletions count.
func live(t Tree, device *vitals.Name, ranges []Range) error {
	return t.Lock(func(st *State) error {
		_, known := st.Table.Find(device)
		all, err := assign.Of(st.DB, device)
		ranges[0].Live, ranges[1].Live, ranges[2].Live = known, known, len(all) > 0
		return err
	})
}

// awaitErased waits until no table has a key of what was erased, or its deletion, at most for elisionFor.
//
// If a level has nothing but a table of deletions, the table stays until Pebble drops it
// in the background. Another compaction at the same time would only replace it by
// another such table.
func (m *Remover) awaitErased(tables *Tables, ranges []Range, live func() error) error {
	for deadline := time.Now().Add(elisionFor); ; {
		err := live()
		if err == nil {
			err = tables.Lack(ranges, nil)
		}
		if !errors.Is(err, ErrHeld) || time.Now().After(deadline) {
			return err
		}
		if err := pause(m.Closing, m.Closing, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits for d, or until ctx ends or the store is being closed, and then returns an error.
func pause(closing, ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-closing.Done():
		return storage.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
