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
//     later than that, it ends at t. An assignment ByHand stays as it is.
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
	read []Assignment
	all  []worn // by beginning
}

// A worn is an assignment with the changes of the group.
type worn struct {
	Assignment
	maker *Claim // has made it in this group
}

// NewWearers returns the Wearers of a device with these stored assignments, ordered by beginning. It retains all.
func NewWearers(all []Assignment) *Wearers {
	w := &Wearers{read: all}
	for _, a := range all {
		w.all = append(w.all, worn{a, nil})
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
	within := a != nil && t < a.NamedUnixMs // of a span of nobody, if free
	switch {
	case !free && (c.Unknown || c.Subject != "" && c.Subject != a.Subject):
		return OtherSubject
	case !c.Assign || c.Unknown || !free && (a.By != ByHL7 || t <= a.NamedUnixMs):
		return 0
	case free && c.Subject == "":
		if change {
			w.leave(e, next)
		}
		return 0
	case !free && c.Subject != "":
		if change {
			a.NamedUnixMs = t
		}
		return 0
	case free && t < c.SinceUnixMs:
		return 0
	case free && !within && next < len(w.all) && w.all[next].maker == c:
		if change {
			x := w.all[next]
			x.FromUnixMs, x.ChangedUnixMs = t, e.ReceivedUnixMs
			w.all = slices.Delete(w.all, next, next+1)
			w.put(x)
		}
		return 0
	case free && !w.room(within):
		return TooManyAssignments
	case !e.Recorded:
		e.Momentary = within
		return Unrecorded
	case !change:
	case !free:
		a.ToUnixMs, a.ChangedUnixMs = t, e.ReceivedUnixMs
		w.leave(e, next)
	default:
		x := worn{w.claimed(e, next), c}
		if within {
			x.ToUnixMs = t + 1
		}
		w.put(x)
	}
	return 0
}

// room reports whether the device has room for one more assignment of a subject.
func (w *Wearers) room(momentary bool) bool {
	n := numbers{}
	for i := range w.all {
		n.add(&w.all[i].Assignment)
	}
	return n.room(momentary)
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
func (w *Wearers) leave(e *Entry, next int) {
	t := e.Reading.TimeUnixMs
	switch {
	case e.Reading.Values.IsZero():
	case next > 0 && w.all[next-1].Covers(t):
		w.all[next-1].NamedUnixMs = max(w.all[next-1].NamedUnixMs, t)
	case next < len(w.all) && w.all[next].Subject == "":
		w.all[next].FromUnixMs = t
	default:
		w.all = slices.Insert(w.all, next, worn{Assignment: w.claimed(e, next)})
	}
	w.join()
}

// join makes one span of nobody of those between which no assignment is left.
//
// Invariant: a device has at most one span more than it has had assignments of subjects. TestSpansJoin checks it.
func (w *Wearers) join() {
	for i := len(w.all) - 1; i > 0; i-- {
		if a, b := &w.all[i-1], &w.all[i]; a.Subject == "" && b.Subject == "" {
			a.ToUnixMs, a.NamedUnixMs = b.ToUnixMs, b.NamedUnixMs
			w.all = slices.Delete(w.all, i, i+1)
		}
	}
}

// Put adds an assignment that [Assignment.Admit] or [Assignment.AdmitEnd] has admitted, in place of the one with its
// beginning. What it overlaps of spans of nobody ends.
func (w *Wearers) Put(a Assignment) {
	w.all = slices.DeleteFunc(w.all, func(b worn) bool {
		return b.Subject == a.Subject && b.FromUnixMs == a.FromUnixMs
	})
	w.put(worn{Assignment: a})
}

func (w *Wearers) put(x worn) {
	all := make([]worn, 0, len(w.all)+2)
	for _, y := range w.all {
		if y.Subject != "" || !y.overlaps(&x.Assignment) {
			all = append(all, y)
			continue
		}
		if y.FromUnixMs < x.FromUnixMs {
			before := y
			before.ToUnixMs, before.NamedUnixMs = x.FromUnixMs, min(y.NamedUnixMs, x.FromUnixMs-1)
			all = append(all, before)
		}
		if y.NamedUnixMs >= x.ToUnixMs {
			y.FromUnixMs = x.ToUnixMs
			all = append(all, y)
		}
	}
	w.all = all
	w.all = slices.Insert(w.all, w.search(x.FromUnixMs), x)
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
