package fhir

import (
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
}

// names returns the names that a reference to a resource of a type may mean, or the id in it; nothing if it means none.
func (d *decoder) names(r *sentResource, ref *sentReference, typ string) (names []string, id string) {
	if ref.reference == "" {
		return []string{ref.value}, ""
	}
	if inner, ok := strings.CutPrefix(ref.reference, "#"); ok {
		for _, c := range r.contained {
			if c.id == inner && c.kind == typ {
				return c.identifiers, ""
			}
		}
		return nil, ""
	}
	if e := d.urls[ref.reference]; e != nil && e.resource.kind == typ {
		return e.names(), ""
	}
	reference := relative(ref.reference, d.base)
	if condition, ok := strings.CutPrefix(reference, typ+"?"); ok {
		return []string{conditionValue(condition)}, ""
	}
	id, _ = strings.CutPrefix(reference, typ+"/")
	if id == reference {
		return nil, ""
	}
	return nil, id
}

// deviceOf returns the device of an Observation.
func (d *decoder) deviceOf(r *sentResource) (*resolved, *fieldFault) {
	if !r.device.sent {
		return nil, &fieldFault{"device", "missing"}
	}
	names, id := d.names(r, &r.device, "Device")
	if id != "" {
		names = []string{id}
		if parsed, ok := parseDeviceID(id); ok && parsed.exact {
			names[0] = parsed.name.String()
		} else if ok {
			if name, err := vitals.ParseName(r.device.value); err != nil || !parsed.is(&name) {
				return nil,
					&fieldFault{"device", "the id of a device with a long name needs the name as identifier of the reference"}
			}
			names[0] = r.device.value
		}
	}
	return d.choose(names)
}

// Faults of a device: it is not known, has no assignment, or the client may not write to it.
var (
	noDevice = &fieldFault{"device",
		"does not name a device of this server: refer to Device/{id}, to a Device in the Bundle or a contained one, or " +
			"give its name as identifier"}
	unassigned = &fieldFault{"device", "assigned to no patient; an Observation is stored only of a device that is"}
	notCovered = &fieldFault{"device", ingest.ErrNotCovered.Error()}
)

// choose returns the one device of some names that is assigned. Assignments of a device that the
// client may not write to are not read, so that no answer depends on them.
func (d *decoder) choose(names []string) (found *resolved, fault *fieldFault) {
	fault = noDevice
	for _, text := range names {
		name, err := vitals.ParseName(text)
		if err != nil || found != nil && found.name == name {
			continue
		}
		if !d.in.Covers(&name) {
			fault = notCovered
			continue
		}
		device := d.devices[name]
		if device == nil {
			device = &resolved{name: name}
			if err = d.in.Await(func() (err error) {
				device.assignments, err = d.h.subjects.DeviceAssignments(d.request.Context(), name)
				return err
			}); err != nil {
				d.err = ingest.Unavailable()
				return device, nil
			}
			d.devices[name] = device
		}
		switch {
		case len(device.assignments) == 0 && fault != notCovered:
			fault = unassigned
		case len(device.assignments) == 0:
		case found != nil:
			return nil, &fieldFault{"device", "names several devices that are assigned to patients"}
		default:
			found = device
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, fault
}

// isSubject reports whether a resource has no subject, or this one.
func (d *decoder) isSubject(r *sentResource, subject storage.Subject) bool {
	if !r.subject.sent {
		return true
	}
	names, id := d.names(r, &r.subject, "Patient")
	return id == string(subject) || slices.Contains(names, string(subject))
}
