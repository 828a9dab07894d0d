package storage

import (
	"cmp"
	"iter"
	"slices"
)

// A Maker is who made an assignment.
type Maker uint8

// The makers. The numbers are stored.
const (
	ByHand Maker = iota // an operator has made it, or set its end
	ByHL7               // a message of HL7 v2 that names the patient
	numMakers
)

// String returns hand or hl7.
func (m Maker) String() string { return [...]string{"hand", "hl7"}[min(m, numMakers-1)] }

// A Claim says who wears the devices of the readings of one message.
//
// Append settles it with each reading, in the order of the group, and in the same atomic step. Let t be the time of
// the reading:
//
//   - If the device was assigned to another subject at t, or to any if the claim is Unknown, the reading is rejected
//     with OtherSubject.
//   - If the device was assigned to nobody at t, t is not before SinceUnixMs and Subject is not empty, the device is
//     assigned to it ByHL7, from the earliest such reading of the message to the next assignment. Without room for
//     one more, see [MaxAssignments], the reading is rejected with TooManyAssignments.
//   - An assignment ByHL7 knows the latest t of the claims that named its subject. If Subject is empty, and t is
//     later than that, it ends at t. An assignment ByHand stays as it is. If it would last for a millisecond, and there
//     is no room for one more of these, the reading is rejected with TooManyAssignments.
//   - If Subject is empty, and the device is then assigned to nobody at t, t is in a span of nobody: an Assignment
//     ByHL7 without a subject, from the first such t between two assignments to the next assignment, which knows the
//     latest such t. An assignment that is made ByHL7 later ends where a span begins. If it begins in a span, before
//     the latest such t, it lasts a millisecond: the span does not know the times between. If an assignment between two
//     spans was removed, the next change of the device makes one span of them.
//
// Only a reading that is stored, now or before, changes an assignment. Without Assign, none does. A reading that
// would make or end an assignment of a subject is rejected with Unrecorded unless Entry.Recorded is set. Then
// Entry.Momentary says whether the assignment would last a millisecond.
//
// A reading may have no values if Subject is empty and the claim is not Unknown: a message says that nobody wears a
// device that has measured nothing. Then nothing is stored, the device need not be known and does not become so, it
// gets no span of nobody, and the outcome is Duplicate unless the claim rejects it.
//
// Invariant: whatever the order of claims, no two assignments overlap, an assignment covers the readings that named
// its subject since it was made, and none was made but by a reading that is stored. A time of a span of nobody that was
// claimed stays nobody's, unless a claim of the same time names a subject, or an operator assigns the device. storetest
// checks it with a model, and with the same claims in random orders.
type Claim struct {
	Subject     Subject
	Unknown     bool  // some subject, but it is not known which
	Assign      bool  // change assignments
	SinceUnixMs int64 // the earliest beginning of an assignment
}

// Wearers has the assignments of one device, with the spans of nobody, while a group is settled or one is put.
type Wearers struct {
	read    []Assignment
	all     []worn // by beginning
	numbers numbers
	apart   bool // nothing may be between two spans of nobody
}

// A worn is an assignment with the changes of the group.
type worn struct {
	Assignment
	maker *Claim // has made it in this group
}

// NewWearers returns the Wearers of a device with these stored assignments, ordered by beginning. It retains all.
func NewWearers(all []Assignment) *Wearers {
	w := &Wearers{read: all, apart: true}
	for i := range all {
		w.all = append(w.all, worn{all[i], nil})
		w.numbers.add(&all[i], 1)
	}
	return w
}

// Read returns the assignments with which the Wearers were made.
func (w *Wearers) Read() []Assignment { return w.read }

// Settle returns the outcome with which an entry is rejected because of its claim, or 0. Set change if the reading is
// stored: then Settle changes the assignments.
func (w *Wearers) Settle(e *Entry, change bool) Outcome {
	c, t := e.Claim, e.Reading.TimeUnixMs
	next := w.search(t)
	var a *worn // at t
	if next > 0 && w.all[next-1].Covers(t) {
		a = &w.all[next-1]
	}
	free := a == nil || a.Subject == ""
	switch {
	case !free && (c.Unknown || c.Subject != "" && c.Subject != a.Subject):
		return OtherSubject
	case !c.Assign || c.Unknown || !free && (a.By != ByHL7 || t <= a.NamedUnixMs):
		return 0
	case free && c.Subject == "":
		if change {
			w.leave(e)
		}
		return 0
	case !free && c.Subject != "":
		if change {
			a.NamedUnixMs = t
		}
		return 0
	case free && t < c.SinceUnixMs:
		return 0
	}
	return w.settleChange(e, a, next, change)
}

// settleChange is Settle of a claim that makes an assignment, which a span of nobody a may be in the way of, or that
// ends the assignment a. next is the index of the first one that begins later.
func (w *Wearers) settleChange(e *Entry, a *worn, next int, change bool) Outcome {
	c, t := e.Claim, e.Reading.TimeUnixMs
	at := -1 // of the one that changes
	var now worn
	momentary, recorded := false, e.Recorded
	switch {
	case a != nil && a.Subject != "":
		at, now = next-1, *a
		now.ToUnixMs, now.ChangedUnixMs = t, e.ReceivedUnixMs
	case a != nil && t < a.NamedUnixMs: // within the times of nobody
		now, momentary = worn{w.claimed(e, next), c}, true
		now.ToUnixMs = t + 1
	case next < len(w.all) && w.all[next].maker == c:
		at, now, recorded = next, w.all[next], true
		now.FromUnixMs, now.ChangedUnixMs = t, e.ReceivedUnixMs
	default:
		now = worn{w.claimed(e, next), c}
	}
	var before Assignment
	if at >= 0 {
		before = w.all[at].Assignment
	}
	switch {
	case !w.numbers.room(&now.Assignment, &before):
		return TooManyAssignments
	case !recorded:
		e.Momentary = momentary
		return Unrecorded
	case !change:
		return 0
	}
	if at >= 0 {
		w.remove(at)
	}
	w.put(now)
	if c.Subject == "" {
		w.leave(e)
	}
	return 0
}

// remove removes the assignment with an index.
func (w *Wearers) remove(i int) {
	w.numbers.add(&w.all[i].Assignment, -1)
	w.all = slices.Delete(w.all, i, i+1)
}

// search returns the index of the first assignment that begins after a time.
func (w *Wearers) search(unixMs int64) int {
	next, _ := slices.BinarySearchFunc(w.all, unixMs, func(a worn, ms int64) int {
		return cmp.Or(cmp.Compare(a.FromUnixMs, ms), -1)
	})
	return next
}

// claimed returns the assignment to the subject of a claim, or to nobody, from its reading to the next one.
func (w *Wearers) claimed(e *Entry, next int) Assignment {
	r := e.Reading
	made := Assignment{Device: r.Device, Subject: e.Claim.Subject, FromUnixMs: r.TimeUnixMs, ToUnixMs: OpenEnd,
		By: ByHL7, NamedUnixMs: r.TimeUnixMs, ChangedUnixMs: e.ReceivedUnixMs}
	if next < len(w.all) {
		made.ToUnixMs = w.all[next].FromUnixMs
	}
	return made
}

// leave extends the span of nobody between two assignments to the time of a reading, or makes it.
func (w *Wearers) leave(e *Entry) {
	t := e.Reading.TimeUnixMs
	next := w.search(t)
	switch {
	case e.Reading.Values.IsZero():
	case next > 0 && w.all[next-1].Covers(t):
		w.all[next-1].NamedUnixMs = max(w.all[next-1].NamedUnixMs, t)
	case next < len(w.all) && w.all[next].Subject == "":
		w.all[next].FromUnixMs = t
	default:
		w.all, w.apart = slices.Insert(w.all, next, worn{Assignment: w.claimed(e, next)}), true
	}
	w.join()
}

// join makes one span of nobody of those between which no assignment is left.
//
// Invariant: a device has at most one span more than it has had assignments of subjects. TestSpansJoin checks it.
func (w *Wearers) join() {
	if !w.apart {
		return
	}
	w.apart = false
	for i := len(w.all) - 1; i > 0; i-- {
		if w.all[i-1].Join(&w.all[i].Assignment) {
			w.all = slices.Delete(w.all, i, i+1)
		}
	}
}

// Put adds an assignment that [Assignment.Admit] or [Assignment.AdmitEnd] has admitted, in place of the one with its
// beginning. What it overlaps of spans of nobody ends.
func (w *Wearers) Put(a Assignment) {
	before := func(b worn) bool { return b.Subject == a.Subject && b.FromUnixMs == a.FromUnixMs }
	if i := slices.IndexFunc(w.all, before); i >= 0 {
		w.remove(i)
	}
	w.put(worn{Assignment: a})
}

// put adds an assignment. What it overlaps of spans of nobody ends.
func (w *Wearers) put(x worn) {
	w.numbers.add(&x.Assignment, 1)
	overlapped := func(i int) bool {
		return i >= 0 && i < len(w.all) && w.all[i].Subject == "" && w.all[i].overlaps(&x.Assignment)
	}
	from := w.search(x.FromUnixMs)
	to := from
	for ; overlapped(from - 1); from-- {
	}
	for ; overlapped(to); to++ {
	}
	parts := make([]worn, 0, 3)
	for _, y := range w.all[from:to] {
		if y.FromUnixMs < x.FromUnixMs {
			y.ToUnixMs, y.NamedUnixMs = x.FromUnixMs, min(y.NamedUnixMs, x.FromUnixMs-1)
			parts = append(parts, y)
		}
	}
	parts = append(parts, x)
	for _, y := range w.all[from:to] {
		if y.NamedUnixMs >= x.ToUnixMs {
			y.FromUnixMs = x.ToUnixMs
			parts = append(parts, y)
		}
	}
	w.all, w.apart = slices.Replace(w.all, from, to, parts...), true
	w.join()
}

// Changes returns the assignments that are changed, and what they were before: the zero Assignment if they are new.
// Before these, it returns the zero Assignment with each one that is removed. One that replaces another subject's with
// its beginning is new.
func (w *Wearers) Changes() iter.Seq2[Assignment, Assignment] {
	return w.ChangesBy(func(a *Assignment) int64 { return a.FromUnixMs })
}

// ChangesBy is Changes for a store in which an assignment has another time than its beginning as its key. The keys must
// have the order of the beginnings.
func (w *Wearers) ChangesBy(key func(*Assignment) int64) iter.Seq2[Assignment, Assignment] {
	return func(yield func(now, before Assignment) bool) {
		i := 0
		for j := range w.read {
			a := &w.read[j]
			for i < len(w.all) && key(&w.all[i].Assignment) < key(a) {
				i++
			}
			if (i == len(w.all) || key(&w.all[i].Assignment) != key(a)) && !yield(Assignment{}, *a) {
				return
			}
		}
		i = 0
		for j := range w.all {
			x, before := &w.all[j].Assignment, Assignment{}
			for i < len(w.read) && key(&w.read[i]) < key(x) {
				i++
			}
			if i < len(w.read) && key(&w.read[i]) == key(x) && w.read[i].Subject == x.Subject {
				before = w.read[i]
			}
			if *x != before && !yield(*x, before) {
				return
			}
		}
	}
}
