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
//     assigned to it ByHL7, from the earliest such reading of the message to the next assignment. With
//     [MaxAssignments], the reading is rejected with TooManyAssignments.
//   - An assignment ByHL7 knows the latest t of the claims that named its subject. If Subject is empty, and t is
//     later than that, it ends at t. An assignment ByHand stays as it is.
//
// Only a reading that is stored, now or before, changes an assignment. Without Assign, none does. A reading that
// would make or end an assignment is rejected with Unrecorded unless Entry.Recorded is set.
//
// A reading may have no values if Subject is empty and the claim is not Unknown: a message says that nobody wears a
// device that has measured nothing. Then nothing is stored, the device need not be known and does not become so, and
// the outcome is Duplicate unless the claim rejects it.
//
// Invariant: whatever the order of claims, no two assignments overlap, an assignment covers the readings that named
// its subject since it was made, and none was made but by a reading that is stored. storetest checks it with a model.
type Claim struct {
	Subject     Subject
	Unknown     bool  // some subject, but it is not known which
	Assign      bool  // change assignments
	SinceUnixMs int64 // the earliest beginning of an assignment
}

// Wearers has the assignments of one device while a group is settled.
type Wearers struct {
	read []Assignment
	all  []worn // by beginning
}

// A worn is an assignment with the changes of the group.
type worn struct {
	Assignment
	before Assignment // as it is stored; zero means that it is new
	maker  *Claim     // has made it in this group
}

// NewWearers returns the Wearers of a device with these stored assignments, ordered by beginning. It retains all.
func NewWearers(all []Assignment) *Wearers {
	w := &Wearers{read: all}
	for _, a := range all {
		w.all = append(w.all, worn{a, a, nil})
	}
	return w
}

// Read returns the assignments with which the Wearers were made.
func (w *Wearers) Read() []Assignment { return w.read }

// Settle returns the outcome with which an entry is rejected because of its claim, or 0. Set change if the reading is
// stored: then Settle changes the assignments.
func (w *Wearers) Settle(e *Entry, change bool) Outcome {
	c, t := e.Claim, e.Reading.TimeUnixMs
	next, _ := slices.BinarySearchFunc(w.all, t, func(a worn, t int64) int { return cmp.Or(cmp.Compare(a.FromUnixMs, t), -1) })
	var a *worn // at t
	if next > 0 && w.all[next-1].Covers(t) {
		a = &w.all[next-1]
	}
	switch {
	case a != nil && (c.Unknown || c.Subject != "" && c.Subject != a.Subject):
		return OtherSubject
	case !c.Assign || a != nil && (a.By != ByHL7 || t <= a.NamedUnixMs) || a == nil && (c.Subject == "" || t < c.SinceUnixMs):
		return 0
	case a != nil && c.Subject != "":
		if change {
			a.NamedUnixMs = t
		}
		return 0
	case a == nil && next < len(w.all) && w.all[next].maker == c:
		if change {
			w.all[next].FromUnixMs, w.all[next].ChangedUnixMs = t, e.ReceivedUnixMs
		}
		return 0
	case a == nil && len(w.all) >= MaxAssignments:
		return TooManyAssignments
	case !e.Recorded:
		return Unrecorded
	case !change:
	case a != nil:
		a.ToUnixMs, a.ChangedUnixMs = t, e.ReceivedUnixMs
	default:
		made := Assignment{Device: e.Reading.Device, Subject: c.Subject, FromUnixMs: t, ToUnixMs: OpenEnd, By: ByHL7, NamedUnixMs: t, ChangedUnixMs: e.ReceivedUnixMs}
		if next < len(w.all) {
			made.ToUnixMs = w.all[next].FromUnixMs
		}
		w.all = slices.Insert(w.all, next, worn{made, Assignment{}, c})
	}
	return 0
}

// Changes returns the assignments that the group has changed, and what they were before: the zero Assignment if they
// are new.
func (w *Wearers) Changes() iter.Seq2[Assignment, Assignment] {
	return func(yield func(now, before Assignment) bool) {
		for i := range w.all {
			if x := &w.all[i]; x.Assignment != x.before && !yield(x.Assignment, x.before) {
				return
			}
		}
	}
}
