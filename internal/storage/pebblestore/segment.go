package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A rowScanner merges the rows of a device from all places in which a view may have them. Of
// rows of the same time, that of the first place counts.
type rowScanner struct {
	ctx          context.Context
	device       *vitals.Name
	fromMs, toMs int64
	descending   bool

	sources []rowSource // in the order of precedence: windows, segments
	it      *pebble.Iterator
	started bool
	view    *view

	// In ascending order, all segments with a last row up to the time read were read. All of the
	// device were if complete is set; then the iterator's error does not count.
	read     int64
	complete bool

	pool    *sync.Pool // of buffers
	buffers *rowBuffers
	err     error // of the constructor
}

// A rowSource is a place that has rows.
type rowSource struct {
	rows []columns.Row                 // the next ones, in the order of the scan
	more func() ([]columns.Row, error) // returns further rows, or none; nil means there are none
}

// rowBuffers are the buffers of a rowScanner.
//
// A client reads page by page, and a page mostly ends in the middle of a segment. So the last
// decoded segment is kept for the next page.
type rowBuffers struct {
	segment []columns.Row
	value   []byte // of segment; empty means segment is not as it was decoded
	windows [2][]columns.Row
}

// maxKeptRows bounds the buffers in reader.buffers.
const maxKeptRows = 4 * columns.MaxRows

// newRowScanner returns a scanner of the rows of a device with times from fromMs to before
// toMs, of which at most most are needed.
func (rd *reader) newRowScanner(ctx context.Context, v *view, device *vitals.Name, fromMs, toMs int64, descending bool,
	most int) *rowScanner {
	sc := &rowScanner{pool: &rd.buffers, ctx: ctx, device: device, fromMs: fromMs, toMs: toMs, descending: descending,
		view: v, read: fromMs - 1}
	if sc.buffers, _ = sc.pool.Get().(*rowBuffers); sc.buffers == nil {
		sc.buffers = new(rowBuffers)
	}
	for i, w := range v.windows {
		sc.sources = append(sc.sources, rowSource{more: sc.window(w, &sc.buffers.windows[i], most)})
	}
	// The segment that has the end of the range may have a later time in its key.
	sc.it, sc.err = v.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: layout.AppendSegmentBound(nil, device, uint64(fromMs)),
		UpperBound: layout.AppendSegmentsEnd(nil, device),
	})
	sc.sources = append(sc.sources, rowSource{more: sc.nextSegment})
	return sc
}

// windowFirstRows is the number of rows that are first copied from a window: mostly all rows that
// are needed are in segments.
const windowFirstRows = 16

// window returns a function that returns the next rows of a window, in buf.
func (sc *rowScanner) window(w memory.View, buf *[]columns.Row, most int) func() ([]columns.Row, error) {
	fromMs, toMs, n := sc.fromMs, sc.toMs, min(windowFirstRows, most)
	return func() ([]columns.Row, error) {
		rows := w.AppendRange((*buf)[:0], sc.device, fromMs, toMs, sc.descending, n)
		*buf, n = rows, min(columns.MaxRows, most)
		if len(rows) > 0 {
			if last := rows[len(rows)-1].TimeUnixMs; sc.descending {
				toMs = last
			} else {
				fromMs = last + 1
			}
		}
		return rows, nil
	}
}

// nextSegment returns the rows of the next segment.
func (sc *rowScanner) nextSegment() ([]columns.Row, error) {
	if sc.err != nil {
		return nil, damage.Wrap(sc.err)
	}
	for {
		if err := sc.ctx.Err(); err != nil {
			return nil, err
		}
		if !sc.move() {
			return nil, sc.ended()
		}
		sc.read = layout.SegmentKeyTime(sc.it.Key())
		rows, err := sc.buffers.decode(sc.it, sc.device)
		if err != nil {
			return nil, err
		}
		if rows[0].TimeUnixMs >= sc.toMs && !sc.descending {
			return nil, nil
		}
		if rows[0].TimeUnixMs < sc.fromMs {
			i, _ := seal.Find(rows, sc.fromMs)
			rows = rows[i:]
		}
		if rows[len(rows)-1].TimeUnixMs >= sc.toMs {
			i, _ := seal.Find(rows, sc.toMs)
			rows = rows[:i]
		}
		if len(rows) == 0 {
			continue
		}
		if sc.descending {
			slices.Reverse(rows)
			sc.buffers.value = sc.buffers.value[:0]
		}
		return rows, nil
	}
}

// ended returns the error that has ended the segments. To find the end of the device's segments,
// Pebble may read a block with those of the next device only. If that one is damaged, the device's
// record shows that all was read.
func (sc *rowScanner) ended() error {
	err := damage.Wrap(sc.it.Error())
	if !errors.Is(err, storage.ErrCorrupt) || sc.descending {
		return err
	}
	value, closer, getErr := sc.view.Get(layout.AppendRecordKey(nil, sc.device))
	if errors.Is(getErr, pebble.ErrNotFound) { // the device has no readings
		sc.complete = true
		return nil
	}
	if getErr != nil {
		return err
	}
	var d layout.Record
	if layout.DecodeRecord(value, &d) == nil && d.SealedUnixMs <= sc.read {
		sc.complete, err = true, nil
	}
	return errors.Join(err, closer.Close())
}

// decode returns the rows of the segment at an iterator's position.
func (b *rowBuffers) decode(it *pebble.Iterator, device *vitals.Name) (rows []columns.Row, err error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, damage.Wrap(err)
	}
	if n := len(b.segment); len(b.value) > 0 && bytes.Equal(b.value, value) &&
		b.segment[n-1].TimeUnixMs == layout.SegmentKeyTime(it.Key()) {
		return b.segment, nil
	}
	b.value = b.value[:0]
	if rows, err = seal.Decode(it, device, b.segment[:0]); err == nil {
		b.segment, b.value = rows, append(b.value, value...)
	}
	return rows, err
}

// move moves the iterator to the next segment that may have rows.
func (sc *rowScanner) move() bool {
	switch {
	case sc.started && sc.descending:
		return sc.it.Prev()
	case sc.started:
		return layout.SegmentKeyTime(sc.it.Key()) < sc.toMs && sc.it.Next()
	}
	sc.started = true
	if !sc.descending {
		return sc.it.First()
	}
	return sc.it.SeekGE(layout.AppendSegmentBound(nil, sc.device, uint64(sc.toMs-1))) ||
		sc.it.Error() == nil && sc.it.Last()
}

// next returns up to most of the next rows, or none at the end. They are valid until the next
// call.
func (sc *rowScanner) next(most int) ([]columns.Row, error) {
	best, bound := -1, int64(0) // rows of best up to bound come next
	for i := range sc.sources {
		src := &sc.sources[i]
		if len(src.rows) == 0 && src.more != nil {
			var err error
			if src.rows, err = src.more(); err != nil {
				return nil, err
			}
			if len(src.rows) == 0 {
				src.more = nil
			}
		}
		if len(src.rows) == 0 {
			continue
		}
		if best < 0 || sc.before(src.rows[0].TimeUnixMs, sc.sources[best].rows[0].TimeUnixMs) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	rows := sc.sources[best].rows
	rows = rows[:min(len(rows), most)]
	first := rows[0].TimeUnixMs
	alone := true
	for i := range sc.sources {
		src := &sc.sources[i]
		if i == best || len(src.rows) == 0 {
			continue
		}
		if src.rows[0].TimeUnixMs == first {
			src.rows = src.rows[1:]
			rows = rows[:1] // the next row of src is not known here
		} else if t := src.rows[0].TimeUnixMs; alone || sc.before(t, bound) {
			alone, bound = false, t
		}
	}
	if !alone && len(rows) > 1 {
		rows = rows[:sort.Search(len(rows), func(i int) bool { return !sc.before(rows[i].TimeUnixMs, bound) })]
	}
	sc.sources[best].rows = sc.sources[best].rows[len(rows):]
	return rows, nil
}

// before reports whether a time comes before another one in the order of the scan.
func (sc *rowScanner) before(a, b int64) bool {
	if sc.descending {
		return a > b
	}
	return a < b
}

func (sc *rowScanner) close() error {
	for _, rows := range [][]columns.Row{sc.buffers.segment, sc.buffers.windows[0], sc.buffers.windows[1]} {
		if cap(rows) > maxKeptRows {
			sc.buffers = new(rowBuffers)
			break
		}
	}
	sc.pool.Put(sc.buffers)
	if sc.err != nil {
		return damage.Wrap(sc.err)
	}
	err := sc.it.Close()
	if sc.complete {
		err = nil
	}
	return damage.Wrap(err)
}
