package pgstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A writer stores groups.
type writer struct {
	*database
	registry   registry
	partitions *partitions
	works      sync.Pool // of *work
}

// A work settles the readings of a lane. It reuses its buffers.
type work struct {
	s *writer

	items  []item
	chains []chain
	order  []int32                 // positions of items, in the order of the group
	passes [vitals.MaxSigns]params // parameters of one transaction; each reading of a chain of units adds a sign
	rows   [vitals.MaxSigns][]int32
	insert params  // of the statement among these that has the readings that are expected to be new
	fresh  []int32 // its items
	before int     // number of the others that it follows
	finder params
	found  []record
	hints  params
	late   params // keys of readings that may be in segments

	mark       mark  // of the next transaction; the zero mark is that of a repair, which sets others
	generation int64 // that the last transaction has read
	accepted   []*storage.Entry

	wearers map[vitals.Name]*storage.Wearers // of the devices about which the lane of units has claims
}

// An item is a reading of a lane.
type item struct {
	e       *storage.Entry
	at      int32  // its position in the lane's part of the group
	chain   int32  // its chain during conclude
	done    bool   // it is settled
	cleared bool   // its Guard has permitted the comparison, which found no conflict
	wrote   bool   // its statement has stored or completed the record
	had     uint32 // signs of the record before; 0 means it was stored
	writes  bool   // it is to store or complete the record, together with a unit
	then    uint32 // signs that later items of the same transaction have added
}

// A chain is the items of one device and time that are not settled, in their order.
type chain struct {
	from, to int32
	sent     int32 // number of items, from the first, that the transaction has
	fresh    bool  // the next attempt inserts the first item; such chains follow one another

	// have is the record that was read after the transaction, if there is one, and later that
	// record as it will be after the items before the next one. They are for conclude. A record that
	// they point to is not modified: most chains need no other one.
	have    *record
	later   *record
	blocked bool // the items that follow depend on others that are not stored yet
}

// maxStatements is the number of readings of one device and time in one transaction, unless they are of units. Further ones follow in
// further transactions.
const maxStatements = 8

// maxKept is the number of readings for which a work keeps its buffers.
const maxKept = 1 << 14

// errUnsettled means that records were removed again and again while readings of them were
// settled.
var errUnsettled = errors.New("the deadline passed before all readings were settled")

// lane settles the readings of one lane, which are in the order of the group.
func (s *writer) lane(t *try, part []*storage.Entry, generation int64) error {
	if len(part) == 0 {
		return nil
	}
	w := s.work(part)
	defer s.release(w)
	for w.pending() {
		if err := w.pass(t); err != nil {
			return err
		}
		if time.Now().After(t.deadline) && w.pending() {
			return t.fail(errUnsettled)
		}
	}
	if w.generation != generation {
		return s.registerAgain(t, part, w.generation)
	}
	return nil
}

// work returns a work for the readings of one lane.
func (s *writer) work(part []*storage.Entry) *work {
	w := s.works.Get().(*work)
	w.s = s
	w.start(part)
	return w
}

// release keeps the buffers of a work.
func (s *writer) release(w *work) {
	if cap(w.items) <= maxKept {
		clear(w.items)
		clear(w.chains)
		clear(w.found)
		clear(w.accepted)
		s.works.Put(w)
	}
}

// start sorts the readings into chains.
func (w *work) start(part []*storage.Entry) {
	w.mark, w.wearers = mark{}, nil
	w.fresh = w.fresh[:0]
	w.items = w.items[:0]
	for i, e := range part {
		w.items = append(w.items, item{e: e, at: int32(i)})
	}
	slices.SortFunc(w.items, func(a, b item) int {
		return cmp.Or(compareKeys(a.e.Reading, &b.e.Reading.Device, b.e.Reading.TimeUnixMs), int(a.at-b.at))
	})
	w.chains = w.chains[:0]
	for i := range w.items {
		r := w.items[i].e.Reading
		if n := len(w.chains); n > 0 && compareKeys(w.items[i-1].e.Reading, &r.Device, r.TimeUnixMs) == 0 {
			w.chains[n-1].to++
			continue
		}
		w.chains = append(w.chains, chain{from: int32(i), to: int32(i + 1)})
	}
}

// compareKeys compares a reading with a key.
func compareKeys(r *vitals.Reading, device *vitals.Name, timeUnixMs int64) int {
	if c := r.Device.Compare(device); c != 0 {
		return c
	}
	switch {
	case r.TimeUnixMs < timeUnixMs:
		return -1
	case r.TimeUnixMs > timeUnixMs:
		return 1
	}
	return 0
}

// pending removes the items that are settled, and reports whether any is left.
func (w *work) pending() bool {
	left := w.chains[:0]
	for _, c := range w.chains {
		to := c.from
		for i := c.from; i < c.to; i++ {
			if !w.items[i].done {
				w.items[to] = w.items[i]
				to++
			}
		}
		if to > c.from {
			left = append(left, chain{from: c.from, to: to})
		}
	}
	w.chains = left
	return len(left) > 0
}

// pass runs one transaction, and then settles what its results and the records show.
func (w *work) pass(t *try) (err error) {
	if w.mark, err = w.s.marks.take(t); err != nil {
		return err
	}
	defer w.s.marks.release(w.mark)
	hinted := w.fillHints(!t.unknown)
	closed, err := t.runOpen(func(conn *pgx.Conn) error {
		err := attempt(t, w, conn, hinted)
		if len(w.fresh) > 0 && sqlState(err) == duplicateKey {
			// Another server has stored one of them: nothing was written.
			t.s.counters.retry(duplicateKey)
			w.s.registry.collided()
			err = attempt(t, w, conn, hinted)
		}
		return err
	})
	if err != nil {
		return err
	}
	if closed != nil {
		rejectIn(w, closed.partition)
		return nil
	}
	w.s.marks.acknowledge(w.mark, w.generation)
	// The transaction is committed: from now on, something of the group is written.
	t.written = true
	if slices.ContainsFunc(w.chains, w.mustFind) {
		if closed, err = t.runOpen(func(conn *pgx.Conn) error {
			if t.rolledBack {
				if err := w.s.partitions.ensure(conn, w, &sync.Map{}); err != nil {
					return err
				}
			}
			return w.find(conn.PgConn(), w.mustFind)
		}); err != nil {
			return err
		}
		w.beginComparing()
	}
	w.conclude(t)
	if closed != nil { // since the transaction, which may have written to it
		rejectIn(w, closed.partition)
	}
	w.s.remember(w)
	return nil
}

// rejectIn settles the items of a partition that cannot be written.
func rejectIn(w *work, partition int64) {
	for i := range w.chains {
		c := w.chains[i]
		if partitionOf(w.items[c.from].e.Reading.TimeUnixMs) != partition {
			continue
		}
		for k := c.from; k < c.to; k++ {
			if it := &w.items[k]; !it.done {
				it.e.Outcome, it.done = storage.Unavailable, true
			}
		}
	}
	w.s.unswept.Store(true) // devices may have been registered for them
}

// attempt sends the transaction.
func attempt(t *try, w *work, conn *pgx.Conn, hinted bool) (err error) {
	statements := w.fill()
	w.mark = w.s.marks.attempt(w.mark)
	send := func() error { return w.send(conn, statements, hinted) }
	if t.rolledBack {
		err = transact(t, w, conn, send)
	} else if err = w.s.partitions.ensure(conn, w, &w.s.partitions.known); err == nil {
		err = send()
	}
	if err != nil {
		return err
	}
	return changelog{w.s.database}.keepUp(conn, w.generation)
}

// transact runs do in a transaction of several round trips. After an attempt that was rolled back, nothing is removed, and the horizon is not
// raised, between what this server reads first and the commit: otherwise it might be rolled back for as long as others do such things.
func transact(t *try, w *work, conn *pgx.Conn, do func() error) error {
	p := w.s.partitions
	if t.rolledBack {
		p.known.Clear()
	}
	if err := p.ensure(conn, w, &p.known); err != nil {
		return err
	}
	return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		if t.rolledBack {
			if err := p.hold(tx, w); err != nil {
				return err
			}
			if err := (changelog{w.s.database}).learn(context.Background(), tx); err != nil {
				return err
			}
		}
		return do()
	})
}

// remember adds what the last transaction of w has accepted to the memory. The slot of its mark is not released yet.
func (s *writer) remember(w *work, claims ...history.Entry) {
	if s.memory == nil {
		return
	}
	w.accepted = w.accepted[:0]
	for _, c := range w.chains {
		for i := c.from; i < c.to; i++ {
			if it := &w.items[i]; it.accepted() && !it.e.Reading.Values.IsZero() {
				w.accepted = append(w.accepted, it.e)
			}
		}
	}
	if len(w.accepted)+len(claims) > 0 {
		keeper{s.database}.keep(history.Entry{Generation: w.generation}, w.mark, w.accepted, claims...)
	}
}

// fill puts the readings that can be sent now into the statements of a transaction, and returns
// the number of those that settle. A chain is cut after a reading whose comparison its Guard has not permitted.
//
// Only the first attempt inserts: if it fails, or its outcome is unknown, the next one must find what is stored.
//
// Invariant: the first items of the chains are in the order of the chains, over all statements. They lock the records, and nodes that do so in
// different orders deadlock. TestLockOrder checks it.
func (w *work) fill() (statements int) {
	w.insert.reset()
	w.fresh, w.before = w.fresh[:0], 0
	for i := range w.chains {
		c := &w.chains[i]
		if c.fresh && i > 0 && len(w.fresh) == 0 {
			w.before = 1
		}
		c.sent = 0
		for k := w.before; c.sent < maxStatements && c.from+c.sent < c.to; {
			it := &w.items[c.from+c.sent]
			blind := it.e.Guard != nil && !it.cleared
			if c.fresh {
				c.fresh = false
				w.insert.add(it.e, blind)
				w.fresh = append(w.fresh, c.from)
			} else {
				statements = w.put(statements, k, c.from+c.sent, blind)
				k++
			}
			c.sent++
			if blind {
				break
			}
		}
	}
	return statements
}

// put puts an item into statement k of those of the next transaction, and returns their number.
func (w *work) put(statements, k int, i int32, blind bool) int {
	if k == statements {
		w.passes[k].reset()
		w.rows[k] = w.rows[k][:0]
		statements++
	}
	w.passes[k].add(w.items[i].e, blind)
	w.rows[k] = append(w.rows[k], i)
	return statements
}

// add adds a reading to the parameters of settle.
func (p *params) add(e *storage.Entry, blind bool) {
	r, a := e.Reading, &p.arrays
	a[0].name(&r.Device)
	a[1].int64(r.TimeUnixMs)
	a[2].int64(e.ReceivedUnixMs)
	for sg := range columns {
		if v, ok := r.Values.Get(vitals.Sign(sg)); ok {
			a[3+sg].int16(int16(v))
		} else {
			a[3+sg].null()
		}
	}
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		a[8].int16(int16(minutes))
	} else {
		a[8].null()
	}
	if blind {
		a[9].int16(-1)
	} else {
		a[9].int16(0)
	}
	if r.Gateway.IsZero() {
		a[10].null()
	} else {
		a[10].name(&r.Gateway)
	}
	// unnest makes NULL of what an array lacks at its end.
	if more := r.Values.Present() &^ inColumns; more != 0 {
		for a[11].n+1 < a[0].n {
			a[11].null()
		}
		a[11].more(&r.Values)
	}
}

// send runs one transaction in one round trip, and notes what its statements return.
func (w *work) send(conn *pgx.Conn, statements int, hinted bool) error {
	for i := range w.items {
		w.items[i].wrote = false // of an earlier attempt
	}
	horizonMs := int64(math.MaxInt64) // without a mark, no statement checks it
	if w.mark != (mark{}) {
		horizonMs = w.s.horizon.Load()
	}
	freshMs := fillLate(w, horizonMs)
	var b pgconn.Batch
	w.s.sql.unsealLate(&b, &w.late)
	for k := range statements + 1 {
		if w.insertsBefore(k) {
			b.ExecPrepared(w.s.sql.insert, w.insert.encode(settleTypes[:]), binaryFormat, binaryFormat)
		}
		if k < statements {
			b.ExecPrepared(w.s.sql.settle, w.passes[k].encode(settleTypes[:]), binaryFormat, binaryFormat)
		}
	}
	if hinted {
		b.ExecPrepared(w.s.sql.hint, w.hints.encode(hintTypes[:]), binaryFormat, binaryFormat)
	}
	if w.mark != (mark{}) {
		b.ExecPrepared(w.s.sql.generation, w.s.marks.params(w.mark, freshMs), binaryFormat, binaryFormat)
	}
	// No context: see the package comment.
	results := conn.PgConn().ExecBatch(context.Background(), &b)
	err := w.receive(results, statements, hinted)
	if closeErr := results.Close(); err == nil || closeErr != nil {
		err = closeErr
	}
	return err
}

// insertsBefore reports whether the statement that inserts is sent before statement k.
func (w *work) insertsBefore(k int) bool { return len(w.fresh) > 0 && k == w.before }

// fillLate puts the keys of readings before the horizon into the parameters of unseal, and returns the earliest time of the others.
func fillLate(w *work, horizonMs int64) (freshMs int64) {
	w.late.reset()
	freshMs = math.MaxInt64
	for i := range w.chains {
		r := w.items[w.chains[i].from].e.Reading
		if r.TimeUnixMs >= horizonMs {
			freshMs = min(freshMs, r.TimeUnixMs)
			continue
		}
		w.late.arrays[0].name(&r.Device)
		w.late.arrays[1].int64(r.TimeUnixMs)
	}
	return freshMs
}

// unsealLate adds the statements that turn the segments of late readings into rows again.
func (q *statements) unsealLate(b *pgconn.Batch, late *params) {
	if late.rows() > 0 {
		b.ExecPrepared(q.meet, nil, nil, binaryFormat)
		b.ExecPrepared(q.unseal, late.encode(findTypes[:]), binaryFormat, binaryFormat)
	}
}

// receive reads the results of send.
func (w *work) receive(results *pgconn.MultiResultReader, statements int, hinted bool) error {
	var tag pgconn.CommandTag // of the last result
	// each calls row with each row of the next result.
	each := func(sizes []int, row func(v [][]byte) error) (err error) {
		if !results.NextResult() {
			return results.Close()
		}
		rows := results.ResultReader()
		for rows.NextRow() {
			v := rows.Values()
			if err := checkSizes(v, sizes); err != nil {
				return err
			}
			if err := row(v); err != nil {
				return err
			}
		}
		tag, err = rows.Close()
		return err
	}
	if w.late.rows() > 0 {
		if err := each([]int{text}, func([][]byte) error { return nil }); err != nil {
			return err
		}
		if err := each(nil, nil); err != nil {
			return err
		}
	}
	for k := range statements + 1 {
		if w.insertsBefore(k) {
			if err := each(nil, nil); err != nil {
				return err
			}
			if n := tag.RowsAffected(); n != int64(len(w.fresh)) {
				return fmt.Errorf("PostgreSQL inserted %d of %d readings", n, len(w.fresh))
			}
			for _, i := range w.fresh {
				w.items[i].wrote, w.items[i].had = true, 0
			}
		}
		if k == statements {
			break
		}
		next := 0
		if err := each(settledSizes, func(v [][]byte) error {
			if next = w.match(k, next, v[0], decodeInt64(v[1])); next < 0 {
				return errors.New("PostgreSQL returned a reading that was not sent")
			}
			it := &w.items[w.rows[k][next]]
			it.wrote, it.had = true, decodeHad(v[2], v[3])
			next++
			return nil
		}); err != nil {
			return err
		}
	}
	if hinted {
		if err := each(nil, nil); err != nil {
			return err
		}
	}
	if w.mark == (mark{}) {
		return nil
	}
	standbys := true
	err := each(generationSizes, func(v [][]byte) error {
		w.generation, standbys = decodeInt64(v[0]), v[1][0] != 0
		return nil
	})
	if err == nil && !standbys && !w.s.opt.Single {
		err = ErrNotReplicated
	}
	return err
}

// match returns the position in statement k of the reading with this key, or -1. Rows are
// returned in the order in which they were sent, so the search usually ends at once.
func (w *work) match(k, from int, device []byte, timeUnixMs int64) int {
	var text [vitals.MaxNameBytes]byte
	for i := range len(w.rows[k]) {
		i = (from + i) % len(w.rows[k])
		r := w.items[w.rows[k][i]].e.Reading
		if r.TimeUnixMs == timeUnixMs && bytes.Equal(r.Device.AppendTo(text[:0]), device) {
			return i
		}
	}
	return -1
}

// fillHints notes the readings to be sent, and puts the devices that are due into the parameters
// of hint. It reports whether there are any. If insert is true, it notes also which chains begin with a reading that is expected
// to be new: it is later than all that this node knows of its device. Of several runs of such chains, only the longest one is inserted.
func (w *work) fillHints(insert bool) bool {
	w.hints.reset()
	r := &w.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	insert = insert && w.s.opt.Move == 0 && time.Since(r.collidedAt) > r.settlesFor
	var device *vitals.Name
	var newestMs int64 // of the device, before these readings
	var run, longest []chain
	for i := range w.chains {
		c := &w.chains[i]
		c.fresh = false
		e := w.items[c.from].e
		k := r.known[e.Reading.Device]
		if k == nil { // another lane has found a new generation
			run = nil
			continue
		}
		if device == nil || *device != e.Reading.Device {
			device, newestMs = &e.Reading.Device, k.newestMs
		}
		if insert && newestMs > 0 && e.Reading.TimeUnixMs > newestMs {
			run = w.chains[i-len(run) : i+1]
		} else {
			run = nil
		}
		if len(run) > len(longest) {
			longest = run
		}
		if !k.note(e.Reading) {
			continue
		}
		k.stored = 0
		w.hints.arrays[0].name(&e.Reading.Device)
		for sg, ms := range k.latestMs {
			if ms == 0 {
				w.hints.arrays[1+sg].null()
			} else {
				w.hints.arrays[1+sg].int64(ms)
			}
		}
	}
	for i := range longest {
		longest[i].fresh = true
	}
	return w.hints.rows() > 0
}

// registerAgain registers the devices of a lane after rows of devices were deleted.
func (s *writer) registerAgain(t *try, part []*storage.Entry, generation int64) error {
	s.registry.renew(generation)
	wanted, generation := s.registry.missing(part)
	if len(wanted) == 0 {
		return nil
	}
	if err := t.run(func(conn *pgx.Conn) error { return s.register(conn, wanted, false) }); err != nil {
		return err
	}
	s.registry.add(wanted, generation)
	return nil
}
