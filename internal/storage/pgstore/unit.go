package pgstore

import (
	"slices"

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

// settle settles the readings, given the records that were found. retried means that an earlier attempt may have
// written some.
func (w *work) settle(retried bool) {
	for i := range w.chains {
		w.chains[i].later = w.chains[i].have
	}
	w.returnGuards()
	w.retried = retried
	beginClaims(w)
	clear(w.made)
	w.made = slices.Grow(w.made[:0], len(w.items))
	storage.Settle(w.part, ledger{w})
	for i := range w.items {
		it := &w.items[i]
		switch it.e.Outcome {
		case storage.Duplicate:
			// Of an earlier attempt, or of another server's while this one did not know.
			if retried && (it.tried == storage.Completed || w.hasStored(it)) {
				it.e.Outcome = it.tried
			}
		case storage.OtherSubject, storage.TooManyAssignments:
			w.s.unswept.Store(true) // the device may have been registered for it
		}
	}
}

// hasStored reports whether an earlier attempt, whose outcome was unknown, has stored the reading.
func (w *work) hasStored(it *item) bool {
	have := w.chains[it.chain].have
	return it.tried == storage.Stored && have != nil && have.ReceivedUnixMs == it.e.ReceivedUnixMs &&
		have.NamesGateway(&it.e.Reading.Gateway)
}

// returnGuards returns what the Guards have permitted: the readings were settled in vain.
func (w *work) returnGuards() {
	for i := range w.items {
		if it := &w.items[i]; it.others && it.e.Outcome == storage.Conflict && it.e.Guard != nil {
			it.e.Guard.Return()
		}
		w.items[i].others = false
	}
}

// A ledger is the chains of a work for storage.Settle.
type ledger struct{ *work }

func (w ledger) chain(i int) *chain { return &w.chains[w.items[w.order[i]].chain] }

// make returns a copy of a record that may be modified.
func (w ledger) make(r storage.Record) *storage.Record {
	w.made = append(w.made, r)
	return &w.made[len(w.made)-1]
}

// Admit implements [storage.Ledger]. Devices are registered.
func (w ledger) Admit(int) storage.Outcome { return 0 }

// Wearers implements [storage.Ledger].
func (w ledger) Wearers(i int) (*storage.Wearers, storage.Outcome) {
	if w.retried && w.hasStored(&w.items[w.order[i]]) {
		return nil, 0
	}
	return w.wearers[w.part[i].Reading.Device], 0
}

// Find implements [storage.Ledger].
func (w ledger) Find(i int) (have *vitals.Values, others bool, rejected storage.Outcome) {
	later := w.chain(i).later
	if later == nil {
		return nil, false, 0
	}
	others = later.Shared || !later.NamesGateway(&w.part[i].Reading.Gateway)
	it := &w.items[w.order[i]]
	if w.retried && it.tried != 0 {
		if _, _, outcome := storage.Merge(&later.Values, &it.e.Reading.Values); outcome == storage.Duplicate &&
			!(it.e.Relayed && later.Lacks(it.e.Reading)) {
			others = false // the earlier attempt has written it, and needed no permission for that
		}
	}
	it.others = others || it.e.Relayed // its Guard is asked, too
	return &later.Values, others, 0
}

// Lacks implements [storage.Ledger].
func (w ledger) Lacks(i int) bool { return w.chain(i).later.Lacks(w.part[i].Reading) }

// Store implements [storage.Ledger].
func (w ledger) Store(i int) { w.chain(i).later = w.make(storage.RecordOf(w.part[i])) }

// Complete implements [storage.Ledger].
func (w ledger) Complete(i int, values vitals.Values, others bool) {
	c := w.chain(i)
	c.later = w.make(*c.later)
	c.later.Complete(w.part[i], values, others)
}

// Begin implements [storage.Ledger].
func (w ledger) Begin(begin, n int) {
	w.unit, w.before = w.unit[:0], w.before[:0]
	for i := begin; i < begin+n; i++ {
		w.unit = append(w.unit, w.items[w.order[i]].chain)
		w.before = append(w.before, w.chain(i).later)
	}
}

// End implements [storage.Ledger].
func (w ledger) End(rejected bool) {
	for i, n := range w.unit {
		if rejected {
			w.chains[n].later = w.before[i]
		}
	}
}
