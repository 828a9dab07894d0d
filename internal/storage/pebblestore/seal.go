package pebblestore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How a window is sealed
//
// When the active window is full, it is frozen: Append continues with a new one, and a
// goroutine writes the rows of the frozen one to segments:
//
//  1. Device by device, in the order of names, its rows are encoded, and added to a batch
//     with its record. A batch that has grown to sealBatchBytes is committed with the next
//     group, or alone if no group is being appended.
//  2. All segments are read back through the tree and compared.
//  3. One batch deletes the window's groups. Readers get a view without the window.
//
// After a crash before step 3, the groups are still there, and the next start reads them into
// a window. Their rows are sealed again, which changes nothing where they are in segments
// already.
//
// Rows after the last segment of their device make new segments. Any other row is late: it is
// merged into the segment that has its time, or into the next later one if none has. A
// segment that would have more than segmentRows readings is split.
//
// A device that sends seldom has few rows in a window, and so small segments, which have fewer
// than half of segmentRows readings. They are merged like the runs of a log-structured merge
// tree: from the newest one back, a segment takes part if it has at most twice as many readings
// as those after it. Those that take part are merged when they make a segment that is not small
// any more, or are mergeAt. So a reading of a device with 50 readings in each window is rewritten
// once. The device's record has the sizes of its last segments, as far as they are small, so that
// no segment is read to find out.
//
// If a segment cannot be read, it is not merged. Late rows that belong into it are carried:
// the batch of step 3 writes them as a new group, and they go to the active window.
const (
	sealBatchBytes   = 256 << 10
	sealChunkDevices = 1024 // whose states are copied at once
	sealSignalRows   = 2048 // after which a waiting Append is woken
	mergeAt          = 12   // segments
	sealRetryAfter   = time.Second

	// paceSlack is the part of the active window that may fill before Append waits for the
	// sealer. From then on the window fills only as fast as the frozen one is sealed.
	paceSlack = 1.0 / 8
)

// awaitRoom waits until the active window has room for a group. It returns the error of ready.
// s.mu must be held.
func (s *Store) awaitRoom() error {
	var since time.Time
	stalled := false
	for {
		if err := s.ready(); err != nil {
			return err
		}
		if s.settler.frozen == nil {
			break
		}
		filled := s.settler.active.Filled(s.options.WindowRows)
		if filled < 1 && filled <= paceSlack+s.settler.frozen.SealedPart() {
			break
		}
		if since.IsZero() {
			since = time.Now()
		}
		if filled >= 1 && !stalled {
			stalled = true
			s.counters.sealStalls.Add(1)
		}
		s.progress.Wait()
	}
	if !since.IsZero() {
		s.counters.pacedNanos.Add(int64(time.Since(since)))
	}
	return nil
}

// sealIfFull freezes the active window if it is full and no other one is frozen, and starts to
// seal it. s.mu must be held.
func (s *Store) sealIfFull() {
	if s.settler.frozen == nil && s.settler.active.Filled(s.options.WindowRows) >= 1 {
		s.freeze()
		s.startSealing()
	}
}

// freeze freezes the active window. s.mu must be held, and no window may be frozen.
func (s *Store) freeze() {
	w := s.settler.active
	w.EndGroup = s.nextGroup
	s.settler.frozen, s.settler.active = w, memory.NewWindow(w.Number()+1, s.nextGroup)
}

// startSealing starts to seal the frozen window in the background.
func (s *Store) startSealing() {
	leave, ok := s.maintenance.join()
	if !ok {
		return // the store is being closed; the next start reads the groups
	}
	go func() {
		defer leave()
		s.sealInBackground()
	}()
}

func (s *Store) sealInBackground() {
	// Wake Append also if the store is being closed or has failed.
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.progress.Broadcast()
	}()
	for {
		err := s.sealFrozen()
		if err == nil || s.maintenance.ctx.Err() != nil || s.alarm.err() != nil {
			return
		}
		s.troubles.background.Add(1)
		s.options.Log.Error("readings cannot be written to segments: this is tried again", "dir", s.dir, "error", err)
		if sleep(s.maintenance.ctx, sealRetryAfter) != nil {
			return
		}
	}
}

// sealFrozen seals the frozen window, if there is one.
func (s *Store) sealFrozen() error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	return s.sealFrozenLocked()
}

func (s *Store) sealFrozenLocked() error {
	s.mu.Lock()
	w := s.settler.frozen
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return (&sealer{s: s, w: w}).run()
}

// sealAll seals everything that is in windows when it is called. s.sealing must be held. It returns
// no error if rows stay in groups because a segment cannot be read; see Store.notSealed.
func (s *Store) sealAll() error {
	s.notSealed = nil
	if err := s.sealFrozenLocked(); err != nil {
		return err
	}
	s.mu.Lock()
	// Append may have frozen the active window meanwhile. Then that one is sealed: a further one
	// has only later rows.
	if s.settler.frozen == nil && s.settler.active.Rows() > 0 {
		s.freeze()
	}
	s.mu.Unlock()
	err := s.sealFrozenLocked()
	if err != nil {
		s.startSealing() // try again
	}
	return err
}

// sealAllAndLock seals everything that is in windows when it is called, and locks s.mu. Then no
// window is frozen, and the active one has at most the rows that were added meanwhile. After an
// error s.mu is not locked. s.sealing must be held.
func (s *Store) sealAllAndLock() error {
	for {
		if err := s.sealAll(); err != nil {
			return err
		}
		s.mu.Lock()
		if s.settler.frozen == nil {
			return nil
		}
		s.mu.Unlock()
	}
}

// A sealer seals one window. s.sealing must be held.
type sealer struct {
	s      *Store
	w      *memory.Window
	locked bool                      // s.mu is held
	erased *vitals.Name              // rows of this device are dropped; nil: of none
	only   *storage.Range            // of erased, only the rows in this range are; nil: all
	tidy   bool                      // there are no rows: small segments are merged; see tidy.go
	finish func(*pebble.Batch) error // adds to the last batch; nil: nothing
	ended  func()                    // is called after the last batch was committed; nil: nothing

	batch    *pebble.Batch
	it       *pebble.Iterator // over the segments as they were
	sealed   []sealedDevice   // in batch
	added    int64            // readings that batch adds
	signaled int64            // rows for which Append was woken
	written  []writtenSegment
	carried  []carriedRow

	unread error // of a segment that was not merged; see faultFirst

	// Buffers.
	named  vitals.Name
	states []layout.Record
	rows   []columns.Row
	merged []columns.Row
	again  []columns.Row
	old    []columns.Row
	edits  []segmentEdit
	lasts  []int64
	key    []byte
	value  []byte
}

// A sealedDevice is what a batch changes in the state of a device.
type sealedDevice struct {
	table        uint32
	sealedUnixMs int64
	smalls       uint8
	small        [layout.MaxSmall]uint16
}

// A writtenSegment is a segment that must be read back.
type writtenSegment struct {
	device     uint32 // in the window
	sum        uint32 // CRC-32C of the value
	lastUnixMs int64
}

type carriedRow struct {
	device uint32 // in the window
	row    columns.Row
}

// A segmentEdit is a segment with late rows merged into it.
type segmentEdit struct {
	lastUnixMs int64
	rows       []columns.Row
	taken      bool // it was merged with others
}

func (c *sealer) run() (err error) {
	begun := time.Now()
	c.batch = newBatch(c.s.db)
	defer func() { err = errors.Join(err, c.batch.Close()) }()
	if c.w.Rows() > 0 {
		if err := c.segments(); err != nil {
			return err
		}
		if err := c.readBack(); err != nil {
			return err
		}
	}
	if !c.locked {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
	}
	if err := c.end(); err != nil {
		return err
	}
	c.s.counters.sealedRows.Add(int64(c.w.Rows()))
	c.s.counters.sealNanos.Add(int64(time.Since(begun)))
	c.reportUnread()
	return nil
}

// reportUnread reports that segments were not merged, if there are any.
func (c *sealer) reportUnread() {
	if c.unread != nil {
		c.s.notSealed = faultFirst(c.s.notSealed, c.unread)
		c.s.options.Log.Error("segments cannot be read, and are not merged", "dir", c.s.dir, "error", c.unread)
	}
}

// segments writes the rows of all devices to segments.
func (c *sealer) segments() (err error) {
	if err := c.openIterator(); err != nil {
		return err
	}
	defer func() {
		// The error of Close is that of the last read, which was handled.
		_ = c.it.Close()
	}()
	for chunk := range slices.Chunk(c.w.Sorted(), sealChunkDevices) {
		if c.s.maintenance.ctx.Err() != nil {
			return storage.ErrClosed
		}
		if err := c.copyStates(chunk); err != nil {
			return err
		}
		for i, device := range chunk {
			if c.erased != nil && c.only == nil && *c.name(device) == *c.erased {
				continue
			}
			if err := c.device(device, &c.states[i]); err != nil {
				return err
			}
			c.signal(c.w.RowsOf(device))
			if c.batch.Len() >= sealBatchBytes {
				if err := c.commit(); err != nil {
					return err
				}
			}
		}
	}
	return c.commit()
}

// name returns the name of a device in the window. It is valid until the next call.
func (c *sealer) name(device uint32) *vitals.Name {
	c.named = c.w.Name(device)
	return &c.named
}

func (c *sealer) openIterator() (err error) {
	c.it, err = c.s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	return corrupt(err)
}

// copyStates copies the states of devices from the table. They may include readings of the
// active window, which are durable.
func (c *sealer) copyStates(devices []uint32) error {
	if !c.locked {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
	}
	if err := c.s.alarm.reportedErr(); err != nil {
		return err
	}
	c.states = c.states[:0]
	for _, i := range devices {
		c.states = append(c.states, c.s.settler.table.At(c.w.InTable(i)).Record)
	}
	return nil
}

// signal counts rows that are sealed, and wakes a waiting Append from time to time.
func (c *sealer) signal(rows int) {
	if n := c.w.Seal(rows); n >= c.signaled+sealSignalRows {
		c.signaled = n
		c.s.progress.Broadcast()
	}
}

// commit commits the batch, and then updates the states of its devices.
func (c *sealer) commit() error {
	if c.batch.Empty() {
		return nil
	}
	total := c.s.readings.Load() + c.added
	if err := c.batch.Set([]byte(layout.ReadingsKey), binary.BigEndian.AppendUint64(nil, uint64(total)), nil); err != nil {
		return err
	}
	commit := c.s.commitAlong
	if c.locked {
		commit = c.s.commit
	}
	if err := commit(c.batch); err != nil {
		return err
	}
	c.s.counters.sealBytes.Add(int64(c.batch.Len()))
	c.s.readings.Store(total)
	c.added = 0
	c.batch.Reset()
	if !c.locked {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
	}
	for i := range c.sealed {
		x := &c.sealed[i]
		d := c.s.settler.table.At(x.table)
		d.SealedUnixMs, d.Smalls, d.Small = x.sealedUnixMs, x.smalls, x.small
	}
	c.sealed = c.sealed[:0]
	return nil
}

// device adds the segments and the record of a device to the batch.
func (c *sealer) device(device uint32, d *layout.Record) error {
	name := c.name(device)
	c.rows = c.w.AppendAll(c.rows[:0], device)
	if c.only != nil && *name == *c.erased {
		from, _ := findRow(c.rows, c.only.FromUnixMs)
		to, _ := findRow(c.rows, c.only.ToUnixMs)
		c.rows = slices.Delete(c.rows, from, to)
	}
	c.edits = c.edits[:0]
	late, _ := findRow(c.rows, d.SealedUnixMs+1)
	if late > 0 {
		c.mergeLate(device, d, c.rows[:late])
	}
	if late < len(c.rows) || c.tidy {
		if err := c.appendNew(device, d, c.rows[late:]); err != nil {
			return err
		}
	}
	for i := range c.edits {
		if e := &c.edits[i]; !e.taken {
			if err := c.write(device, e.rows, nil); err != nil {
				return err
			}
		}
	}
	c.sealed = append(c.sealed, sealedDevice{c.w.InTable(device), d.SealedUnixMs, d.Smalls, d.Small})
	return setRecord(c.batch, name, d)
}

// mergeLate merges late rows into the segments to which they belong.
func (c *sealer) mergeLate(device uint32, d *layout.Record, rows []columns.Row) {
	name := c.name(device)
	for len(rows) > 0 {
		c.key = layout.AppendSegmentKey(c.key[:0], name, uint64(rows[0].TimeUnixMs))
		n := len(rows)
		var err error
		if c.it.SeekGE(c.key) && isSegmentOf(c.it, c.key[:len(c.key)-8]) {
			last := layout.SegmentKeyTime(c.it.Key())
			n, _ = findRow(rows, last+1)
			if c.old, err = decodeSegment(c.it, name, c.old[:0]); err == nil {
				c.edit(last, rows[:n])
			} else {
				err = segmentError(name, rows[0].TimeUnixMs, err)
			}
		} else {
			err = c.missing(name, rows[0].TimeUnixMs)
		}
		if err != nil {
			c.notRead(err)
			for i := range rows[:n] {
				c.carried = append(c.carried, carriedRow{device, rows[i]})
			}
		}
		rows = rows[n:]
	}
	if len(c.edits) > 0 && d.Smalls > 0 {
		c.resize(name, d)
	}
}

var errNoSegment = errors.New("it is missing")

// missing returns the error of a segment at which c.it should be: that of the iterator, if it has one.
func (c *sealer) missing(name *vitals.Name, timeUnixMs int64) error {
	return segmentError(name, timeUnixMs, cmp.Or(corrupt(c.it.Error()), errNoSegment))
}

// notRead records that a segment could not be read. The rows that belong to it stay in groups,
// or the segment is not merged.
func (c *sealer) notRead(err error) {
	c.s.troubles.degrade(err)
	c.unread = faultFirst(c.unread, err)
	if c.it.Error() != nil { // the iterator cannot be used any more
		it := c.it
		if c.openIterator() == nil {
			_ = it.Close()
		} else {
			c.it = it
		}
	}
}

// edit adds an edit of the segment in c.old, unless it holds all rows already.
func (c *sealer) edit(lastUnixMs int64, rows []columns.Row) {
	c.merged = c.merged[:0]
	old, changed := c.old, false
	for i := range rows {
		n, same := findRow(old, rows[i].TimeUnixMs)
		c.merged = append(append(c.merged, old[:n]...), rows[i])
		changed = changed || !same || old[n] != rows[i]
		if old = old[n:]; same {
			old = old[1:]
		}
	}
	if !changed {
		return
	}
	c.merged = append(c.merged, old...)
	c.added += int64(len(c.merged) - len(c.old))
	if n := len(c.edits); n < cap(c.edits) {
		c.edits = c.edits[:n+1]
	} else {
		c.edits = append(c.edits, segmentEdit{})
	}
	e := &c.edits[len(c.edits)-1]
	e.lastUnixMs, e.taken = lastUnixMs, false
	e.rows = append(e.rows[:0], c.merged...)
}

// resize updates the sizes of a device's small segments after edits.
func (c *sealer) resize(name *vitals.Name, d *layout.Record) {
	c.key = layout.AppendSegmentsEnd(c.key[:0], name)
	ok := c.it.SeekLT(c.key)
	c.key = layout.AppendSegmentPrefix(c.key[:0], name)
	for i := int(d.Smalls) - 1; i >= 0; i-- {
		if !ok || !isSegmentOf(c.it, c.key) {
			c.notRead(c.missing(name, d.SealedUnixMs))
			d.Smalls = 0
			return
		}
		if e := c.editOf(layout.SegmentKeyTime(c.it.Key())); e != nil {
			d.Small[i] = uint16(min(len(e.rows), 1<<16-1))
		}
		ok = c.it.Prev()
	}
	trim(d, c.threshold())
}

// editOf returns the edit of the segment with a key's time, or nil.
func (c *sealer) editOf(lastUnixMs int64) *segmentEdit {
	for i := range c.edits {
		if c.edits[i].lastUnixMs == lastUnixMs {
			return &c.edits[i]
		}
	}
	return nil
}

// threshold returns the number of readings below which a segment is small.
func (c *sealer) threshold() int { return c.s.options.segmentRows / 2 }

// trim removes the sizes up to the last one that is not small.
func trim(d *layout.Record, threshold int) {
	for i := int(d.Smalls) - 1; i >= 0; i-- {
		if int(d.Small[i]) >= threshold {
			d.Smalls = uint8(copy(d.Small[:], d.Small[i+1:d.Smalls]))
			return
		}
	}
}

// similar returns how many of the last segments of d are of similar size to be merged with the
// number of new rows after them, and how many readings they all make. Without new rows, the first
// of them is the last segment.
func similar(d *layout.Record, rows int) (n, total int) {
	total = rows
	if rows == 0 && d.Smalls > 0 {
		n, total = 1, int(d.Small[d.Smalls-1])
	}
	for n < int(d.Smalls) && int(d.Small[int(d.Smalls)-1-n]) <= 2*total {
		total += int(d.Small[int(d.Smalls)-1-n])
		n++
	}
	return n, total
}

// push records the size of a new last segment.
func push(d *layout.Record, rows, threshold int) {
	if rows >= threshold || d.Smalls == layout.MaxSmall {
		d.Smalls = 0
		return
	}
	d.Small[d.Smalls] = uint16(rows)
	d.Smalls++
}

// appendNew writes rows that are newer than all segments of their device, of which a tidying sealer
// has none, and merges small segments with them.
func (c *sealer) appendNew(device uint32, d *layout.Record, rows []columns.Row) error {
	name := c.name(device)
	c.added += int64(len(rows))
	n, total := similar(d, len(rows))
	switch {
	case c.tidy && n > 1:
	case n+1 >= mergeAt, total >= c.threshold():
	case d.Smalls == layout.MaxSmall:
		n = layout.MaxSmall
	default:
		n = 0
	}
	if n > 0 {
		if err := c.readSmall(name, d, n); err != nil {
			c.notRead(err)
			if !isFault(err) {
				d.Smalls = 0 // they stay as they are
			}
		} else {
			for _, last := range c.lasts {
				if e := c.editOf(last); e != nil {
					e.taken = true
				}
				c.key = layout.AppendSegmentKey(c.key[:0], name, uint64(last))
				if err := c.batch.Delete(c.key, nil); err != nil {
					return err
				}
			}
			d.Smalls -= uint8(n)
			rows = append(c.merged, rows...)
			c.merged = rows
		}
	}
	if len(rows) == 0 { // nothing was merged
		return nil
	}
	d.SealedUnixMs = rows[len(rows)-1].TimeUnixMs
	return c.write(device, rows, d)
}

// readSmall reads the last n segments of a device, which are small, into c.merged, and their
// times into c.lasts.
func (c *sealer) readSmall(name *vitals.Name, d *layout.Record, n int) error {
	total := 0
	for _, rows := range d.Small[int(d.Smalls)-n : d.Smalls] {
		total += int(rows)
	}
	c.merged, c.lasts = slices.Grow(c.merged[:0], total)[:total], c.lasts[:0]
	c.key = layout.AppendSegmentsEnd(c.key[:0], name)
	ok := c.it.SeekLT(c.key)
	c.key = layout.AppendSegmentPrefix(c.key[:0], name)
	for i := int(d.Smalls) - 1; n > 0; i, n = i-1, n-1 {
		if !ok || !isSegmentOf(c.it, c.key) {
			return c.missing(name, d.SealedUnixMs)
		}
		last := layout.SegmentKeyTime(c.it.Key())
		c.lasts = append(c.lasts, last)
		from := total - int(d.Small[i])
		if e := c.editOf(last); e != nil {
			copy(c.merged[from:total], e.rows)
		} else {
			rows, err := decodeSegment(c.it, name, c.merged[from:from:total])
			if err != nil {
				return err
			}
			if len(rows) != total-from {
				return recordError(name, layout.ErrSizes)
			}
		}
		total = from
		ok = c.it.Prev()
	}
	return nil
}

// write adds segments with rows to the batch. They are the last ones of d, unless d is nil.
func (c *sealer) write(device uint32, rows []columns.Row, d *layout.Record) error {
	most := c.s.options.segmentRows
	pieces := (len(rows) + most - 1) / most
	for i := range pieces {
		piece := rows[i*len(rows)/pieces : (i+1)*len(rows)/pieces]
		if err := c.writeSegment(device, piece); err != nil {
			return err
		}
		if d != nil {
			push(d, len(piece), c.threshold())
		}
	}
	return nil
}

// writeSegment adds a segment to the batch, and verifies that it decodes to the same rows.
func (c *sealer) writeSegment(device uint32, rows []columns.Row) (err error) {
	c.value = columns.AppendSegment(c.value[:0], rows)
	last := rows[len(rows)-1].TimeUnixMs
	if c.again, err = columns.DecodeSegment(c.value, c.again[:0]); err != nil || !slices.Equal(c.again, rows) {
		return c.fail(device, last, errors.Join(errReadBack, err))
	}
	c.key = layout.AppendSegmentKey(c.key[:0], c.name(device), uint64(last))
	c.written = append(c.written, writtenSegment{device, checksum(c.value), last})
	return c.batch.Set(c.key, c.value, nil)
}

var errReadBack = errors.New("it differs from what was written")

// fail fails the store: a segment is not what it should be. The groups still have its rows.
func (c *sealer) fail(device uint32, lastUnixMs int64, err error) error {
	err = segmentError(c.name(device), lastUnixMs, err)
	c.s.alarm.raise(fmt.Sprintf("a segment cannot be written: %v", err))
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// readBack compares all segments that were written with what is stored. Get finds them in the
// newest tables. An iterator would also read blocks next to them, which may be damaged.
func (c *sealer) readBack() error {
	for i := range c.written {
		x := &c.written[i]
		c.key = layout.AppendSegmentKey(c.key[:0], c.name(x.device), uint64(x.lastUnixMs))
		value, closer, err := c.s.db.Get(c.key)
		if errors.Is(err, pebble.ErrNotFound) {
			return c.fail(x.device, x.lastUnixMs, errNoSegment)
		}
		if err != nil {
			return fmt.Errorf("read segment back: %w", corrupt(err))
		}
		same := checksum(value) == x.sum
		if err := closer.Close(); err != nil {
			return fmt.Errorf("read segment back: %w", corrupt(err))
		}
		if !same {
			return c.fail(x.device, x.lastUnixMs, errReadBack)
		}
	}
	return nil
}

// end deletes the window's groups, and publishes a view without the window. s.mu must be held.
func (c *sealer) end() error {
	s := c.s
	if err := s.alarm.reportedErr(); err != nil {
		return err
	}
	next := s.nextGroup
	if c.w.FirstGroup < c.w.EndGroup {
		first, end := layout.AppendGroupKey(nil, c.w.FirstGroup), layout.AppendGroupKey(nil, c.w.EndGroup)
		if err := c.batch.DeleteRange(first, end, nil); err != nil {
			return err
		}
	}
	c.carried = slices.DeleteFunc(c.carried, func(x carriedRow) bool {
		// A row of the active window completes this one.
		return s.settler.active.Find(s.settler.table.At(c.w.InTable(x.device)), x.row.TimeUnixMs) != nil
	})
	if len(c.carried) > 0 {
		var g groupBuffer
		for i := range c.carried {
			g.add(c.name(c.carried[i].device), &c.carried[i].row)
		}
		if err := c.batch.Set(layout.AppendGroupKey(nil, next), g.encode(), nil); err != nil {
			return err
		}
		next++
	}
	if err := c.batch.Set([]byte(layout.GroupsKey), binary.BigEndian.AppendUint64(nil, next), nil); err != nil {
		return err
	}
	if c.finish != nil {
		if err := c.finish(c.batch); err != nil {
			return err
		}
	}
	if err := s.commit(c.batch); err != nil {
		return err
	}
	s.nextGroup, s.settler.frozen = next, nil
	c.carry()
	if c.ended != nil {
		c.ended()
	}
	s.publish()
	s.progress.Broadcast()
	return nil
}

// carry adds the carried rows to the active window.
func (c *sealer) carry() {
	w := c.s.settler.active
	w.Lock()
	defer w.Unlock()
	for i := range c.carried {
		number := c.w.InTable(c.carried[i].device)
		w.Add(c.s.settler.table.At(number), number, c.name(c.carried[i].device), &c.carried[i].row)
	}
}

// checksum returns the CRC-32C of a segment.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
