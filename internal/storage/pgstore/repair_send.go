package pgstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// batchReadings is the number of readings of which a transaction of a repair consists, about.
const batchReadings = 2000

// A batch is some entries that are sent in one transaction.
type batch struct {
	readings     []*storage.Entry
	acknowledged []int64 // when each was, in ms
	assignments  []*history.Entry
	lost         *Loss
	owed         map[int64]Loss // by partition: readings that are left out
	to           numbers
	untilMs      int64
}

// send sends the entries that the database lacks, in their order.
func (r *repair) send() error {
	removed, err := changelog{r.database}.removals()
	if err != nil {
		return err
	}
	r.ends = map[storage.AssignmentKey][]int64{}
	b, last := batch{to: numbers{}}, history.Mark{}
	closed := map[int64]int{} // how often a partition could not be written
	for e, err := range r.memory.All() {
		if err != nil {
			return err
		}
		if e.Number <= r.have[e.Slot] {
			continue
		}
		// A transaction with claims has several entries, which have one number and are sent together.
		if len(b.readings)+len(b.assignments) >= batchReadings && e.Mark != last {
			if err := r.sendBatch(&b, closed); err != nil {
				return err
			}
			b = batch{to: numbers{}}
		}
		b.add(e, removed)
		last = e.Mark
	}
	if err := r.sendBatch(&b, closed); err != nil {
		return err
	}
	r.noteDebts()
	return nil
}

// add adds an entry without what was removed.
func (b *batch) add(e *history.Entry, all removals) {
	b.to[e.Slot], b.untilMs = e.Number, e.UnixMs
	for i := range e.Readings {
		reading := &e.Readings[i]
		removed, doubtful := all.reading(e, reading)
		if doubtful {
			b.lost = b.lost.extend(e.UnixMs, e.UnixMs)
		}
		if !removed {
			b.addReading(e, reading)
		}
	}
	if e.Assignments == nil {
		return
	}
	switch removed, doubtful := all.assignment(e); {
	case doubtful:
		b.lost = b.lost.extend(e.UnixMs, e.UnixMs)
	case !removed:
		b.assignments = append(b.assignments, all.ended(e))
	}
}

// addReading adds a reading of an entry.
func (b *batch) addReading(e *history.Entry, reading *history.Reading) {
	b.readings = append(b.readings, &storage.Entry{Reading: &reading.Reading, ReceivedUnixMs: reading.ReceivedUnixMs,
		Relayed: reading.Relayed})
	b.acknowledged = append(b.acknowledged, e.UnixMs)
}

// closedAfter is how often a repair tries a partition that cannot be written before it leaves out its readings. Each
// time, it waits a quarter of a second for a lock, which may be held for a moment only.
const closedAfter = 8

// sendBatch stores a batch and sets its marks in one transaction. It leaves out readings of partitions that cannot be
// written, and finds further ones of those.
func (r *repair) sendBatch(b *batch, closed map[int64]int) error {
	if len(b.to) == 0 {
		return nil
	}
	for {
		b.leaveOut(closed)
		err := r.tryBatch(b)
		c, ok := errors.AsType[*closedError](err)
		if !ok {
			return err
		}
		closed[c.partition]++
	}
}

// leaveOut removes the readings of partitions from a batch.
func (b *batch) leaveOut(closed map[int64]int) {
	kept := 0
	for i, e := range b.readings {
		n, atMs := partitionOf(e.Reading.TimeUnixMs), b.acknowledged[i]
		if closed[n] < closedAfter {
			b.readings[kept], b.acknowledged[kept] = e, atMs
			kept++
			continue
		}
		if b.owed == nil {
			b.owed = map[int64]Loss{}
		}
		l, known := b.owed[n]
		if !known {
			l = Loss{atMs, atMs}
		}
		b.owed[n] = *l.extend(atMs, atMs)
	}
	b.readings, b.acknowledged = b.readings[:kept], b.acknowledged[:kept]
}

// tryBatch is sendBatch for partitions that can be written. Otherwise it returns a closedError.
func (r *repair) tryBatch(b *batch) error {
	w := r.writer.work(b.readings)
	defer r.writer.release(w)
	if err := r.writer.partitions.ensure(r.conn, w, &sync.Map{}); err != nil { // one may be closed since
		return err
	}
	contradicted, owed := 0, map[int64]*debt{}
	if err := r.step(func(tx pgx.Tx) error {
		contradicted = 0
		if err := r.store(tx, w); err != nil {
			return err
		}
		for _, e := range b.assignments {
			ok, err := r.assign(tx, e)
			if err != nil {
				return err
			}
			if !ok {
				contradicted++
			}
		}
		if b.lost != nil {
			if err := r.insertLoss(tx, newID(), *b.lost); err != nil {
				return err
			}
		}
		for n, l := range b.owed {
			d, err := r.owe(tx, n, l)
			if err != nil {
				return err
			}
			owed[n] = d
		}
		if len(b.assignments) > 0 { // they have no events; readings have later numbers
			if err := r.events().addGap(tx); err != nil {
				return err
			}
		}
		return r.raise(tx, b.to, b.untilMs)
	}); err != nil {
		return err
	}
	maps.Copy(r.debts, owed)
	r.have.raise(b.to)
	r.noteLoss(b.lost)
	r.noteStored(b, contradicted)
	r.repairing.Store(&RepairError{UntilUnixMs: b.untilMs})
	return nil
}

// noteStored counts the readings of a batch that were put back, and those that contradict what is there, besides
// assignments that do.
func (s *repairer) noteStored(b *batch, contradicted int) {
	repaired := 0
	for _, e := range b.readings {
		switch e.Outcome {
		case storage.Conflict:
			contradicted++
		case storage.Stored, storage.Completed:
			repaired++
		}
	}
	s.counters.repaired.Add(int64(repaired))
	s.counters.contradicted.Add(int64(contradicted))
	if contradicted > 0 {
		s.opt.Log.Error("the database contradicts what was acknowledged, and keeps what it has", "readings", contradicted,
			"acknowledged_until", time.UnixMilli(b.untilMs).UTC())
	}
}

// store settles the readings of w, in the way in which groups are, and registers their devices. What is
// there stays. From now on nobody removes anything until tx ends; it returns errPrimaryChanged if another server has
// since the repair looked.
func (r *repair) store(tx pgx.Tx, w *work) error {
	if err := r.writer.partitions.hold(tx); err != nil {
		return err
	}
	var changed bool
	if err := tx.QueryRow(context.Background(),
		r.sql.of("SELECT EXISTS (SELECT FROM SCHEMA.changes WHERE generation > $1)"),
		r.marks.last().Generation).Scan(&changed); err != nil {
		return err
	}
	if changed {
		return errPrimaryChanged
	}
	var wanted []registration
	at := map[vitals.Name]int{}
	for i := range w.items {
		reading := w.items[i].e.Reading
		k, ok := at[reading.Device]
		if !ok {
			k = len(wanted)
			at[reading.Device], wanted = k, append(wanted, registration{device: reading.Device})
		}
		wanted[k].signs |= reading.Values.Present()
	}
	if len(w.part) > 0 {
		if err := w.sql.prepare(context.Background(), r.conn); err != nil {
			return err
		}
		if err := w.store(&try{}, r.conn.PgConn()); err != nil {
			return err
		}
		if err := w.finish(r.conn.PgConn(), false); err != nil {
			return err
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return r.writer.register(tx, wanted, false)
}

// assign makes an assignment again, or sets its end. It reports false if the database has another one, which stays.
// Another server may have ended what this one has made, and made what this one has ended: whichever repairs first, an
// end that was set wins over none, and over one that this server knows to be earlier.
func (r *repair) assign(tx pgx.Tx, e *history.Entry) (ok bool, err error) {
	a := &e.Assignments[0]
	all, err := r.remover.subjects.lockAssignments(tx, &a.Device)
	if err != nil {
		return false, err
	}
	find := func(a *storage.Assignment) int {
		return slices.IndexFunc(all, func(b storage.Assignment) bool {
			return b.FromUnixMs == a.FromUnixMs &&
				b.Subject == a.Subject
		})
	}
	for _, other := range e.Assignments[1:] {
		if i := find(&other); i >= 0 && all[i].ToUnixMs == storage.OpenEnd && other.ToUnixMs != storage.OpenEnd {
			if err := r.sql.putAssignments(tx, []storage.Assignment{other}); err != nil {
				return false, err
			}
			all[i].ToUnixMs = other.ToUnixMs
		}
	}
	earlier := append(r.ends[a.Key()], e.PreviousToMs)
	r.ends[a.Key()] = append(earlier, a.ToUnixMs)
	open := a.ToUnixMs == storage.OpenEnd
	a = endBeforeNobody(a, all)
	i := find(a)
	switch {
	case i < 0:
		if _, err := a.Admit(all); err != nil {
			return false, nil // another one overlaps it
		}
		_, err = putIn(r.sql, tx, all, *a) // tryBatch adds a gap
		return err == nil, err
	case all[i].ToUnixMs == a.ToUnixMs:
		if a.By == storage.ByHand && all[i].By != a.By {
			_, err = putIn(r.sql, tx, all, *a) // tryBatch adds a gap
		}
		return err == nil, err
	case all[i].ToUnixMs == storage.OpenEnd || slices.Contains(earlier, all[i].ToUnixMs):
		if a.AdmitEnd(all) != nil {
			return false, nil
		}
		_, err = putIn(r.sql, tx, all, *a) // tryBatch adds a gap
		return err == nil, err
	}
	return open, nil // it was ended since
}

// endBeforeNobody returns an assignment that HL7 made so that it ends where the first span of nobody after its
// beginning begins: a later message said so. If it begins within a span, it ends after the last message that is known
// to have named its subject, as [storage.Wearers.Settle] would have it.
func endBeforeNobody(a *storage.Assignment, all []storage.Assignment) *storage.Assignment {
	ended := *a
	for i := range all {
		b := &all[i]
		switch {
		case a.By != storage.ByHL7 || b.Subject != "":
		case b.FromUnixMs > a.FromUnixMs:
			ended.ToUnixMs = min(ended.ToUnixMs, b.FromUnixMs)
		case a.FromUnixMs < b.NamedUnixMs:
			ended.ToUnixMs = min(ended.ToUnixMs, max(a.FromUnixMs, a.NamedUnixMs)+1)
		}
	}
	return &ended
}
