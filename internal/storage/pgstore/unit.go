package pgstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// ofUnits returns the entries of the devices that occur in units or with claims, and the others.
func ofUnits(group []*storage.Entry) (units, others []*storage.Entry) {
	if !slices.ContainsFunc(group, func(e *storage.Entry) bool { return e.Unit > 1 || e.Claim != nil }) {
		return nil, group
	}
	// All entries of a device stay in their order, so those that share a unit or a device go together.
	in := map[vitals.Name]bool{}
	for rest := group; len(rest) > 0; {
		n := storage.UnitLen(rest)
		for _, e := range rest[:n] {
			in[e.Reading.Device] = in[e.Reading.Device] || n > 1 || e.Claim != nil
		}
		rest = rest[n:]
	}
	for _, e := range group {
		if in[e.Reading.Device] {
			units = append(units, e)
		} else {
			others = append(others, e)
		}
	}
	return units, others
}

// errStale rolls back a transaction of units, of which another node has changed the records after they
// were compared.
var errStale = errors.New("the records of a unit have changed")

// unitLane settles the readings of a lane with units. It compares them with the stored records first,
// drops the units that do not fit, and writes all others in one transaction, which it rolls back if
// any of their readings then turns out not to fit.
func (s *writer) unitLane(t *try, part []*storage.Entry, generation int64) error {
	w := s.work(part)
	defer s.release(w)
	for {
		stale := false
		closed, err := t.runOpen(func(conn *pgx.Conn) error { return findAll(t, w, conn) })
		if err == nil && closed == nil {
			w.plan(part, t.unknown)
			statements := w.fillUnits()
			if statements == 0 && !changesClaims(w) {
				return nil
			}
			stale, closed, err = w.writeUnits(t, statements)
		}
		switch {
		case err != nil:
			return err
		case closed != nil:
			part = s.admit(part, nil, map[int64]bool{closed.partition: true})
			w.start(part)
			continue
		case !stale:
			t.written = true
			if w.generation != generation {
				return s.registerAgain(t, part, w.generation)
			}
			return nil
		}
		if time.Now().After(t.deadline) {
			return t.fail(errUnsettled)
		}
	}
}

// findAll reads the records of all chains, also of those that were in segments.
func findAll(t *try, w *work, conn *pgx.Conn) error {
	find := func() error {
		if err := readClaims(w, conn); err != nil {
			return err
		}
		return w.find(conn.PgConn(), func(chain) bool { return true })
	}
	if fillLate(w, w.s.horizon.Load()); w.late.rows() == 0 && !t.rolledBack {
		return find()
	}
	return transact(t, w, conn, func() error { // nothing is sealed again meanwhile
		var b pgconn.Batch
		w.s.sql.unsealLate(&b, &w.late)
		if err := conn.PgConn().ExecBatch(context.Background(), &b).Close(); err != nil {
			return err
		}
		return find()
	})
}

// plan settles the readings as if nobody else wrote. In each chain, later is the record as the accepted
// readings so far leave it.
func (w *work) plan(part []*storage.Entry, retried bool) {
	for i := range w.chains {
		w.chains[i].later = w.chains[i].have
	}
	w.inOrder()
	storage.Settle(part, &plan{work: w})
	for i := range w.items {
		it := &w.items[i]
		it.writes = it.e.Outcome == storage.Stored || it.e.Outcome == storage.Completed
		switch it.e.Outcome {
		case storage.Duplicate:
			if have := w.chains[it.chain].have; retried && have != nil && !it.e.Reading.Values.IsZero() {
				it.e.Outcome = have.repeated(it.e)
			}
		case storage.OtherSubject, storage.TooManyAssignments:
			w.s.unswept.Store(true) // the device may have been registered for it
		}
	}
}

// A plan is the chains of a work for storage.Settle.
type plan struct {
	*work
	unit   []int32   // the chains of the items of the unit
	before []*record // of these, at its beginning
}

func (p *plan) chain(i int) *chain { return &p.chains[p.items[p.order[i]].chain] }

func (p *plan) entry(i int) *storage.Entry { return p.items[p.order[i]].e }

// Admit implements [storage.Ledger]. Devices are registered.
func (p *plan) Admit(int) storage.Outcome { return 0 }

// Wearers implements [storage.Ledger].
func (p *plan) Wearers(i int) (*storage.Wearers, storage.Outcome) {
	return p.wearers[p.entry(i).Reading.Device], 0
}

// Find implements [storage.Ledger].
func (p *plan) Find(i int) (have *vitals.Values, others bool, rejected storage.Outcome) {
	later := p.chain(i).later
	if later == nil {
		return nil, false, 0
	}
	return &later.Values, later.Shared || !later.NamesGateway(&p.entry(i).Reading.Gateway), 0
}

// Store implements [storage.Ledger].
func (p *plan) Store(i int) { p.chain(i).later = &record{Record: storage.RecordOf(p.entry(i))} }

// Complete implements [storage.Ledger].
func (p *plan) Complete(i int, values vitals.Values, others bool) {
	c := p.chain(i)
	changed := *c.later
	changed.Complete(p.entry(i).Reading, values, others)
	c.later = &changed
}

// Begin implements [storage.Ledger].
func (p *plan) Begin(begin, n int) {
	p.unit, p.before = p.unit[:0], p.before[:0]
	for i := range n {
		p.unit = append(p.unit, p.items[p.order[begin+i]].chain)
		p.before = append(p.before, p.chain(begin+i).later)
	}
}

// End implements [storage.Ledger].
func (p *plan) End(rejected bool) {
	for i, n := range p.unit {
		if rejected {
			p.chains[n].later = p.before[i]
		}
	}
}

// accepted reports whether the item is to be stored, or is stored already.
func (it *item) accepted() bool { return it.e.Outcome != 0 && it.e.Outcome <= storage.Duplicate }

// fillUnits puts the items that write into the statements of a transaction, and one item of each other
// chain that is accepted, so that its record is locked. It returns the number of statements. Each item
// of a chain that writes adds a sign, so there are few.
func (w *work) fillUnits() (statements int) {
	for i := range w.chains {
		c := &w.chains[i]
		k, duplicate := 0, int32(-1)
		for i := c.from; i < c.to; i++ {
			switch it := &w.items[i]; {
			case it.writes:
				statements = w.put(statements, k, i, false)
				k++
			case it.accepted() && !it.e.Reading.Values.IsZero():
				duplicate = i
			}
		}
		if k == 0 && duplicate >= 0 {
			statements = w.put(statements, 0, duplicate, false)
		}
	}
	return statements
}

// writeUnits runs the transaction. It reports whether it was rolled back because a record has changed, or because a
// partition cannot be written.
func (w *work) writeUnits(t *try, statements int) (stale bool, closed *closedError, err error) {
	if w.mark, err = w.s.marks.take(t); err != nil {
		return false, nil, err
	}
	defer w.s.marks.release(w.mark)
	hinted := w.fillHints(false)
	closed, err = t.runOpen(func(conn *pgx.Conn) error {
		w.mark = w.s.marks.attempt(w.mark)
		err := transact(t, w, conn, func() error {
			if err := w.send(conn, statements, hinted); err != nil {
				return err
			}
			if err := confirm(w, conn.PgConn()); err != nil {
				return err
			}
			return writeClaims(w, conn)
		})
		if stale = errors.Is(err, errStale); stale {
			return nil // the outcome is known
		}
		if err != nil {
			return err
		}
		return changelog{w.s.database}.keepUp(conn, w.generation)
	})
	if err == nil && !stale && closed == nil {
		w.s.marks.acknowledge(w.mark, w.generation)
		w.s.remember(w, changedBy(w, t.unknown)...)
	}
	return stale, closed, err
}

// confirm returns errStale unless the accepted items are stored now. Their records are locked.
func confirm(w *work, conn *pgconn.PgConn) error {
	repeats := func(c chain) bool {
		return slices.ContainsFunc(w.items[c.from:c.to], func(it item) bool { return it.accepted() && !it.writes })
	}
	if slices.ContainsFunc(w.chains, repeats) {
		if err := w.find(conn, repeats); err != nil {
			return err
		}
	}
	for i := range w.items {
		it := &w.items[i]
		switch {
		case it.writes != it.wrote: // a record that it repeats was removed, unless it was to write
			return errStale
		case it.writes && it.had == 0:
			it.e.Outcome = storage.Stored
		case it.writes:
			it.e.Outcome = storage.Completed
		case it.accepted() && !it.e.Reading.Values.IsZero():
			have := w.chains[it.chain].have
			if have == nil {
				return errStale
			}
			if _, _, outcome := storage.Merge(&have.Values, &it.e.Reading.Values); outcome != storage.Duplicate {
				return errStale
			}
		}
	}
	return nil
}
