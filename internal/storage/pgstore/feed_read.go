package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Parts of a pass
//
// The readings of a pass are divided by the numbers of their transactions into windows, which are as wide as some
// thousand readings need: each page reads and sorts what is left of its window. Each window has two parts: rows, and
// then segments, in the order of devices and times. A row that is sealed meanwhile is in a segment with the same number
// or a later one, perhaps one that the pass need not deliver otherwise: what follows may come from memory, which has
// rows as they were. So there are windows of segments up to the latest number, and they have all numbers. A segment
// that becomes rows again has changed, so what follows the pass has these. A copy has one window for everything.

// A window is a part of changed readings: rows or segments with numbers from one on, of a width.
type window struct {
	from   int64
	width  uint // its logarithm
	sealed bool // segments
	copies bool // all numbers
}

// Widths of windows.
const (
	firstWidth = 10
	mostWidth  = 40

	// A window with more rows or segments is made narrower when it begins, unless it is a single transaction.
	mostRows     = 1 << 13
	mostSegments = 1 << 10

	// The window after one with fewer is wider.
	fewRows     = mostRows / 8
	fewSegments = mostSegments / 8
)

// part returns the number of the part, which is not 0.
func (w *window) part() uint64 {
	n := uint64(w.from)<<8 | uint64(w.width)<<2 | 1<<1
	if w.sealed {
		n |= 1
	}
	if w.copies {
		n |= 1 << 63
	}
	return n
}

func windowOf(part uint64) window {
	return window{from: int64(part << 1 >> 9), width: uint(part >> 2 & 63), sealed: part&1 != 0, copies: part>>63 != 0}
}

// end returns the number after the window's.
func (w *window) end() int64 { return w.from + 1<<w.width }

// next moves w to the window after it. few reports that the one before had few rows and segments.
func (w *window) next(few bool) {
	if w.from, w.sealed = w.end(), false; few {
		w.width = min(w.width+2, mostWidth)
	}
}

// recentPart is the part of readings that come from [recent]. Who continues after one of them elsewhere begins again.
const recentPart = math.MaxUint64

// VisitChanged implements [storage.ChangeReader].
func (v *view) VisitChanged(_ context.Context, from, to storage.Position, after storage.ChangedKey, prefix vitals.Name,
	visit func(part uint64, device *vitals.Name, records []storage.Record) bool) (err error) {
	if v.steps != nil && (after.Part == 0 || after.Part == recentPart) {
		visitRecent(v.steps, after, prefix, visit)
		return nil
	}
	v.steps = nil // the consumer goes on in the tables where it has begun there
	if err = v.reach(); err == nil && v.expired == nil {
		v.expired, err = v.f.events().expired(v.ctx, v.tx)
	}
	if err != nil {
		return err
	}
	return v.changed(after, prefix, visit)
}

// visitRecent visits the readings of steps in the order of devices and times.
func visitRecent(steps []delta, after storage.ChangedKey, prefix vitals.Name, visit visitor) {
	byDevice := map[vitals.Name][]storage.Record{}
	var devices []vitals.Name
	for i := range steps {
		for _, run := range steps[i].runs {
			if !run.device.HasPrefix(&prefix) {
				continue
			}
			if byDevice[run.device] == nil {
				devices = append(devices, run.device)
			}
			byDevice[run.device] = append(byDevice[run.device], run.records...)
		}
	}
	slices.SortFunc(devices, func(a, b vitals.Name) int { return a.Compare(&b) })
	for _, device := range devices {
		all := byDevice[device]
		// The later state of a reading is after the earlier one.
		slices.SortStableFunc(all, func(a, b storage.Record) int { return cmp.Compare(a.TimeUnixMs, b.TimeUnixMs) })
		kept := all[:0]
		for i := range all {
			if n := len(kept); n > 0 && kept[n-1].TimeUnixMs == all[i].TimeUnixMs {
				kept[n-1] = all[i]
			} else {
				kept = append(kept, all[i])
			}
		}
		if after.Part == recentPart {
			switch order := device.Compare(&after.Device); {
			case order < 0:
				continue
			case order == 0:
				kept = kept[sort.Search(len(kept), func(i int) bool { return kept[i].TimeUnixMs > after.TimeUnixMs }):]
			}
		}
		if len(kept) > 0 && !visit(recentPart, &device, kept) {
			return
		}
	}
}

// A visitor is a function to which readings are passed.
type visitor func(part uint64, device *vitals.Name, records []storage.Record) bool

// A changedVisit is a call of changed.
type changedVisit struct {
	*view
	q      *readStatements
	window window
	end    int64 // of all rows
	last   int64 // of all windows
	device vitals.Name
	timeMs int64 // the key after which the window continues
	prefix vitals.Name
	visit  visitor
	few    bool // the window has few rows and segments
}

// changed visits changed readings after a key.
func (v *view) changed(after storage.ChangedKey, prefix vitals.Name, visit visitor) error {
	c := changedVisit{view: v, q: v.f.sql.reading.Load(), prefix: prefix, visit: visit, timeMs: -1}
	c.window, c.end = window{from: firstTransaction, copies: true}, firstTransaction+1
	// otherwise a copy, or the time of one: numbers may be those of another database
	if v.fromSeen.next > firstTransaction {
		c.window, c.end = window{from: v.fromSeen.since(&v.toSeen), width: firstWidth}, v.toSeen.next
	}
	// A key of readings that were read from elsewhere begins again.
	w := windowOf(after.Part)
	continues := after.Part != 0 && after.Part != recentPart && w.copies == c.window.copies && w.from >= c.window.from
	if continues {
		c.window, c.device, c.timeMs = w, after.Device, after.TimeUnixMs
	}
	// What follows comes from tables if there is an event after the pass, and must come after it.
	if c.last = c.end; !c.window.copies && !c.to.IsZero() { // otherwise the transaction has the later snapshot
		if err := c.tx.QueryRow(c.ctx,
			c.f.sql.of(`SELECT CASE WHEN EXISTS (SELECT FROM SCHEMA.events WHERE number > $1) THEN $2
			ELSE pg_snapshot_xmax(pg_current_snapshot())::text::bigint END`), int64(c.to.Event),
			c.end).Scan(&c.last); err != nil {
			return err
		}
	}
	for ; c.window.from < c.last; continues = false {
		more := true
		var err error
		if c.few = false; !continues && !c.window.copies {
			err = c.fit()
		}
		if err == nil && !c.window.sealed {
			if more, err = c.rows(); err == nil && more {
				c.window.sealed, c.device, c.timeMs = true, vitals.Name{}, -1
			}
		}
		if err == nil && more {
			more, err = c.segments()
		}
		if !more || err != nil {
			return err
		}
		c.window.next(c.few)
		c.device, c.timeMs = vitals.Name{}, -1
	}
	return nil
}

// fit makes a window that begins narrower until it has at most mostRows and mostSegments, or is a single transaction.
func (c *changedVisit) fit() error {
	w := &c.window
	for w.width > 0 && w.from+1<<(w.width-1) >= c.last {
		w.width--
	}
	for ; ; w.width-- {
		rowsFrom, late := c.ofRows()
		var rows, segments int
		if err := c.tx.QueryRow(c.ctx, c.q.counted, rowsFrom, c.rowsEnd(), c.running(), late, w.from, w.end(),
			mostRows+1, mostSegments+1).Scan(&rows, &segments); err != nil {
			return err
		}
		c.few = rows < fewRows && segments < fewSegments
		if w.width == 0 || rows <= mostRows && segments <= mostSegments {
			return nil
		}
	}
}

// rowsEnd returns the number after those of the window's rows.
func (c *changedVisit) rowsEnd() int64 { return min(c.window.end(), c.end) }

// running returns the transactions that to does not see.
func (c *changedVisit) running() []int64 { return append([]int64{}, c.toSeen.running...) } // not nil

// ofRows returns which numbers of the window rows have that are to be delivered: from one on, and some before it. A row
// has a number that from does not see.
func (c *changedVisit) ofRows() (from int64, late []int64) {
	return max(c.window.from, c.fromSeen.next), c.fromSeen.late(&c.toSeen, c.window.from, c.rowsEnd())
}

// arguments returns the parameters that all statements have, after the binary format: the bounds of the prefix, and the
// key.
func (c *changedVisit) arguments() []any {
	prefix := c.prefix.String()
	return []any{pgx.QueryResultFormats{pgx.BinaryFormatCode}, prefix, prefix + "~", c.device.String(), c.timeMs}
}

// chunkChanged is the number of rows that are read at once.
const chunkChanged = 2048

// rows visits the rows of the window. It reports whether visit wants more.
func (c *changedVisit) rows() (more bool, err error) {
	for {
		sql, args := c.q.copied, c.arguments()
		if !c.window.copies {
			from, late := c.ofRows()
			if from >= c.rowsEnd() && len(late) == 0 {
				return true, nil
			}
			sql, args = c.q.changedIn, append(args, from, c.rowsEnd(), c.running(), late)
		}
		rows, err := c.tx.Query(c.ctx, sql, append(args, chunkChanged)...)
		if err != nil {
			return false, err
		}
		n := 0
		var run []storage.Record
		var runs []changedRun
		var device, of vitals.Name
		var gateway *vitals.Name
		for rows.Next() {
			v := rows.RawValues()
			if err = checkSizes(v[:min(3, len(v))], []int{text, 4, 8}); err != nil {
				break
			}
			if signs := uint32(decodeInt32(v[1])); signs&^c.q.signs != 0 {
				err = errUnknownSign
				break
			}
			if device, err = vitals.ParseName(v[0]); err != nil {
				err = fmt.Errorf("%w: name of a device", storage.ErrCorrupt)
				break
			}
			var r storage.Record
			if r, err = decodeRecord(v[3:], c.q.signs, gateway); err != nil {
				break
			}
			gateway = r.Gateway
			if n > 0 && device != of {
				runs, run = append(runs, changedRun{of, run}), nil
			}
			if of = device; c.hidden(r.TimeUnixMs, decodeInt64(v[2])) {
				r.Values = vitals.Values{}
			}
			run = append(run, r)
			c.device, c.timeMs = device, r.TimeUnixMs
			n++
		}
		rows.Close()
		if err = errors.Join(err, rows.Err()); err != nil {
			if errors.Is(err, errUnknownSign) && c.renew() {
				continue
			}
			return false, err
		}
		runs = append(runs, changedRun{of, run})
		for i := range runs {
			if len(runs[i].records) > 0 && !c.visit(c.window.part(), &runs[i].device, runs[i].records) {
				return false, nil
			}
		}
		if n < chunkChanged {
			return true, nil
		}
	}
}

// renew reads the signs that other servers have defined, and reports whether there are any.
func (c *changedVisit) renew() bool {
	if c.readSigns() != nil || c.f.sql.reading.Load() == c.q {
		return false
	}
	c.q = c.f.sql.reading.Load()
	c.device, c.timeMs = vitals.Name{}, -1 // what was visited of the window is visited again
	return true
}

// segments visits the readings of the segments of the window, some segments at a time. It reports whether visit wants
// more.
func (c *changedVisit) segments() (more bool, err error) {
	for limit := 2; ; limit = min(2*limit, 16) {
		device, timeMs := c.device, c.timeMs
		whole, more, err := c.someSegments(limit)
		for wide := 4 * limit; err == nil && more && !whole && device == c.device && timeMs >= c.timeMs; wide *= 4 {
			c.timeMs = timeMs
			whole, more, err = c.someSegments(wide) // all of those begin at one time
		}
		if errors.Is(err, errUnknownSign) && c.renew() {
			continue
		}
		if whole || !more || err != nil {
			return more, err
		}
	}
}

// someSegments visits the readings of the first segments after the key. It reports whether those were all.
func (c *changedVisit) someSegments(limit int) (whole, more bool, err error) {
	sql, args := c.q.copiedSegments, c.arguments()
	if !c.window.copies {
		sql, args = c.q.changedSegments, append(args, c.window.from, min(c.window.end(), c.last))
	}
	rows, err := c.tx.Query(c.ctx, sql, append(args, limit)...)
	if err != nil {
		return false, false, err
	}
	type found struct {
		device  vitals.Name
		changed int64
		segment
	}
	var all []found
	var gateway *vitals.Name
	for rows.Next() {
		v := rows.RawValues()
		if err = checkSizes(v[:min(2, len(v))], []int{text, 8}); err != nil {
			break
		}
		f := found{changed: decodeInt64(v[1])}
		if f.device, err = vitals.ParseName(v[0]); err != nil {
			err = fmt.Errorf("%w: name of a device", storage.ErrCorrupt)
			break
		}
		if f.segment, err = decodeSegment(v[2:], c.q.signs, gateway); err != nil {
			break
		}
		f.keep()
		gateway = f.same.Gateway
		all = append(all, f)
	}
	rows.Close()
	if err = errors.Join(err, rows.Err()); err != nil {
		return false, false, err
	}
	whole = len(all) < limit
	for len(all) > 0 {
		device := all[0].device
		end := 1
		for end < len(all) && all[end].device == device {
			end++
		}
		// No segment that was not read has a reading before the beginning of the last one.
		untilMs := int64(math.MaxInt64)
		if end == len(all) && !whole {
			untilMs = all[end-1].firstMs
		}
		afterMs := int64(-1)
		if device == c.device {
			afterMs = c.timeMs
		}
		var records []storage.Record
		for i := range all[:end] {
			from, to := all[i].between(afterMs+1, untilMs)
			for k := from; k < to; k++ {
				var r storage.Record
				if all[i].record(k, &r); c.hidden(r.TimeUnixMs, all[i].changed) {
					r.Values = vitals.Values{}
				}
				records = append(records, r)
			}
		}
		slices.SortFunc(records, func(a, b storage.Record) int { return cmp.Compare(a.TimeUnixMs, b.TimeUnixMs) })
		c.device, c.timeMs = device, untilMs-1
		if len(records) > 0 && !c.visit(c.window.part(), &device, records) {
			return whole, false, nil
		}
		all = all[end:]
	}
	return whole, true, nil
}

// VisitEvents implements [storage.Changes], for who does not continue at a position.
func (f *feed) VisitEvents(ctx context.Context, after, last uint64, visit func(*storage.Change) bool) error {
	return f.ReadChanges(ctx, &storage.Position{}, &storage.Position{}, func(r storage.ChangeReader) error {
		return r.VisitEvents(ctx, after, last, visit)
	})
}

// VisitChanged implements [storage.Changes].
func (f *feed) VisitChanged(ctx context.Context, from, to storage.Position, after storage.ChangedKey,
	prefix vitals.Name,
	visit func(part uint64, device *vitals.Name, records []storage.Record) bool) error {
	return f.ReadChanges(ctx, &from, &to, func(r storage.ChangeReader) error {
		return r.VisitChanged(ctx, from, to, after, prefix, visit)
	})
}
