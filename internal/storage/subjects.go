package storage

import (
	"context"
	"errors"
	"math"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of assignments.
var (
	// ErrSubject means that a text is not a subject.
	ErrSubject = errors.New("storage: a subject is 1 to 64 of A-Z, a-z, 0-9, hyphen and dot")

	// ErrAssigned means that a device is already assigned to a subject at a time of the
	// new assignment.
	ErrAssigned = errors.New("storage: the device is already assigned at that time")

	// ErrNotAssigned means that there is no such assignment.
	ErrNotAssigned = errors.New("storage: no such assignment")

	// ErrTooManyAssignments means that a device has [MaxAssignments].
	ErrTooManyAssignments = errors.New("storage: too many assignments of the device")
)

// MaxAssignments bounds the assignments of one device.
const MaxAssignments = 1000

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
	Subject    Subject
	FromUnixMs int64
	ToUnixMs   int64 // OpenEnd: not ended
}

// Covers reports whether a includes a time.
func (a *Assignment) Covers(unixMs int64) bool { return a.FromUnixMs <= unixMs && unixMs < a.ToUnixMs }

// Subjects is a store that keeps assignments of devices to subjects. Changes are on stable
// storage when a method returns nil. Its methods may run concurrently with all others.
type Subjects interface {
	// Assign adds an assignment; the device need not have readings. It returns ErrAssigned
	// if another assignment of the device overlaps it, and nil if the same assignment exists.
	Assign(ctx context.Context, a Assignment) error

	// EndAssignment sets the end of the assignment of device that begins at fromUnixMs, and
	// returns it as it is now. An end may be set again; it must be after the beginning. It
	// returns ErrNotAssigned if there is none, and ErrAssigned if the new end overlaps
	// another.
	EndAssignment(ctx context.Context, device vitals.Name, fromUnixMs, toUnixMs int64) (Assignment, error)

	// DeviceAssignments returns all assignments of a device, by their beginnings.
	DeviceAssignments(ctx context.Context, device vitals.Name) ([]Assignment, error)

	// SubjectAssignments returns all assignments of a subject, by device, then by their
	// beginnings.
	SubjectAssignments(ctx context.Context, subject Subject) ([]Assignment, error)
}
