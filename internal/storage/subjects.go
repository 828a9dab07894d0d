package storage

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of assignments.
var (
	// ErrSubject means that a text is not a subject.
	ErrSubject = errors.New("a subject is 1 to 64 of A-Z, a-z, 0-9, hyphen and dot")

	// ErrAssigned means that a device is already assigned to a subject at a time of the
	// new assignment.
	ErrAssigned = errors.New("the device is already assigned at that time")

	// ErrNotAssigned means that there is no such assignment.
	ErrNotAssigned = errors.New("no such assignment")

	// ErrTooManyAssignments means that a device has no room for one more: see [MaxAssignments].
	ErrTooManyAssignments = errors.New("too many assignments of the device")

	// ErrPeriod means that an assignment does not end after it begins, or begins before 1970.
	ErrPeriod = errors.New("an assignment must begin after 1970 and end after it begins")
)

// MaxAssignments bounds the assignments of one device to subjects that last longer than a millisecond, and those that
// do not, of which late messages make many: neither take room from the others. Spans of nobody are not counted; see
// [Claim]. [Assignment.HasRoom] has the rule.
const MaxAssignments = 1000

// MaxStoredAssignments bounds all assignments of one device, with the spans of nobody before, between and after them.
const MaxStoredAssignments = 2*(2*MaxAssignments) + 1

// OpenEnd is the end of an assignment that has not ended.
const OpenEnd int64 = math.MaxInt64

// A Subject identifies a patient. It is opaque to Pulsegate, and has the form of an id of
// FHIR R4 (https://hl7.org/fhir/R4/datatypes.html#id): 1 to 64 of A-Z, a-z, 0-9, hyphen and
// dot.
type Subject string

// ParseSubject returns text as a subject, or ErrSubject.
func ParseSubject(text string) (Subject, error) {
	if len(text) < 1 || len(text) > 64 {
		return "", ErrSubject
	}
	for i := range len(text) {
		switch c := text[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.':
		default:
			return "", ErrSubject
		}
	}
	return Subject(text), nil
}

// An Assignment says that a device was worn by a subject from FromUnixMs, inclusive, to
// ToUnixMs, exclusive. A reading belongs to the subject to which its device was assigned at
// the time of the reading.
type Assignment struct {
	Device     vitals.Name
	Subject    Subject // empty: a span of nobody, see [Claim]
	FromUnixMs int64
	ToUnixMs   int64 // OpenEnd: not ended

	By          Maker
	NamedUnixMs int64 // with ByHL7, the time of the latest reading that named the subject, or nobody; see [Claim]

	// ChangedUnixMs is the clock when anything but NamedUnixMs was last changed. A store may make it later, as with
	// Entry.ReceivedUnixMs.
	ChangedUnixMs int64
}

// Covers reports whether a includes a time.
func (a *Assignment) Covers(unixMs int64) bool { return a.FromUnixMs <= unixMs && unixMs < a.ToUnixMs }

// Key returns the key of a.
func (a *Assignment) Key() AssignmentKey { return AssignmentKey{a.Device, a.FromUnixMs} }

// Same reports whether a and b are equal, whenever they were changed.
func (a *Assignment) Same(b Assignment) bool {
	b.ChangedUnixMs = a.ChangedUnixMs
	return *a == b
}

// Join extends a over b, the next assignment of a store, if both are spans of nobody of one device: no assignment is
// left between them. It reports whether they are.
func (a *Assignment) Join(b *Assignment) bool {
	if a.Subject != "" || b.Subject != "" || a.Device != b.Device {
		return false
	}
	a.ToUnixMs, a.NamedUnixMs = b.ToUnixMs, b.NamedUnixMs
	return true
}

// numbers has the numbers of assignments that count for MaxAssignments: of a millisecond, and of those that last
// longer.
type numbers struct{ momentary, lasting int }

// of returns the number in which a counts, or nil if it does not.
func (n *numbers) of(a *Assignment) *int {
	switch {
	case a.Subject == "":
		return nil
	case a.ToUnixMs == a.FromUnixMs+1:
		return &n.momentary
	default:
		return &n.lasting
	}
}

// add adds to the number in which a counts.
func (n *numbers) add(a *Assignment, more int) {
	if of := n.of(a); of != nil {
		*of += more
	}
}

// room reports whether there is room for a in place of before, which is the zero Assignment if a is new.
//
// Invariant: if all assignments of a device have room, so have any of them, in any order. TestAdmitSettled checks it.
func (n *numbers) room(a, before *Assignment) bool {
	of := n.of(a)
	return of == nil || of == n.of(before) || *of < MaxAssignments
}

// HasRoom reports whether a has room among all assignments of its device, in place of the one of its subject with its
// beginning, if there is one.
func (a *Assignment) HasRoom(all []Assignment) bool {
	var n numbers
	var before Assignment
	for i := range all {
		n.add(&all[i], 1)
		if all[i].Subject == a.Subject && all[i].FromUnixMs == a.FromUnixMs {
			before = all[i]
		}
	}
	return n.room(a, &before)
}

// overlaps reports whether a and b include a common time.
func (a *Assignment) overlaps(b *Assignment) bool {
	return a.FromUnixMs < b.ToUnixMs && b.FromUnixMs < a.ToUnixMs
}

// Validate returns ErrSubject, ErrPeriod, or an error that wraps ErrNotFound if a names no
// device.
func (a *Assignment) Validate() error {
	if a.Device.IsZero() {
		return ErrNotFound
	}
	if _, err := ParseSubject(string(a.Subject)); err != nil && (a.Subject != "" || a.By != ByHL7) {
		return err
	}
	if a.FromUnixMs < 0 || a.FromUnixMs >= a.ToUnixMs || a.By >= numMakers ||
		a.NamedUnixMs != 0 && !a.Covers(a.NamedUnixMs) {
		return ErrPeriod
	}
	return nil
}

// Admit returns nil if a may be added to the assignments of its device, and otherwise the error
// of [Subjects.Assign]. exists reports that all has a already. If all has it from another maker, a replaces it. all
// has the spans of nobody.
func (a *Assignment) Admit(all []Assignment) (exists bool, err error) {
	for i := range all {
		if all[i].Same(*a) {
			return true, nil
		}
		if all[i].By != a.By && all[i].FromUnixMs == a.FromUnixMs && all[i].ToUnixMs == a.ToUnixMs &&
			all[i].Subject == a.Subject {
			return false, nil
		}
		if a.overlaps(&all[i]) && (a.Subject == "" || all[i].Subject != "") {
			return false, ErrAssigned
		}
	}
	if !a.HasRoom(all) || len(all) >= MaxStoredAssignments {
		return false, ErrTooManyAssignments
	}
	return false, nil
}

// AdmitEnd returns nil if the assignment with the subject and beginning of a may end when a
// does, and otherwise the error of [Subjects.EndAssignment]. all are the assignments of the
// device.
func (a *Assignment) AdmitEnd(all []Assignment) error {
	i := slices.IndexFunc(all, func(b Assignment) bool { return b.Subject == a.Subject && b.FromUnixMs == a.FromUnixMs })
	if i < 0 || a.Subject == "" {
		return ErrNotAssigned
	}
	if a.FromUnixMs >= a.ToUnixMs {
		return ErrPeriod
	}
	for j := range all {
		if j != i && all[j].Subject != "" && a.overlaps(&all[j]) {
			return ErrAssigned
		}
	}
	if !a.HasRoom(all) {
		return ErrTooManyAssignments
	}
	return nil
}

// Worn returns all without the spans of nobody. It may modify all.
func Worn(all []Assignment) []Assignment {
	return slices.DeleteFunc(all, func(a Assignment) bool { return a.Subject == "" })
}

// SubjectAt returns the subject to which a device was assigned at a time, or "" if to none. all
// are the assignments of the device.
func SubjectAt(all []Assignment, unixMs int64) Subject { return SpanAt(all, unixMs).Subject }

// SpanAt returns the span around a time in which one subject wore a device, or nobody did: then Subject is
// empty, and FromUnixMs is 0 or ToUnixMs is OpenEnd if no assignment comes before or after. all are the
// assignments of the device.
func SpanAt(all []Assignment, unixMs int64) Assignment {
	span := Assignment{ToUnixMs: OpenEnd}
	for i := range all {
		span.Narrow(&all[i], unixMs)
	}
	return span
}

// Narrow makes a, a span around a time, what [SpanAt] returns, given one more assignment of the device.
func (a *Assignment) Narrow(b *Assignment, unixMs int64) {
	switch {
	case b.Covers(unixMs):
		*a = *b
	case b.ToUnixMs <= unixMs:
		a.FromUnixMs = max(a.FromUnixMs, b.ToUnixMs)
	default:
		a.ToUnixMs = min(a.ToUnixMs, b.FromUnixMs)
	}
}

// An AssignmentKey identifies an assignment. Keys are ordered by device, then by beginning.
type AssignmentKey struct {
	Device     vitals.Name
	FromUnixMs int64
}

// Compare returns the order of a and b.
func (a *AssignmentKey) Compare(b *AssignmentKey) int {
	if c := a.Device.Compare(&b.Device); c != 0 {
		return c
	}
	return cmp.Compare(a.FromUnixMs, b.FromUnixMs)
}

// Subjects is a store that keeps assignments of devices to subjects. Changes are on stable
// storage when a method returns nil. After an error that is none of those named here, the
// change may have been made or not, and may be repeated. The methods may run concurrently with
// all others.
//
// Assignments outlive the readings that they cover: [Remover.Expire] removes none.
// [Remover.Erase] removes those of its device.
type Subjects interface {
	// Assign adds an assignment; the device need not have readings. It returns ErrAssigned if another assignment of the
	// device overlaps it, ErrTooManyAssignments, the error of [Assignment.Validate], and nil if the same assignment
	// exists. If another maker made it, its maker becomes that of a.
	Assign(ctx context.Context, a Assignment) error

	// EndAssignment sets the end of the assignment with the device, subject and beginning of
	// a to that of a, and its maker to a's. An end may be set again; it must be after the beginning. It returns
	// ErrNotAssigned if there is none, ErrPeriod, ErrAssigned if the assignment would overlap another, and
	// ErrTooManyAssignments if it lasted for a millisecond, and there is no room for one that lasts longer, or vice versa.
	EndAssignment(ctx context.Context, a Assignment) error

	// DeviceAssignments returns all assignments of a device, by their beginnings.
	DeviceAssignments(ctx context.Context, device vitals.Name) ([]Assignment, error)

	// VisitAssignments calls visit with all assignments of some devices, in any order, perhaps more than once with
	// the same. After an error it may have called visit with some. visit must not retain its argument.
	VisitAssignments(ctx context.Context, devices []vitals.Name, visit func(*Assignment)) error

	// SubjectAssignments returns all assignments of a subject, by device, then by their
	// beginnings.
	SubjectAssignments(ctx context.Context, subject Subject) ([]Assignment, error)

	// Assignments fills dst with the first assignments whose keys sort after the key after, and, other than the methods
	// above, with the spans of nobody. It returns their number. The zero key sorts before all others. A number below
	// len(dst) means that there are no more.
	Assignments(ctx context.Context, after AssignmentKey, dst []Assignment) (int, error)
}
