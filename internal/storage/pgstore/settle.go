package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
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
	s    *writer
	sql  *writeStatements // for the signs of part
	part []*storage.Entry

	items  []item
	chains []chain
	order  []int32          // positions of items, in the order of the group
	made   []storage.Record // what the items have made of the records; it does not grow while a group is settled
	finder params
	found  []record
	writes params
	hints  params
	late   params // keys of readings that may be in segments

	freshMs int64 // the earliest time of those that are in none

	mark       mark  // of the next transaction; the zero mark is that of a repair, which sets others
	generation int64 // that the last transaction has read
	accepted   []*storage.Entry

	assigned map[vitals.Name][]storage.Assignment // of the devices about which the lane has claims
	wearers  map[vitals.Name]*storage.Wearers     // of these, as the readings leave them

	retried bool // an earlier attempt may have written something

	unit   []int32           // chains of the items of the unit that is being settled
	before []*storage.Record // later of these, at its beginning
}

// An item is a reading of a lane.
type item struct {
	e      *storage.Entry
	at     int32           // its position in the lane's part of the group
	chain  int32           // its chain
	others bool            // its record counted as another gateway's
	tried  storage.Outcome // Stored or Completed in an attempt that may have been committed
}

// A chain is the items of one device and time, in their order.
type chain struct {
	from, to int32
	fresh    bool // the record is expected not to exist, and is not looked up

	have   *storage.Record // the record that was found, and is locked
	stored *storage.Record // the record that the transaction has inserted
	later  *storage.Record // the record after the items that were settled so far; it is replaced, never modified
}

// maxKept is the number of readings for which a work keeps its buffers.
const maxKept = 1 << 14

// errUnsettled means that others changed records or assignments again and again while readings of them were
// settled.
var errUnsettled = errors.New("the deadline passed before all readings were settled")

// errStale rolls back a transaction that has written something which does not hold any more: another node has changed
// what it depends on.
var errStale = errors.New("records or assignments have changed")

// lane settles the readings of one lane, which are in the order of the group.
func (s *writer) lane(t *try, part []*storage.Entry, generation int64) error {
	if len(part) == 0 {
		return nil
	}
	w := s.work(part)
	defer s.release(w)
	for len(w.part) > 0 {
		stale, closed, err := w.commit(t)
		if damaged(err) && !t.unknown {
			if err = s.leaveOutUnreadable(t, w, err); err == nil {
				continue
			}
		}
		switch {
		case err != nil:
			w.returnGuards()
			return err
		case closed != nil:
			w.returnGuards()
			w.start(s.admit(w.part, isClosed(map[int64]bool{closed.partition: true})))
		case !stale:
			// From now on, something of the group is written.
			t.written = true
			if w.generation != generation {
				return s.registerAgain(t, part, w.generation)
			}
			return nil
		case time.Now().After(t.deadline):
			w.returnGuards()
			return t.fail(errUnsettled)
		}
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
		clear(w.made)
		s.works.Put(w)
	}
}

// start sorts the readings into chains.
func (w *work) start(part []*storage.Entry) {
	w.part, w.mark, w.assigned = part, mark{}, nil
	w.items = w.items[:0]
	signs := uint32(0)
	for i, e := range part {
		signs |= e.Reading.Values.Present()
		w.items = append(w.items, item{e: e, at: int32(i)})
	}
	w.sql = w.s.sql.seen(signs)
	slices.SortFunc(w.items, func(a, b item) int {
		return cmp.Or(compareKeys(a.e.Reading, &b.e.Reading.Device, b.e.Reading.TimeUnixMs), int(a.at-b.at))
	})
	w.chains = w.chains[:0]
	w.order = slices.Grow(w.order[:0], len(part))[:len(part)]
	for i := range w.items {
		r := w.items[i].e.Reading
		if n := len(w.chains); n > 0 && compareKeys(w.items[i-1].e.Reading, &r.Device, r.TimeUnixMs) == 0 {
			w.chains[n-1].to++
		} else {
			w.chains = append(w.chains, chain{from: int32(i), to: int32(i + 1)})
		}
		w.items[i].chain = int32(len(w.chains) - 1)
		w.order[w.items[i].at] = int32(i)
	}
}

// reading returns the first reading of a chain.
func (w *work) reading(c *chain) *vitals.Reading { return w.items[c.from].e.Reading }

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

// commit settles the readings in one transaction. It reports whether that was rolled back because others have changed
// what it depends on, or because a partition cannot be written.
func (w *work) commit(t *try) (stale bool, closed *closedError, err error) {
	if w.mark, err = w.s.marks.take(t); err != nil {
		return false, nil, err
	}
	defer w.s.marks.release(w.mark)
	hinted := w.fillHints(!t.unknown)
	var damage error // of the last attempt
	closed, err = t.runOpen(func(conn *pgx.Conn) error {
		err := w.attempt(t, conn, hinted)
		if sqlState(err) == duplicateKey {
			// Another server has stored a reading that was expected to be new: nothing was written.
			t.s.counters.retry(duplicateKey)
			w.s.registry.collided()
			w.expectNothing()
			err = w.attempt(t, conn, hinted)
		}
		if stale = errors.Is(err, errStale); stale {
			w.expectNothing()
			return nil // the outcome is known
		}
		if damage = err; damaged(err) && !t.unknown {
			return nil // likewise: nothing was committed
		}
		return err
	})
	if err == nil && damaged(damage) {
		err = damage
	}
	if err == nil && !stale && closed == nil {
		w.s.marks.acknowledge(w.mark, w.generation)
		w.s.remember(w, changedBy(w, t.unknown)...)
	}
	return stale, closed, err
}

func (w *work) expectNothing() {
	for i := range w.chains {
		w.chains[i].fresh = false
	}
}

// attempt runs the transaction: in one statement if all records are expected to be new, and otherwise in several round
// trips.
func (w *work) attempt(t *try, conn *pgx.Conn, hinted bool) (err error) {
	// Which reading of a unit is rejected depends on all of their records; after a deadlock, all are locked in order.
	if t.unknown || t.rolledBack || slices.ContainsFunc(w.part, func(e *storage.Entry) bool { return e.Unit > 1 }) {
		w.expectNothing()
	}
	w.mark = w.s.marks.attempt(w.mark)
	if err := w.sql.prepare(context.Background(), conn); err != nil {
		return err
	}
	for i := range w.chains {
		c := &w.chains[i]
		c.have, c.stored = nil, nil
	}
	old := func(c chain) bool { return !c.fresh }
	if t.rolledBack || slices.ContainsFunc(w.chains, old) ||
		slices.ContainsFunc(w.part, func(e *storage.Entry) bool { return e.Claim != nil }) {
		err = transact(t, w, conn, func() error {
			if err := readClaims(w, conn); err != nil {
				return err
			}
			if err := w.store(t, conn.PgConn()); err != nil {
				return err
			}
			if err := w.finish(conn.PgConn(), hinted); err != nil {
				return err
			}
			return writeClaims(w, conn)
		})
	} else if err = w.s.partitions.ensure(conn, w, &w.s.partitions.known); err == nil {
		w.settle(false)
		var x exchange
		if w.freshMs = fillLate(w, w.s.horizon.Load()); w.late.rows() > 0 {
			x.add(w.s.sql.meet, nil, []int{text}, ignoreRow)
			x.add(w.s.sql.unseal, w.late.encode(findTypes[:]), nil, nil)
		}
		w.insertNew(&x, w.sql.insert)
		err = w.finishIn(&x, conn.PgConn(), hinted)
	}
	if err != nil {
		return err
	}
	return changelog{w.s.database}.keepUp(conn, w.generation)
}

// transact runs do in a transaction of several round trips. After an attempt that was rolled back, nothing is removed,
// and the horizon is not raised, between what this server reads first and the commit: otherwise it might be rolled back
// for as long as others do such things.
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
			if err := p.hold(tx); err != nil {
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
	for i := range w.items {
		if e := w.items[i].e; e.Outcome != 0 && e.Outcome <= storage.Duplicate && !e.Reading.Values.IsZero() {
			w.accepted = append(w.accepted, e)
		}
	}
	if len(w.accepted)+len(claims) > 0 {
		keeper{s.database}.keep(history.Entry{Generation: w.generation}, w.mark, w.accepted, claims...)
	}
}

// store settles the readings in a transaction that others do not remove anything beside, and inserts what is new. It
// locks, in this order, the sealer's lock, the table (both before the transaction has a number: otherwise removals
// would deadlock with it), the records that exist, and those that it inserts, each in the order of the keys.
//
// Invariant: the records of all duplicates are locked, which makes the commit wait for the standbys. TestDuplicatesWait
// checks it.
func (w *work) store(t *try, conn *pgconn.PgConn) error {
	var x exchange
	x.add(w.s.sql.meet, nil, []int{text}, ignoreRow)
	x.add(w.s.sql.hold, nil, nil, nil)
	horizonMs := int64(math.MaxInt64) // without a mark, no statement checks it
	if w.mark != (mark{}) {
		horizonMs = w.s.horizon.Load()
	}
	if w.freshMs = fillLate(w, horizonMs); w.late.rows() > 0 {
		x.add(w.s.sql.unseal, w.late.encode(findTypes[:]), nil, nil)
	}
	missing := func(c chain) bool { return !c.fresh }
	for {
		if err := w.find(&x, conn, missing); err != nil {
			return err
		}
		w.settle(t.unknown)
		for i := range w.chains {
			if c := &w.chains[i]; c.stored != nil && (c.later == nil || !sameRecord(*c.later, *c.stored)) {
				return errStale
			}
		}
		x = exchange{}
		if !w.insertNew(&x, w.sql.insertNew) {
			return nil
		}
		if err := x.run(conn); err != nil {
			return err
		}
		x = exchange{}
		missing = func(c chain) bool { return c.have == nil && c.later != nil && c.stored == nil }
		if !slices.ContainsFunc(w.chains, missing) {
			return nil
		}
	}
}

// insertNew adds the statement that inserts what is new, and reports whether there is anything.
func (w *work) insertNew(x *exchange, statement string) bool {
	w.writes.reset(len(w.sql.settleTypes))
	for i := range w.chains {
		if c := &w.chains[i]; c.have == nil && c.stored == nil && c.later != nil {
			w.writes.add(&w.reading(c).Device, c.later, w.sql.signs)
		}
	}
	n := w.writes.rows()
	if n == 0 {
		return false
	}
	params := w.writes.encode(w.sql.settleTypes)
	if statement == w.sql.insert {
		x.add(statement, params, nil, nil)
		x.affects(int64(n))
		return true
	}
	next := 0
	x.add(statement, params, settledSizes, func(v [][]byte) error {
		var text [vitals.MaxNameBytes]byte
		for ms := decodeInt64(v[1]); next < len(w.chains); next++ { // rows are returned in the order in which they were sent
			c := &w.chains[next]
			if r := w.reading(c); r.TimeUnixMs == ms && string(r.Device.AppendTo(text[:0])) == string(v[0]) {
				stored := *c.later // the next settling reuses made
				c.stored = &stored
				return nil
			}
		}
		return errors.New("PostgreSQL returned a reading that was not sent")
	})
	return true
}

// finish writes what was completed, and sets the mark.
func (w *work) finish(conn *pgconn.PgConn, hinted bool) error {
	var x exchange
	w.writes.reset(len(w.sql.settleTypes))
	for i := range w.chains {
		if c := &w.chains[i]; c.have != nil && c.later != c.have {
			w.writes.add(&w.reading(c).Device, c.later, w.sql.signs)
		}
	}
	if n := w.writes.rows(); n > 0 {
		x.add(w.sql.complete, w.writes.encode(w.sql.settleTypes), nil, nil)
		x.affects(int64(n))
	}
	return w.finishIn(&x, conn, hinted)
}

// finishIn sends an exchange with hints and the mark at its end.
func (w *work) finishIn(x *exchange, conn *pgconn.PgConn, hinted bool) error {
	for i := range w.items {
		if it := &w.items[i]; it.e.Outcome == storage.Stored || it.e.Outcome == storage.Completed && it.tried == 0 {
			it.tried = it.e.Outcome
		}
	}
	if hinted {
		x.add(w.sql.hint, w.hints.encode(w.sql.hintTypes), nil, nil)
	}
	standbys := true
	if w.mark != (mark{}) {
		x.add(w.s.sql.generation, w.s.marks.params(w.mark, w.freshMs), generationSizes, func(v [][]byte) error {
			w.generation, standbys = decodeInt64(v[0]), v[1][0] != 0
			return nil
		})
	}
	err := x.run(conn)
	if err == nil && !standbys && !w.s.opt.Single {
		err = ErrNotReplicated
	}
	return err
}

// add adds a record to the parameters of the statements that write some signs.
func (p *params) add(device *vitals.Name, r *storage.Record, signs uint32) {
	a := p.arrays
	a[0].name(device)
	a[1].int64(r.TimeUnixMs)
	a[2].int64(r.ReceivedUnixMs)
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		a[3].int16(int16(minutes))
	} else {
		a[3].null()
	}
	a[4].bool(r.Shared)
	if r.Gateway == nil {
		a[5].null()
	} else {
		a[5].name(r.Gateway)
	}
	if ms := completedMs(r); ms > 0 {
		for a[6].n < a[0].n-1 { // unnest makes NULL of what an array lacks at its end
			a[6].null()
		}
		a[6].int64(ms)
	}
	for a = a[len(settleTypes):]; signs != 0; signs &= signs - 1 {
		if v, ok := r.Values.Get(vitals.Sign(bits.TrailingZeros32(signs))); ok {
			a[0].int32(int32(v))
		} else {
			a[0].null()
		}
		a = a[1:]
	}
}

// An exchange is statements that are sent in one round trip.
type exchange struct {
	batch pgconn.Batch
	steps []step
	done  int // the number of steps that have succeeded
}

// A step receives the result of a statement.
type step struct {
	sizes   []int
	row     func(v [][]byte) error
	affects int64 // the number of rows that it must affect; 0 means any
}

// add adds a prepared statement. row is called with each of its rows.
func (x *exchange) add(statement string, params [][]byte, sizes []int, row func(v [][]byte) error) {
	x.batch.ExecPrepared(statement, params, binaryFormat[:min(len(params), 1)], binaryFormat)
	x.steps = append(x.steps, step{sizes: sizes, row: row})
}

// affects makes it an error if the last statement does not affect n rows.
func (x *exchange) affects(n int64) { x.steps[len(x.steps)-1].affects = n }

func ignoreRow([][]byte) error { return nil }

// run sends the statements, and receives their results.
func (x *exchange) run(conn *pgconn.PgConn) error {
	if len(x.steps) == 0 {
		return nil
	}
	// No context: see the package comment.
	results := conn.ExecBatch(context.Background(), &x.batch)
	err := x.receive(results)
	if closeErr := results.Close(); err == nil || closeErr != nil {
		err = closeErr
	}
	return err
}

func (x *exchange) receive(results *pgconn.MultiResultReader) error {
	for _, s := range x.steps {
		if !results.NextResult() {
			return results.Close()
		}
		rows := results.ResultReader()
		for rows.NextRow() {
			v := rows.Values()
			if s.sizes != nil {
				if err := checkSizes(v, s.sizes); err != nil {
					return err
				}
			}
			if err := s.row(v); err != nil {
				return err
			}
		}
		tag, err := rows.Close()
		if err != nil {
			return err
		}
		if n := tag.RowsAffected(); s.affects != 0 && n != s.affects {
			return fmt.Errorf("PostgreSQL wrote %d of %d readings", n, s.affects)
		}
		x.done++
	}
	return nil
}

// fillLate puts the keys of readings before the horizon into the parameters of unseal, and returns the earliest time of
// the others.
func fillLate(w *work, horizonMs int64) (freshMs int64) {
	w.late.reset(len(findTypes))
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

// fillHints notes the readings to be sent, and puts the devices that are due into the parameters
// of hint. It reports whether there are any. If insert is true, it notes also which chains begin with a reading that is
// expected to be new: it is later than all that this node knows of its device.
func (w *work) fillHints(insert bool) bool {
	w.hints.reset(len(w.sql.hintTypes))
	r := &w.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	insert = insert && w.s.opt.Move == 0 && time.Since(r.collidedAt) > r.settlesFor
	var device *vitals.Name
	var newestMs int64 // of the device, before these readings
	for i := range w.chains {
		c := &w.chains[i]
		c.fresh = false
		e := w.items[c.from].e
		k := r.known[e.Reading.Device]
		if k == nil { // another lane has found a new generation
			continue
		}
		if device == nil || *device != e.Reading.Device {
			device, newestMs = &e.Reading.Device, k.newestMs
		}
		c.fresh = insert && newestMs > 0 && e.Reading.TimeUnixMs > newestMs
		if !k.note(e.Reading) {
			continue
		}
		k.stored = 0
		w.hints.arrays[0].name(&e.Reading.Device)
		for i, sg := range inBits(w.sql.signs) {
			if ms := k.latest(sg); ms == nil || *ms == 0 {
				w.hints.arrays[1+i].null()
			} else {
				w.hints.arrays[1+i].int64(*ms)
			}
		}
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
