package pebblestore

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How changed readings are found
//
// The groups that are not sealed have what was changed last, in the order of commits. Older changes are in
// segments. The key of a segment has the time of its last change, and so do its block and its table: see
// seal.ChangedSince.
//
// A pass reads the groups first, and then the segments. A reading that is sealed between the two is read twice; the
// other way around it could be missed. If the groups that follow the pass's first position are all there, it needs
// no segments.
//
// Whatever is committed after a view was published has no earlier time of change than the view, and a group with
// its number or a later one. If the system's clock was set back, an event has an earlier time than those before it,
// and CheckPosition does not know the positions between.

// A changeLog reads what has changed. It implements [storage.Changes] together with the rest of the store.
type changeLog struct{ *reader }

// segmentsPart is the part of changed readings that are in segments. The others are the numbers of groups.
const segmentsPart = math.MaxUint64

// Position implements [storage.Changes].
func (c *changeLog) Position(ctx context.Context) (p storage.Position, later <-chan struct{}, err error) {
	later = c.views.later() // before the view
	v, err := c.enter(ctx)
	if err == nil {
		p, err = v.position()
		c.views.release(v)
	}
	if err != nil {
		err = fmt.Errorf("read position: %w", err)
	}
	return p, later, err
}

// position returns the position after everything in the view.
func (v *view) position() (storage.Position, error) {
	number, e, err := lastEvent(v)
	return storage.Position{Event: number, Mark: e.Mark, ChangedUnixMs: v.changedUnixMs, Group: v.nextGroup}, err
}

// PositionAt implements [storage.Changes].
func (c *changeLog) PositionAt(ctx context.Context, unixMs int64) (p storage.Position, err error) {
	v, err := c.enter(ctx)
	if err != nil {
		return p, fmt.Errorf("read position: %w", err)
	}
	defer c.views.release(v)
	now, err := v.position()
	if err != nil || unixMs > now.ChangedUnixMs {
		return now, err
	}
	p = storage.Position{ChangedUnixMs: unixMs, Group: 1}
	first := true
	return p, visitEvents(v, 0, func(number uint64, e *layout.Event) bool {
		if e.AtUnixMs < unixMs || first && number > 1 { // those before the first one are no longer kept
			p.Event, p.Mark = number, e.Mark
		}
		first = false
		return true
	})
}

// KeptSince implements [storage.Changes]. What is left of the last event that was removed is the first one. If only
// starts follow each other, events may not have been kept between them.
func (c *changeLog) KeptSince(ctx context.Context) (unixMs int64, err error) {
	v, err := c.enter(ctx)
	if err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	defer c.views.release(v)
	visited := 0
	err = visitEvents(v, 0, func(number uint64, e *layout.Event) bool {
		visited++
		atUnixMs := max(e.AtUnixMs, 1)
		starts := e.Kind == layout.EventStart && e.Group > 0
		switch {
		case visited == 1 && number > 1:
			unixMs = atUnixMs
		case visited == 1 || starts:
			unixMs = max(unixMs, atUnixMs-1)
		}
		return visited == 1 && starts
	})
	if err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	if visited == 1 {
		unixMs = max(unixMs, c.openedUnixMs)
	}
	return unixMs, nil
}

// CheckPosition implements [storage.Changes].
func (c *changeLog) CheckPosition(ctx context.Context, p storage.Position) error {
	v, err := c.enter(ctx)
	if err != nil {
		return fmt.Errorf("check position: %w", err)
	}
	defer c.views.release(v)
	known := p.Group <= v.nextGroup
	for i := len(v.starts) - 1; i >= 0 && v.starts[i].number > p.Event; i-- {
		known = known && v.starts[i].atUnixMs >= p.ChangedUnixMs && v.starts[i].group >= p.Group
	}
	// Without an event that comes before it, the position needs the first one of the store.
	visited := false
	err = visitEvents(v, p.Event, func(number uint64, e *layout.Event) bool {
		visited = true
		known = known && (number == p.Event && e.Mark == p.Mark || p.Event == 0 && number == 1)
		return false
	})
	if err == nil && (!known || !visited && p.Event > 0) {
		err = storage.ErrUnknownPosition
	}
	return err
}

// CursorKey implements [storage.Changes].
func (c *changeLog) CursorKey(ctx context.Context) ([]byte, error) { return c.cursorKey, ctx.Err() }

// Horizons implements [storage.Changes]. It returns nil after Close.
func (c *changeLog) Horizons() []storage.Horizon {
	v, err := c.views.acquire()
	if err != nil {
		return nil
	}
	defer c.views.release(v)
	return v.expired
}

// ReadChanges implements [storage.Changes].
func (s *Store) ReadChanges(ctx context.Context, from, to *storage.Position,
	do func(storage.ChangeReader) error) error {
	return storage.ReadKnown(ctx, s, from, to, do)
}

// VisitEvents implements [storage.Changes].
func (c *changeLog) VisitEvents(ctx context.Context, after, last uint64, visit func(*storage.Change) bool) error {
	v, err := c.enter(ctx)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer c.views.release(v)
	return visitEvents(v, after+1, func(number uint64, e *layout.Event) bool {
		if number > last {
			return false
		}
		change, ok := changeOf(number, e)
		return !ok || visit(&change)
	})
}

// VisitChanged implements [storage.Changes].
func (c *changeLog) VisitChanged(ctx context.Context, from, to storage.Position, after storage.ChangedKey,
	prefix vitals.Name,
	visit func(part uint64, device *vitals.Name, records []storage.Record) bool) error {
	v, err := c.enter(ctx)
	if err != nil {
		return fmt.Errorf("read changes: %w", err)
	}
	defer c.views.release(v)
	r := changedReader{c: c, ctx: ctx, v: v, prefix: prefix, after: after, names: c.gateways.names(), visit: visit}
	complete, stopped := false, false
	if after.Part != segmentsPart {
		complete = from.Group >= v.firstGroup
		stopped, err = r.groups(max(from.Group, v.firstGroup), to.Group)
	}
	if err == nil && !stopped && !complete {
		err = r.segments(from.ChangedUnixMs)
	}
	if err != nil {
		err = fmt.Errorf("read changes: %w", err)
	}
	return err
}

// A changedReader visits changed readings.
type changedReader struct {
	c       *changeLog
	ctx     context.Context
	v       *view
	prefix  vitals.Name
	after   storage.ChangedKey
	names   gatewayNames
	records []storage.Record
	visit   func(part uint64, device *vitals.Name, records []storage.Record) bool
}

// groups visits the readings of groups. It reports whether visit has returned false.
func (r *changedReader) groups(first, end uint64) (stopped bool, err error) {
	it, err := r.v.NewIterWithContext(r.ctx, &pebble.IterOptions{
		LowerBound: layout.AppendGroupKey(nil, max(first, r.after.Part)), UpperBound: layout.AppendGroupKey(nil, end),
	})
	if err != nil {
		return false, damage.Wrap(err)
	}
	defer func() { _ = it.Close() }() // its error is that of the last move
	for ok := it.First(); ok; ok = it.Next() {
		number, err := layout.DecodeGroupKey(it.Key())
		var g *layout.Group
		if err == nil {
			g, err = r.c.decoded.get(number, it)
		}
		if err != nil {
			return false, err
		}
		rows := g.Rows
		for i := range g.Runs {
			run := &g.Runs[i]
			more, err := r.rows(number, &run.Device, rows[:run.Rows], math.MinInt64)
			if !more || err != nil {
				return true, err
			}
			rows = rows[run.Rows:]
		}
	}
	return false, damage.Wrap(it.Error())
}

// segments visits the readings of segments that were changed since a time.
func (r *changedReader) segments(sinceUnixMs int64) error {
	o := &pebble.IterOptions{LowerBound: r.prefix.AppendTo([]byte{layout.SegmentPrefix}),
		UpperBound: []byte{layout.SegmentPrefix + 1}}
	if sinceUnixMs > 0 {
		o.PointKeyFilters = append(o.PointKeyFilters, seal.ChangedSince(sinceUnixMs))
	}
	if !r.prefix.IsZero() {
		o.UpperBound = append(r.prefix.AppendTo([]byte{layout.SegmentPrefix}), 0xff)
	}
	if after := &r.after; after.Part == segmentsPart {
		o.LowerBound = layout.AppendSegmentBound(nil, &after.Device, uint64(after.TimeUnixMs)+1)
	}
	it, err := r.v.NewIterWithContext(r.ctx, o)
	if err != nil {
		return damage.Wrap(err)
	}
	defer func() { _ = it.Close() }() // its error is that of the last move
	var rows []columns.Row
	for ok := it.First(); ok; ok = it.Next() {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		device, _, changedUnixMs, err := layout.DecodeSegmentKey(it.Key())
		if err != nil {
			return fmt.Errorf("%w: key of a segment: %w", storage.ErrCorrupt, err)
		}
		if changedUnixMs < sinceUnixMs { // it may have been replaced
			continue
		}
		if rows, err = seal.Decode(it, &device, rows[:0]); err != nil {
			return err
		}
		more, err := r.rows(segmentsPart, &device, rows, sinceUnixMs)
		if !more || err != nil {
			return err
		}
	}
	return damage.Wrap(it.Error())
}

// rows visits the rows of a device in a part that were changed since a time, and come after the key.
func (r *changedReader) rows(part uint64, device *vitals.Name, rows []columns.Row, sinceUnixMs int64) (more bool,
	err error) {
	if !device.HasPrefix(&r.prefix) {
		return true, nil
	}
	if part == r.after.Part {
		switch order := device.Compare(&r.after.Device); {
		case order < 0:
			return true, nil
		case order == 0:
			i, _ := seal.Find(rows, r.after.TimeUnixMs+1)
			rows = rows[i:]
		}
	}
	r.records = r.records[:0]
	known := r.c.signs.Known()
	for i := range rows {
		if rows[i].ChangedUnixMs() < sinceUnixMs {
			continue
		}
		r.records = append(r.records, storage.Record{})
		if err := r.names.record(&rows[i], known, &r.records[len(r.records)-1]); err != nil {
			return false, seal.Error(device, rows[i].TimeUnixMs, err)
		}
	}
	return len(r.records) == 0 || r.visit(part, device, r.records), nil
}

// maxDecodedRows is the number of rows of decoded groups at which a groupCache is emptied.
const maxDecodedRows = 1 << 14

// A groupCache keeps groups that were decoded, so that all consumers that wait for the next one decode it once.
type groupCache struct {
	mu     sync.Mutex
	groups map[uint64]*layout.Group // guarded by mu; never modified once they are here
	rows   int                      // guarded by mu
}

// get returns the group at an iterator's position.
func (g *groupCache) get(number uint64, it *pebble.Iterator) (*layout.Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if group := g.groups[number]; group != nil {
		return group, nil
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, damage.Wrap(err)
	}
	group := new(layout.Group)
	if err := group.Decode(value); err != nil {
		return nil, fmt.Errorf("%w: group %d: %w", storage.ErrCorrupt, number, err)
	}
	if g.groups == nil || g.rows >= maxDecodedRows {
		g.groups, g.rows = map[uint64]*layout.Group{}, 0
	}
	g.groups[number] = group
	g.rows += len(group.Rows)
	return group, nil
}

// clear forgets all groups: they may have readings that were erased.
func (g *groupCache) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups, g.rows = nil, 0
}
