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
func (r *resolved) at(unixMs int64) storage.Subject {
	for i := range r.assignments {
		if r.assignments[i].Covers(unixMs) {
			return r.assignments[i].Subject
		}
	}
	return ""
}

const reasonNoDevice = "does not name a device of this server: refer to Device/{id}, to a Device in the Bundle or a contained one, or give its name as identifier"

// deviceOf returns the device of an Observation. Most Observations of a Bundle have the same one.
func (d *decoder) deviceOf(r *sentResource) (*resolved, *fieldFault) {
	ref := &r.device
	switch {
	case !ref.sent:
		return nil, &fieldFault{"device", "missing"}
	case len(ref.reference) == 0:
		if ref.value == nil {
			return nil, &fieldFault{"device", reasonNoDevice}
		}
		known := d.choose([]string{string(ref.value)})
		return known, known.fault
	case ref.reference[0] == '#':
		c := d.containedIn(r, ref.reference[1:])
		if c == nil || string(c.kind) != "Device" {
			return nil, &fieldFault{"device", "not a contained Device"}
		}
		known := d.choose(d.values(c.identifiers))
		return known, known.fault
	}
	known := d.devices[string(ref.reference)]
	if known == nil {
		known = d.resolve(string(ref.reference), string(ref.value))
		if known.fault == nil { // a fault may be due to the identifier
			d.devices[string(ref.reference)] = known
		}
	}
	return known, known.fault
}

// resolve returns the device of a reference. value is that of its identifier.
func (d *decoder) resolve(reference, value string) *resolved {
	if e := d.urls[reference]; e != nil && string(e.resource.kind) == "Device" {
		return d.choose(d.namesOf(e))
	}
	reference = relative(reference, d.base)
	if condition, ok := strings.CutPrefix(reference, "Device?"); ok {
		return d.choose([]string{conditionValue(condition)})
	}
	id, ok := strings.CutPrefix(reference, "Device/")
	if !ok {
		return &resolved{fault: &fieldFault{"device", reasonNoDevice}}
	}
	parsed, ok := parseDeviceID(id)
	switch {
	case !ok:
		return d.choose([]string{id})
	case parsed.exact:
		return d.choose([]string{parsed.name.String()})
	}
	if name, err := vitals.ParseName(value); err == nil && parsed.is(&name) {
		return d.choose([]string{value})
	}
	return &resolved{fault: &fieldFault{"device", "the id of a device with a long name needs the name as identifier of the reference"}}
}

// notCovered is the fault of a device that the client may not write to.
var notCovered = &fieldFault{"device", ingest.ErrNotCovered.Error()}

// choose returns the one device of some names that is assigned. Assignments of a device that the
// client may not write to are not read, so that no answer depends on them.
func (d *decoder) choose(names []string) *resolved {
	var found *resolved
	valid, uncovered := false, false
	for _, text := range names {
		name, err := vitals.ParseName(text)
		if err != nil || found != nil && found.name == name {
			continue
		}
		if !d.in.Covers(&name) {
			uncovered = true
			continue
		}
		valid = true
		assignments, ok := d.assignments[name]
		if !ok {
			if assignments, err = d.h.subjects.DeviceAssignments(d.ctx, name); err != nil {
				d.err = ingest.Unavailable()
				return &resolved{}
			}
			d.assignments[name] = assignments
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
func (d *decoder) isSubject(r *sentResource, subject storage.Subject) bool {
	ref := &r.subject
	if !ref.sent {
		return true
	}
	if len(ref.reference) == 0 {
		return string(ref.value) == string(subject)
	}
	var names []string
	if ref.reference[0] == '#' {
		if c := d.containedIn(r, ref.reference[1:]); c != nil && string(c.kind) == "Patient" {
			names = d.values(c.identifiers)
		}
	} else if e := d.urls[string(ref.reference)]; e != nil && string(e.resource.kind) == "Patient" {
		names = d.namesOf(e)
	} else if id, ok := bytes.CutPrefix(relative(ref.reference, d.base), []byte("Patient/")); ok {
		return string(id) == string(subject)
	} else if condition, ok := bytes.CutPrefix(relative(ref.reference, d.base), []byte("Patient?")); ok {
		names = []string{conditionValue(string(condition))}
	}
	return slices.Contains(names, string(subject))
}
