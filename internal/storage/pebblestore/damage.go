package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How readings are removed beside damage
//
// Expire and Erase delete ranges of keys, for which nothing must be read. They read what they
// remove only to count it and to learn the names of its gateways. If they meet a damaged block,
// they continue from the other end of the range: what lies between two damaged blocks is removed
// and not counted. Then layout.UncountedKey is stored, because Store.readings is too large from then on.
//
// Iterators return to service with the next Seek after an error.

// foundDamage logs damage beside which the store goes on, and reports it as such.
func (s *Store) foundDamage(what string, err error) {
	s.options.Log.Error(what, "dir", s.dir, "error", err)
	s.troubles.degrade(err)
}

// walkSegments calls visit for the segments of a device from the key start on, in order, until it
// returns false. If a block is damaged, it calls visit for those before the key end, the last one
// first, with back set, until it meets damage again; then gap has the error. If there are no
// segments between those that were visited, gap is nil.
func walkSegments(it *pebble.Iterator, start, end []byte, visit func(back bool) bool) (gap, err error) {
	prefix := start[:len(start)-8]
	for ok := it.SeekGE(start); ok && seal.IsOf(it, prefix); ok = it.Next() {
		if !visit(false) {
			return nil, nil
		}
		start = append(bytes.Clone(it.Key()), 0)
	}
	if err = corrupt(it.Error()); !errors.Is(err, storage.ErrCorrupt) {
		return nil, err
	}
	for ok := it.SeekLT(end); ok && bytes.Compare(it.Key(), start) >= 0; ok = it.Prev() {
		visit(true)
	}
	if gap = corrupt(it.Error()); gap != nil && !errors.Is(gap, storage.ErrCorrupt) {
		return nil, gap
	}
	return gap, nil
}

// countSegments returns the number of readings in the segments with keys from start to before
// end. It does not count those of segments that cannot be read; if there are any, unread is an
// error of one.
func countSegments(it *pebble.Iterator, start, end []byte) (n int64, unread, err error) {
	gap, err := walkSegments(it, start, end, func(bool) bool {
		if bytes.Compare(it.Key(), end) >= 0 {
			return false
		}
		h, err := columns.SegmentHeader(it.Value(), nil)
		if err != nil {
			unread = err
		} else {
			n += int64(h.Count)
		}
		return true
	})
	return n, cmp.Or(gap, unread), err
}

// walkRows calls visit for the rows of a device in a view with times from fromMs to before toMs, in
// order. If a segment is damaged, unread has the error, and walkRows continues after it; if a whole
// block is, with the last rows, in descending order.
func (s *Store) walkRows(ctx context.Context, v *view, device *vitals.Name, fromMs, toMs int64, visit func(rows []columns.Row)) (unread, err error) {
	for _, descending := range []bool{false, true} {
		sc := s.newRowScanner(ctx, v, device, fromMs, toMs, descending, math.MaxInt)
		for {
			var rows []columns.Row
			rows, err = sc.next(math.MaxInt)
			if errors.Is(err, storage.ErrCorrupt) {
				unread, err = cmp.Or(unread, err), nil
				if sc.readable() {
					continue
				}
				break
			}
			if err != nil || len(rows) == 0 {
				return unread, errors.Join(err, ignoreDamage(sc.close()))
			}
			visit(rows)
			if !descending {
				fromMs = rows[len(rows)-1].TimeUnixMs + 1
			}
		}
		_ = sc.close() // its error is that of the last read
	}
	return unread, nil
}

func ignoreDamage(err error) error {
	if errors.Is(err, storage.ErrCorrupt) {
		return nil
	}
	return err
}
