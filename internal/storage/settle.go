package storage

import (
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Ledger has the records and assignments of a store while [Settle] settles a group. Entries are named by their index
// in the group.
type Ledger interface {
	// Admit returns the outcome with which an entry is rejected whatever is stored of its time, or 0.
	Admit(i int) (rejected Outcome)

	// Wearers returns the assignments of the device of an entry with a claim. They are the same for all entries of a
	// device. It returns nil if an earlier attempt has stored the reading with its claim.
	Wearers(i int) (w *Wearers, rejected Outcome)

	// Find returns the values of the record of the entry's device and time, as the entries before have left it, or nil if
	// there is none. others reports whether it counts as another gateway's than the entry's. have is valid until the next
	// call.
	Find(i int) (have *vitals.Values, others bool, rejected Outcome)

	// Lacks reports whether the record that Find has returned lacks the gateway or the offset of the entry's reading.
	Lacks(i int) bool

	// Store makes the record of an entry, and Complete gives the one that Find has returned other values. It is shared
	// afterwards if it is another gateway's.
	Store(i int)
	Complete(i int, values vitals.Values, others bool)

	// Begin is called before a unit of n entries, and End after it. If one was rejected, End makes the records what they
	// were at Begin.
	Begin(i, n int)
	End(rejected bool)
}

// Settle settles the readings of a group one after the other, and sets their outcomes. The package comment has the
// rules.
//
// Invariant: it settles a group like one that settles each reading of it by itself, but for units. TestSettleModel
// checks it.
func Settle(group []*Entry, l Ledger) {
	for i := 0; i < len(group); {
		n := UnitLen(group[i:])
		if n == 1 {
			settleOne(l, group[i], i)
		} else {
			settleUnit(l, group[i:i+n], i)
		}
		i += n
	}
}

// settleUnit settles the readings of a unit, which begins at entry i of the group, until one is rejected.
func settleUnit(l Ledger, unit []*Entry, i int) {
	for _, e := range unit {
		e.Outcome, e.Sign = 0, 0
	}
	l.Begin(i, len(unit))
	rejected := slices.IndexFunc(unit, func(e *Entry) bool {
		settleOne(l, e, i)
		i++
		return e.Outcome > Duplicate
	})
	for _, e := range unit[:max(rejected, 0)] {
		e.Outcome = 0
	}
	l.End(rejected >= 0)
}

func settleOne(l Ledger, e *Entry, i int) {
	e.Outcome, e.Sign = 0, 0
	empty := e.Reading.Values.IsZero() // see Claim
	if !empty {
		if e.Outcome = l.Admit(i); e.Outcome != 0 {
			return
		}
	}
	var wearers *Wearers
	if e.Claim != nil {
		if wearers, e.Outcome = l.Wearers(i); e.Outcome == 0 && wearers != nil {
			e.Outcome = wearers.Settle(e, false)
		}
		if e.Outcome != 0 {
			return
		}
	}
	if empty {
		e.Outcome = Duplicate
	} else {
		compareOne(l, e, i)
	}
	if wearers != nil && e.Outcome <= Duplicate {
		wearers.Settle(e, true)
	}
}

// compareOne settles a reading that nothing but a record, or its Guard, can reject.
func compareOne(l Ledger, e *Entry, i int) {
	have, others, rejected := l.Find(i)
	switch {
	case rejected != 0:
		e.Outcome = rejected
		return
	case have == nil:
		e.Outcome = Stored
		l.Store(i)
		return
	}
	values := &e.Reading.Values
	guarded := e.Guard != nil && (others || e.Relayed) && have.Present()&values.Present() != 0
	if guarded && !e.Guard.Take() {
		e.Outcome = Withheld
		return
	}
	var merged vitals.Values
	merged, e.Sign, e.Outcome = Merge(have, values)
	if guarded && e.Outcome != Conflict {
		e.Guard.Return()
	}
	if e.Outcome == Duplicate && e.Relayed && l.Lacks(i) {
		e.Outcome = Completed
	}
	if e.Outcome == Completed {
		l.Complete(i, merged, others)
	}
}

// Lacks reports whether the record lacks the gateway or the offset of a reading.
func (r *Record) Lacks(reading *vitals.Reading) bool {
	return r.Gateway == nil && !reading.Gateway.IsZero() || r.UTCOffset == 0 && reading.UTCOffset != 0
}

// RecordOf returns the record that an entry makes. It shares the gateway of the reading.
func RecordOf(e *Entry) Record {
	r := e.Reading
	made := Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values, UTCOffset: r.UTCOffset}
	if !r.Gateway.IsZero() {
		made.Gateway = &r.Gateway
	}
	return made
}

// NamesGateway reports whether the record names this gateway, or none if that is zero.
func (r *Record) NamesGateway(gateway *vitals.Name) bool {
	return r.Gateway == nil && gateway.IsZero() || r.Gateway != nil && *r.Gateway == *gateway
}

// Complete makes the record what [Ledger.Complete] says.
func (r *Record) Complete(e *Entry, values vitals.Values, others bool) {
	reading := e.Reading
	r.Values, r.Shared = values, others
	if e.ReceivedUnixMs > r.ReceivedUnixMs {
		r.ChangedUnixMs = max(r.ChangedUnixMs, e.ReceivedUnixMs)
	}
	if r.Gateway == nil && !reading.Gateway.IsZero() {
		r.Gateway = &reading.Gateway
	}
	if r.UTCOffset == 0 {
		r.UTCOffset = reading.UTCOffset
	}
}
