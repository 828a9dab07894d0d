package pgstore

import (
	"cmp"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A merger merges the records of rows and segments.
type merger struct {
	r     storage.Range
	signs uint32 // of the columns

	sealed  []*cursor // in the order of their first records in the range
	open    []*cursor // of those, the ones that have started
	bounded bool      // further segments may have records from boundMs on, in the order of the scan
	boundMs int64
}

// A cursor is at a record of a segment.
type cursor struct {
	segment
	at, left int
	step     int // to the next record: 1 or -1
	atMs     int64
}

// before reports whether a time is before another one in the order of the scan.
func (m *merger) before(aMs, bMs int64) bool { return aMs < bMs != m.r.Descending && aMs != bMs }

// readSegments reads at most this number of segments.
func (m *merger) readSegments(results pgx.BatchResults, most int) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	var gateway *vitals.Name // of the last segment
	for count := 1; rows.Next(); count++ {
		v := rows.RawValues()
		next := v[len(v)-1]
		if err := checkSizes(v[len(v)-1:], []int{nullInt64}); err != nil {
			return err
		}
		c := &cursor{}
		if c.segment, err = decodeSegment(v[:len(v)-1], m.signs, gateway); err != nil {
			return err
		}
		gateway = c.same.Gateway
		// No later segment has a record before it starts.
		switch m.bounded = next != nil || count == most; {
		case next != nil:
			m.boundMs = decodeInt64(next)
		case m.r.Descending:
			m.boundMs = c.lastMs
		default:
			m.boundMs = c.firstMs
		}
		if from, to := c.between(m.r.FromUnixMs, m.r.ToUnixMs); from < to {
			c.keep()
			if c.at, c.left, c.step = from, to-from, 1; m.r.Descending {
				c.at, c.step = to-1, -1
			}
			c.atMs = c.timeMs(c.at)
			m.sealed = append(m.sealed, c)
		}
	}
	rows.Close()
	// The first record of a segment that begins before the range may be later than that of the next one.
	slices.SortStableFunc(m.sealed, func(a, b *cursor) int {
		if m.r.Descending {
			a, b = b, a
		}
		return cmp.Compare(a.atMs, b.atMs)
	})
	return rows.Err()
}

// next returns the cursor at the first record of segments, or nil.
func (m *merger) next() (c *cursor) {
	for _, o := range m.open {
		if c == nil || m.before(o.atMs, c.atMs) {
			c = o
		}
	}
	for len(m.sealed) > 0 && (c == nil || m.before(m.sealed[0].atMs, c.atMs)) {
		c = m.sealed[0]
		m.sealed, m.open = m.sealed[1:], append(m.open, c)
	}
	return c
}

// take sets r to the record of a cursor, and moves that on.
func (m *merger) take(c *cursor, r *storage.Record) {
	c.record(c.at, r)
	if c.left--; c.left == 0 {
		m.open = slices.DeleteFunc(m.open, func(o *cursor) bool { return o == c })
		return
	}
	c.at += c.step
	c.atMs = c.timeMs(c.at)
}

// merge fills dst with the records before the bound.
func (m *merger) merge(results pgx.BatchResults, dst []storage.Record) (n int, err error) {
	rows, err := results.Query()
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var row storage.Record
	read := func() (more bool) {
		if err != nil || !rows.Next() {
			return false
		}
		row, err = decodeRecord(rows.RawValues(), m.signs, row.Gateway)
		return err == nil
	}
	for more := read(); n < len(dst); n++ {
		c := m.next()
		switch {
		case c != nil && (!more || m.before(c.atMs, row.TimeUnixMs)):
			m.take(c, &dst[n])
		case more:
			dst[n] = row
			more = read()
		default:
			return n, errors.Join(err, rows.Err())
		}
		if err != nil {
			break
		}
		if m.bounded && !m.before(dst[n].TimeUnixMs, m.boundMs) {
			break
		}
	}
	rows.Close()
	return n, errors.Join(err, rows.Err())
}
