package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How a store of format 1 is converted
//
// Open reads the records and tails of format 1, and then
//
//  1. writes all records in format 2, with what their tails have,
//  2. deletes closedKey and writes convertKey, in the last batch of records,
//  3. replaces the file PULSEGATE by that of format 2.
//
// After a crash before step 3, the store is of format 1 still, and some or all of its records
// are of format 2; the next Open begins again. From step 3 on, readings are added in format 2.
// Rows of format 1 count after all other places in look-ups and reads: one that was completed
// is in a window or in a segment, too.
//
// In the background, rows are converted in the order of their devices, convertRows at a time.
// Each step
//
//  1. reads the next rows, and adds the gateways that they name to the dictionary,
//  2. writes the rows to segments, as a sealer writes late rows of a window, except that a row
//     that the segment has already stays,
//  3. reads the segments back,
//  4. deletes the rows, with one range deletion for each device.
//
// After a crash, the first row that is left shows where to continue. After the last step,
// convertKey is deleted. Later compactions free the space of the rows. The rows of a device that
// are damaged stay as they are, and so does convertKey; the next start tries again. If those of
// some could not be read because of an error of the disk, the conversion begins again after a pause.
//
// A step holds Store.sealing. If groups have arrived during a step, the conversion pauses, and
// so works for one part in convertShare of the time.
const (
	convertKey     = "\x00convert" // exists while there may be rows of format 1
	convertVersion = 1             // its value

	convertShare   = 4
	convertRows    = 16 << 10 // per step
	convertDevices = 1024     // per step
	convertPause   = time.Second

	convertLongestPause = 10 * time.Minute // between two attempts; it doubles with each
	convertLog          = 10 * time.Second
)

// A conversion counts what was converted since Open.
type conversion struct {
	left     atomic.Int64 // devices that may have rows of format 1
	readings atomic.Int64
}

// loadLegacy returns what a store has of format 1.
func loadLegacy(db *pebble.DB, format int) (legacyState, error) {
	if format == legacyFormat {
		return legacyTails, nil
	}
	converting, err := readState(db, convertKey, 1)
	if err != nil || converting == 0 {
		return noLegacy, err
	}
	return legacyRows, nil
}

// adopt makes a store of format 1 one of format 2, as described above. t has its devices.
func (s *Store) adopt(t *table) error {
	b := newBatch(s.db)
	for number, name := range t.all() {
		if err := setRecord(b, &name, t.at(number)); err != nil {
			return joinClose(err, b)
		}
		if b.Len() < sealBatchBytes {
			continue
		}
		if err := s.commit(b); err != nil {
			return joinClose(err, b)
		}
		b.Reset()
	}
	err := errors.Join(b.Delete([]byte(closedKey), nil), b.Set([]byte(convertKey), []byte{convertVersion}, nil))
	if err == nil {
		err = s.commit(b)
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return err
	}
	return s.files.upgrade(storeFormat)
}

// startConversion starts to convert rows of format 1 in the background.
func (s *Store) startConversion() {
	leave, ok := s.maintenance.join()
	if !ok {
		return
	}
	go func() {
		defer leave()
		c := &converter{s: s, begun: time.Now()}
		for pause := convertPause; ; pause = min(2*pause, convertLongestPause) {
			err := c.run(s.maintenance.ctx)
			if err == nil || s.maintenance.ctx.Err() != nil || s.alarm.err() != nil {
				return
			}
			s.troubles.background.Add(1)
			s.options.Log.Error("readings cannot be converted: this is tried again", "dir", s.dir, "error", err)
			if sleep(s.maintenance.ctx, pause) != nil {
				return
			}
		}
	}()
}

// A converter converts the rows of format 1.
type converter struct {
	s     *Store
	begun time.Time
	said  time.Time // when progress was logged last
	syncs int64     // groups until the end of the last step

	from   []byte // the key of the record with which the next step begins
	unread int64  // devices whose rows could not be converted
	fault  error  // the first error of the disk among those; nil: none
}

// A legacyDevice is a device with rows that a step converts.
type legacyDevice struct {
	name vitals.Name
	rows []columns.Row
}

func (c *converter) run(ctx context.Context) error {
	s := c.s
	c.unread, c.fault = 0, nil
	if err := c.begin(ctx); err != nil {
		return err
	}
	s.options.Log.Info("readings of an earlier format are being converted in the background", "dir", s.dir, "devices", s.conversion.left.Load())
	c.said, c.syncs = time.Now(), s.counters.syncs.Load()
	for more := true; more; {
		if s.options.beforeConvert != nil {
			s.options.beforeConvert(ctx)
		}
		begun := time.Now()
		var err error
		if more, err = c.step(ctx); err != nil {
			return err
		}
		if time.Since(c.said) >= convertLog {
			c.said = time.Now()
			s.options.Log.Info("conversion goes on", "dir", s.dir, "devices_left", s.conversion.left.Load(), "readings", s.conversion.readings.Load())
		}
		if err := c.giveWay(ctx, time.Since(begun)); err != nil {
			return err
		}
	}
	return nil
}

// giveWay pauses after a step if groups have arrived, and while there is too little space.
func (c *converter) giveWay(ctx context.Context, step time.Duration) error {
	syncs := c.s.counters.syncs.Load()
	if syncs != c.syncs {
		c.syncs = syncs
		if err := sleep(ctx, min((convertShare-1)*step, convertPause)); err != nil {
			return err
		}
	}
	for errors.Is(c.s.Ready(), storage.ErrDiskLow) {
		if err := sleep(ctx, convertPause); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// begin finds the first row, and counts the devices from there on.
func (c *converter) begin(ctx context.Context) error {
	s := c.s
	v, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.views.release(v)
	c.from = nil
	it, err := v.NewIter(&pebble.IterOptions{LowerBound: []byte{readingsStart}})
	if err != nil {
		return corrupt(err)
	}
	if it.First() {
		if name, _, err := decodeReadingKey(it.Key()); err == nil {
			c.from = appendRecordKey(nil, &name)
		}
	}
	_ = it.Close() // each step reads again
	sc, err := newDeviceScanner(v, false)
	if err != nil {
		return corrupt(err)
	}
	devices := int64(0)
	for ok := sc.first(c.from); ok && ctx.Err() == nil; ok = sc.next() {
		devices++
	}
	s.conversion.left.Store(devices)
	return errors.Join(sc.close(), ctx.Err())
}

// step converts the next rows. It reports whether there are further ones.
func (c *converter) step(ctx context.Context) (more bool, err error) {
	s := c.s
	// A sweep of the dictionary does not see the gateways of rows that are being converted.
	for !s.sweeping.TryLock() {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return false, err
		}
	}
	defer s.sweeping.Unlock()
	s.sealing.Lock()
	defer s.sealing.Unlock()
	if s.closed.Load() || ctx.Err() != nil {
		return false, storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return false, err
	}
	found, names, next, visited, err := c.find()
	if err != nil {
		return false, err
	}
	if len(found) > 0 {
		leftLast, err := c.convert(found, names)
		if err != nil {
			return false, err
		}
		if last := appendRecordKey(nil, &found[len(found)-1].name); leftLast && bytes.Equal(next, last) {
			next = append(next, 0) // continue with another device
		}
	}
	s.conversion.left.Store(max(s.conversion.left.Load()-visited, c.unread))
	if c.from = next; next != nil {
		return true, nil
	}
	return false, c.finish()
}

// find reads the next rows. It returns them with the names of their gateways, the key of the
// record from which to continue, or nil at the end, and the number of devices of which it has
// read all rows.
func (c *converter) find() (found []legacyDevice, names *legacyNames, next []byte, visited int64, err error) {
	s := c.s
	sc, err := newDeviceScanner(s.db, false)
	if err != nil {
		return nil, nil, nil, 0, corrupt(err)
	}
	rows, err := newLegacyScanner(context.Background(), s.db, &sc.name, 0, 0, false)
	if err != nil {
		return nil, nil, nil, 0, errors.Join(err, sc.close())
	}
	left := s.options.convertRows
	devices := 0
	for ok := sc.first(c.from); ok; ok = sc.next() {
		if left == 0 || devices == convertDevices {
			next = appendRecordKey(nil, &sc.name)
			break
		}
		devices++
		x := legacyDevice{name: sc.name}
		rows.reset(&x.name)
		var rowsErr error
		for rowsErr == nil && left > len(x.rows) {
			var page []columns.Row
			if page, rowsErr = rows.next(min(legacyPage, left-len(x.rows))); len(page) == 0 {
				break
			}
			x.rows = append(x.rows, page...)
		}
		if rowsErr != nil {
			c.skip(&x.name, rowsErr)
			if rows.it.Error() != nil { // the iterator cannot be used any more
				_ = rows.it.Close()
				if rows.it, err = s.db.NewIter(nil); err != nil {
					return nil, nil, nil, 0, errors.Join(corrupt(err), sc.close())
				}
			}
			continue
		}
		if left -= len(x.rows); len(x.rows) > 0 {
			found = append(found, x)
		}
		if left == 0 {
			next = appendRecordKey(nil, &x.name) // it may have more
			break
		}
		visited++
	}
	return found, &rows.legacyNames, next, visited, errors.Join(corrupt(rows.it.Close()), sc.close())
}

// skip records that the rows of a device cannot be converted.
func (c *converter) skip(name *vitals.Name, err error) {
	c.unread++
	if c.fault == nil && isFault(err) {
		c.fault = err
	}
	c.s.options.Log.Error("readings of a device cannot be converted, and stay as they are", "dir", c.s.dir, "device", name, "error", err)
	c.s.troubles.degrade(err)
}

// convert writes rows to segments and then deletes them. It reports whether it has left those of
// the last device.
func (c *converter) convert(found []legacyDevice, names *legacyNames) (leftLast bool, err error) {
	s := c.s
	w := newWindow(0, 0)
	if err := c.fill(w, found, names); err != nil {
		return false, err
	}
	sl := &sealer{s: s, w: w, legacy: true, batch: newBatch(s.db)}
	defer func() { err = errors.Join(err, sl.batch.Close()) }()
	if err := sl.segments(); err != nil {
		return false, err
	}
	if err := sl.readBack(); err != nil {
		return false, err
	}
	for _, i := range slices.Compact(sl.unmerged) {
		c.skip(&w.names[i], sl.unread)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alarm.reportedErr(); err != nil {
		return false, err
	}
	readings := 0
	for i := range w.devices {
		if slices.Contains(sl.unmerged, uint32(i)) {
			continue
		}
		rows := found[i].rows
		readings += len(rows)
		start := appendReadingKey(nil, &found[i].name, uint64(rows[0].TimeUnixMs))
		end := appendReadingKey(nil, &found[i].name, uint64(rows[len(rows)-1].TimeUnixMs)+1)
		if err := sl.batch.DeleteRange(start, end, nil); err != nil {
			return false, err
		}
	}
	if err := s.commit(sl.batch); err != nil {
		return false, err
	}
	s.publish()
	s.conversion.readings.Add(int64(readings))
	return slices.Contains(sl.unmerged, uint32(len(found)-1)), nil
}

// fill adds the rows found to a window, with the numbers of their gateways. It makes those
// durable that are new in the dictionary: groups may name them from now on.
func (c *converter) fill(w *window, found []legacyDevice, names *legacyNames) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := make([]uint32, len(names.names))
	for i, name := range names.names {
		numbers[i] = s.gateways.use(name)
	}
	if len(s.gateways.added) > 0 {
		b := s.db.NewBatch()
		if err := s.gateways.write(b); err != nil {
			return joinClose(err, b)
		}
		if err := s.commit(b); err != nil {
			return joinClose(err, b)
		}
		if err := b.Close(); err != nil {
			return err
		}
	}
	for i := range found {
		x := &found[i]
		number, ok := s.settler.table.find(&x.name)
		if !ok {
			return fmt.Errorf("%w: device %s: %w", storage.ErrCorrupt, x.name, errNoRecord)
		}
		device := w.addDevice(&x.name, number)
		for j := range x.rows {
			r := x.rows[j]
			if r.Gateway >= legacyGateway {
				r.Gateway = numbers[r.Gateway-legacyGateway]
			}
			w.add(device, &r)
		}
	}
	return nil
}

// countLegacy counts the expired readings of a device that has expired rows of format 1, up to
// most. A row may be in a segment, too. Damaged ones are removed, and not counted.
func (e *expirer) countLegacy(ctx context.Context, v *view, x *expiredDevice, most int64) error {
	rows, err := newLegacyScanner(ctx, v, &x.name, 0, e.beforeUnixMs, false)
	if err != nil {
		return err
	}
	has := rows.it.First()
	if err := corrupt(rows.it.Close()); !has && !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	x.legacy, x.upToMs, x.endMs = true, e.beforeUnixMs, e.beforeUnixMs
	after, firstAfter, last := int64(0), int64(0), int64(-1) // the number of rows after damage, and their first time
	stored := &view{Snapshot: v.Snapshot, legacy: v.legacy}  // rows of windows stay
	unread, err := e.s.walkRows(ctx, stored, &x.name, 0, e.beforeUnixMs, func(sc *rowScanner, page []columns.Row) bool {
		last = max(last, page[0].TimeUnixMs, page[len(page)-1].TimeUnixMs)
		if sc.descending {
			after, firstAfter = after+int64(len(page)), page[len(page)-1].TimeUnixMs
		} else if left := most - x.readings; int64(len(page)) > left {
			x.upToMs, x.endMs = page[left].TimeUnixMs, page[left].TimeUnixMs
			page = page[:left]
		}
		sc.gather(page, e.gateways, e.names)
		if !sc.descending {
			x.readings += int64(len(page))
		}
		return x.upToMs == e.beforeUnixMs
	})
	if err != nil {
		return err
	}
	if unread != nil {
		x.damaged = true
		e.s.foundDamage("expired readings of a device are damaged: they are removed, and not counted", fmt.Errorf("device %s: %w", x.name, unread))
	}
	// Remove what comes before first. If that has been done, the search for firstAfter leads to the
	// damaged block, and all are removed.
	if again := (expiredDevice{name: x.name, upToMs: firstAfter}); x.readings+after > most && again != e.again {
		e.again, x.upToMs, x.endMs = again, firstAfter, firstAfter
		return nil
	}
	if unread != nil {
		x.endMs = last + 1
	}
	x.readings += after
	return nil
}

// readingsBefore returns the number of a device's readings in segments and in rows of format 1
// with times before a time. It does not count damaged ones.
func (s *Store) readingsBefore(name *vitals.Name, beforeUnixMs int64) (n int64, err error) {
	v := &view{Snapshot: s.db.NewSnapshot(), legacy: legacyRows}
	_, err = s.walkRows(context.Background(), v, name, 0, beforeUnixMs, func(_ *rowScanner, rows []columns.Row) bool {
		n += int64(len(rows))
		return true
	})
	return n, errors.Join(err, v.Snapshot.Close())
}

// estimateLegacy returns about how many rows of format 1 there are: the entries of the tables
// that have such rows. It counts removed ones until they are compacted.
func (s *Store) estimateLegacy() (int64, error) {
	levels, err := s.db.SSTables(pebble.WithProperties(), pebble.WithKeyRangeFilter([]byte{readingsStart}, []byte{0xff}))
	if err != nil {
		return 0, corrupt(err)
	}
	n := uint64(0)
	for _, level := range levels {
		for i := range level {
			if p := level[i].Properties; p.NumEntries > p.NumDeletions {
				n += p.NumEntries - p.NumDeletions
			}
		}
	}
	return int64(n), nil
}

// finish ends the conversion, unless rows are left.
func (c *converter) finish() error {
	s := c.s
	s.conversion.left.Store(c.unread)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{readingsStart}})
	if err != nil {
		return corrupt(err)
	}
	rest := it.First()
	err = corrupt(it.Error())
	_ = it.Close() // its error is that of the read
	if isFault(err) || c.fault != nil {
		return cmp.Or(c.fault, err)
	}
	if rest || err != nil || c.unread > 0 {
		s.options.Log.Error("not all readings could be converted; the next start tries again", "dir", s.dir,
			"devices_left", c.unread, "readings", s.conversion.readings.Load())
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.db.NewBatch()
	if err := b.Delete([]byte(convertKey), nil); err != nil {
		return joinClose(err, b)
	}
	s.settler.legacy, s.views.legacy = false, noLegacy
	if err := s.commitLocked(b); err != nil {
		return err
	}
	s.options.Log.Info("store converted", "dir", s.dir, "readings", s.conversion.readings.Load(), "took", time.Since(c.begun).Round(time.Millisecond))
	return nil
}
