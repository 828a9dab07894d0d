package pgstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// mustFind reports whether the record of a chain must be read: some statement changed nothing, or
// further readings follow.
func (w *work) mustFind(c chain) bool {
	return c.from+c.sent < c.to || slices.ContainsFunc(w.items[c.from:c.from+c.sent], func(it item) bool { return !it.wrote })
}

// A record is a stored record, with its row's key and bits.
type record struct {
	storage.Record
	device vitals.Name
	had    uint32 // signs that it had before its last completion
}

// find reads the records of the chains that need them. The statement would wait for any partition that somebody has
// locked. After one that did, statements read one partition, which their plan names, for a minute.
func (w *work) find(conn *pgconn.PgConn, needs func(chain) bool) error {
	var partitions []int64
	for i := range w.chains {
		c := &w.chains[i]
		if c.have = nil; needs(*c) {
			partitions = append(partitions, partitionOf(w.items[c.from].e.Reading.TimeUnixMs))
		}
	}
	p := w.s.partitions
	w.found = slices.Grow(w.found[:0], len(partitions))
	if time.Now().UnixMilli() > p.apartUntil.Load() {
		fillFinder(w, needs)
		rows := conn.ExecPrepared(context.Background(), w.s.sql.find, w.finder.encode(findTypes[:]), binaryFormat, binaryFormat)
		if err := w.receiveFound(rows); err != nil {
			if sqlState(err) == lockNotAvailable {
				p.apartUntil.Store(time.Now().Add(closedFor).UnixMilli())
			}
			return err
		}
	} else {
		slices.Sort(partitions)
		for _, n := range slices.Compact(partitions) {
			firstMs, lastMs := fillFinder(w, func(c chain) bool { return needs(c) && partitionOf(w.items[c.from].e.Reading.TimeUnixMs) == n })
			rows := conn.ExecParams(context.Background(), fmt.Sprintf(w.s.sql.findIn, firstMs, lastMs), w.finder.encode(findTypes[:]), nil, binaryFormat, binaryFormat)
			if err := w.receiveFound(rows); err != nil {
				return err
			}
		}
	}
	for i := range w.found {
		r := &w.found[i]
		if n, ok := slices.BinarySearchFunc(w.chains, r, func(c chain, r *record) int {
			return compareKeys(w.items[c.from].e.Reading, &r.device, r.TimeUnixMs)
		}); ok {
			w.chains[n].have = r
		}
	}
	return nil
}

// fillFinder puts the keys of some chains into the parameters of find, and returns the first and the last time of them.
func fillFinder(w *work, needs func(chain) bool) (firstMs, lastMs int64) {
	w.finder.reset()
	firstMs = math.MaxInt64
	for _, c := range w.chains {
		if needs(c) {
			r := w.items[c.from].e.Reading
			firstMs, lastMs = min(firstMs, r.TimeUnixMs), max(lastMs, r.TimeUnixMs)
			w.finder.arrays[0].name(&r.Device)
			w.finder.arrays[1].int64(r.TimeUnixMs)
		}
	}
	return firstMs, lastMs
}

// receiveFound adds the records of a result to those that were found.
func (w *work) receiveFound(rows *pgconn.ResultReader) (err error) {
	for rows.NextRow() {
		var r record
		if err = r.decode(rows.Values()); err != nil {
			break
		}
		w.found = append(w.found, r)
	}
	if _, closeErr := rows.Close(); closeErr != nil {
		err = closeErr
	}
	return err
}

func (r *record) decode(v [][]byte) (err error) {
	if err := checkSizes(v[:min(len(v), len(foundSizes))], foundSizes); err != nil {
		return err
	}
	if r.device, err = vitals.ParseName(v[0]); err != nil {
		return fmt.Errorf("%w: name of a device", storage.ErrCorrupt)
	}
	r.had = decodeHad(v[1], v[2])
	r.Record, err = decodeRecord(v[len(foundSizes):], nil)
	return err
}

// beginComparing prepares conclude for the records that find has read.
func (w *work) beginComparing() {
	for i := range w.chains {
		if c := &w.chains[i]; c.have != nil {
			c.later = c.have
			w.trace(c)
		}
	}
}

// conclude settles the items as far as the results of the transaction, and the records that were
// read after it, show their outcomes. It does so in the order of the group, because a Guard that
// permits one comparison may not permit the next.
func (w *work) conclude(t *try) {
	for _, i := range w.inOrder() {
		if i == settled {
			continue
		}
		it := &w.items[i]
		c := &w.chains[it.chain]
		switch {
		case i < c.from+c.sent && it.wrote:
			it.e.Outcome, it.done = storage.Completed, true
			if it.had == 0 {
				it.e.Outcome = storage.Stored
			}
		case c.have == nil: // erased since
		case i < c.from+c.sent:
			have := c.have
			if it.then != 0 {
				have = &record{}
				*have = *c.have
				have.Values = without(&c.have.Values, it.then)
			}
			it.done = it.compare(have, t.unknown)
		default:
			it.done = it.reject(c)
		}
		if !it.done && c.later != nil {
			c.later = c.later.with(it.e.Reading)
		}
	}
}

// settled is the position of an item that is not in a chain any more.
const settled = -1

// inOrder returns the positions of the items in the order of the group.
func (w *work) inOrder() []int32 {
	w.order = slices.Grow(w.order[:0], len(w.items))[:len(w.items)]
	for at := range w.order {
		w.order[at] = settled
	}
	for n := range w.chains {
		for i := w.chains[n].from; i < w.chains[n].to; i++ {
			w.items[i].chain = int32(n)
			w.order[w.items[i].at] = i
		}
	}
	return w.order
}

// trace notes for each item that was sent what later ones have added to the record: the sign of a
// conflict is the first one that contradicted then.
func (w *work) trace(c *chain) {
	added := uint32(0)
	for i := c.from + c.sent - 1; i >= c.from; i-- {
		it := &w.items[i]
		it.then = added
		if it.wrote {
			added |= it.e.Reading.Values.Present() &^ it.had
		}
	}
}

// without returns values without some signs.
func without(values *vitals.Values, signs uint32) (kept vitals.Values) {
	for sg, v := range values.All() {
		if signs&(1<<sg) == 0 {
			kept.Set(sg, v)
		}
	}
	return kept
}

// reject settles an item that was not sent if it is to be rejected, and reports whether it is. So
// many readings of one record need few transactions.
func (it *item) reject(c *chain) bool {
	values := &it.e.Reading.Values
	_, _, now := storage.Merge(&c.have.Values, values)
	_, _, later := storage.Merge(&c.later.Values, values)
	contradicts := now == storage.Conflict
	if later == storage.Conflict && !contradicts {
		c.blocked = true
	}
	switch {
	case c.blocked:
		return false
	case it.guarded(c.later):
		return it.compare(c.later, false)
	}
	return contradicts && it.compare(c.have, false)
}

// guarded reports whether the comparison of it with a record needs its Guard's permission.
func (it *item) guarded(have *record) bool {
	r := it.e.Reading
	return it.e.Guard != nil && !it.cleared && (have.Shared || !have.NamesGateway(&r.Gateway)) && have.Values.Present()&r.Values.Present() != 0
}

// compare settles an item whose statement has changed nothing, and reports whether it could. It
// could not if the item's Guard has permitted the comparison only now, or if the record is
// another one than the statement found.
//
// retried means that the record may come from an earlier attempt of the same transaction.
func (it *item) compare(have *record, retried bool) bool {
	e := it.e
	guarded := it.guarded(have)
	if guarded && !e.Guard.Take() {
		e.Outcome = storage.Withheld
		return true
	}
	_, sign, outcome := storage.Merge(&have.Values, &e.Reading.Values)
	if outcome == storage.Conflict {
		e.Outcome, e.Sign = outcome, sign
		return true
	}
	if guarded {
		e.Guard.Return()
		it.cleared = true
		return false
	}
	if outcome == storage.Completed {
		return false
	}
	if e.Outcome = outcome; retried {
		e.Outcome = have.repeated(e)
	}
	return true
}

// repeated returns the outcome of a reading that adds nothing to a record, which an earlier attempt may have stored or completed.
func (r *record) repeated(e *storage.Entry) storage.Outcome {
	switch {
	case r.ReceivedUnixMs == e.ReceivedUnixMs && r.NamesGateway(&e.Reading.Gateway):
		return storage.Stored
	case r.had != 0:
		return storage.Completed
	}
	return storage.Duplicate
}

// with returns r as settling a reading would leave it.
func (r *record) with(reading *vitals.Reading) *record {
	merged, _, outcome := storage.Merge(&r.Values, &reading.Values)
	if outcome != storage.Completed {
		return r
	}
	changed := *r
	changed.Complete(reading, merged, r.Shared || !r.NamesGateway(&reading.Gateway))
	return &changed
}
