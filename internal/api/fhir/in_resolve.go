package fhir

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Which device
//
// The device of an Observation is given by one of:
//
//   - Device/{id}, with an id that Pulsegate has made of the device's name, or else the name
//     itself. The id of a long name needs the name as identifier.value of the reference too;
//   - a Device in the Bundle, by its fullUrl, or a contained one: the device whose name is the
//     value of one of its identifiers, or of the identifier in ifNoneExist. If it has several
//     identifiers, the device is the one of these that is assigned;
//   - identifier.value of the reference, or Device?identifier=, which are the name.
//
// A reference may begin with the base of this server, as in a search. One to another server names a
// resource only if that is in the Bundle.
//
// The patient is given in the same ways, and must be the one to whom the device was assigned at
// the time.

// A resolved device has its assignments.
type resolved struct {
	name        vitals.Name
	assignments []storage.Assignment
	fault       *fieldFault // instead
}

// at returns the subject to which the device was assigned at a time, or "".
func (d *resolved) at(unixMs int64) storage.Subject {
	for i := range d.assignments {
		if d.assignments[i].Covers(unixMs) {
			return d.assignments[i].Subject
		}
	}
	return ""
}

const reasonNoDevice = "does not name a device of this server: refer to Device/{id}, to a Device in the Bundle or a contained one, or give its name as identifier"

// deviceOf returns the device of an Observation. Most Observations of a Bundle have the same one.
func (s *intake) deviceOf(r *sentResource) (*resolved, *fieldFault) {
	ref := &r.device
	switch {
	case !ref.sent:
		return nil, &fieldFault{"device", "missing"}
	case len(ref.reference) == 0:
		if ref.value == nil {
			return nil, &fieldFault{"device", reasonNoDevice}
		}
		d := s.choose([]string{string(ref.value)})
		return d, d.fault
	case ref.reference[0] == '#':
		c := s.containedIn(r, ref.reference[1:])
		if c == nil || string(c.kind) != "Device" {
			return nil, &fieldFault{"device", "not a contained Device"}
		}
		d := s.choose(s.values(c.identifiers))
		return d, d.fault
	}
	d := s.devices[string(ref.reference)]
	if d == nil {
		d = s.resolve(string(ref.reference), string(ref.value))
		if d.fault == nil { // a fault may be due to the identifier
			s.devices[string(ref.reference)] = d
		}
	}
	return d, d.fault
}

// resolve returns the device of a reference. value is that of its identifier.
func (s *intake) resolve(reference, value string) *resolved {
	if e := s.urls[reference]; e != nil && string(e.resource.kind) == "Device" {
		return s.choose(s.namesOf(e))
	}
	reference = relative(reference, s.base)
	if condition, ok := strings.CutPrefix(reference, "Device?"); ok {
		return s.choose([]string{conditionValue(condition)})
	}
	id, ok := strings.CutPrefix(reference, "Device/")
	if !ok {
		return &resolved{fault: &fieldFault{"device", reasonNoDevice}}
	}
	parsed, ok := parseDeviceID(id)
	switch {
	case !ok:
		return s.choose([]string{id})
	case parsed.exact:
		return s.choose([]string{parsed.name.String()})
	}
	if name, err := vitals.ParseName(value); err == nil && parsed.is(&name) {
		return s.choose([]string{value})
	}
	return &resolved{fault: &fieldFault{"device", "the id of a device with a long name needs the name as identifier of the reference"}}
}

// notCovered is the fault of a device that the client may not write to.
var notCovered = &fieldFault{"device", ingest.ErrNotCovered.Error()}

// choose returns the one device of some names that is assigned. Assignments of a device that the
// client may not write to are not read, so that no answer depends on them.
func (s *intake) choose(names []string) *resolved {
	var found *resolved
	valid, uncovered := false, false
	for _, text := range names {
		name, err := vitals.ParseName(text)
		if err != nil || found != nil && found.name == name {
			continue
		}
		if !s.in.Covers(&name) {
			uncovered = true
			continue
		}
		valid = true
		assignments, ok := s.assignments[name]
		if !ok {
			if assignments, err = s.rc.subjects.DeviceAssignments(s.ctx, name); err != nil {
				s.err = ingest.Unavailable()
				return &resolved{}
			}
			s.assignments[name] = assignments
		}
		switch {
		case len(assignments) == 0:
		case found != nil:
			return &resolved{fault: &fieldFault{"device", "names several devices that are assigned to patients"}}
		default:
			found = &resolved{name: name, assignments: assignments}
		}
	}
	switch {
	case found != nil:
		return found
	case uncovered:
		return &resolved{fault: notCovered}
	case valid:
		return &resolved{fault: &fieldFault{"device", "assigned to no patient; an Observation is stored only of a device that is"}}
	}
	return &resolved{fault: &fieldFault{"device", reasonNoDevice}}
}

// isSubject reports whether a resource has no subject, or this one.
func (s *intake) isSubject(r *sentResource, subject storage.Subject) bool {
	ref := &r.subject
	if !ref.sent {
		return true
	}
	if len(ref.reference) == 0 {
		return string(ref.value) == string(subject)
	}
	var names []string
	if ref.reference[0] == '#' {
		if c := s.containedIn(r, ref.reference[1:]); c != nil && string(c.kind) == "Patient" {
			names = s.values(c.identifiers)
		}
	} else if e := s.urls[string(ref.reference)]; e != nil && string(e.resource.kind) == "Patient" {
		names = s.namesOf(e)
	} else if id, ok := bytes.CutPrefix(relative(ref.reference, s.base), []byte("Patient/")); ok {
		return string(id) == string(subject)
	} else if condition, ok := bytes.CutPrefix(relative(ref.reference, s.base), []byte("Patient?")); ok {
		names = []string{conditionValue(string(condition))}
	}
	return slices.Contains(names, string(subject))
}
