package fhir

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// errForbidden means that a request may not read what it asks for.
var errForbidden = errors.New("not covered")

// A plan is what a search reads.
type plan struct {
	sources  []storage.Assignment // the parts of assignments that the search covers
	subjects []storage.Subject    // of the sources, and those searched, each once
	devices  []vitals.Name        // of the sources, each once

	// alone is the searched device if there is one only.
	alone vitals.Name

	// notes are the texts of the outcome in the Bundle, about what a search does not find.
	notes []string
}

// Notes of a plan.
const (
	noteUnassigned = "The device has readings from times at which it was assigned to no patient. They are not served as " +
		"Observations."
	noteBound   = "Only Observations of the patients for whom the credentials are valid are served."
	noteIgnored = "Some parameters of the search are not known and were ignored; the link self has the others."
)

// A view is what one request may see.
type view struct {
	Reader
	Subjects
	may *gate.Access
}

func (h *Handler) view(may *gate.Access) *view { return &view{h.reader, h.subjects, may} }

// plan returns what a search reads, or errForbidden. A request that is bound to subjects reads
// what was measured while a device was assigned to one of them, whatever the device.
func (v *view) plan(ctx context.Context, s *search) (*plan, error) {
	devices, err := v.searchedDevices(ctx, s)
	if err != nil {
		return nil, err
	}
	var assignments []storage.Assignment
	if s.patients != nil {
		assignments, err = v.ofPatients(ctx, s.patients)
	} else {
		assignments, err = v.ofDevices(ctx, devices...)
	}
	if err != nil {
		return nil, err
	}
	p := &plan{subjects: slices.Clone(s.patients)}
	if len(devices) == 1 {
		p.alone = devices[0]
	}
	for _, a := range assignments {
		src := within(&a, s.measured)
		if src.FromUnixMs >= src.ToUnixMs || s.devices != nil && !slices.Contains(devices, a.Device) {
			continue
		}
		p.sources = append(p.sources, src)
		if !slices.Contains(p.subjects, a.Subject) {
			p.subjects = append(p.subjects, a.Subject)
		}
		if !slices.Contains(p.devices, a.Device) {
			p.devices = append(p.devices, a.Device)
		}
	}
	return p, v.note(ctx, s, p, devices, assignments)
}

// hides reports whether a request may learn nothing about a device, and therefore gets the same
// answer whether it exists or not.
func hides(may *gate.Access, device *vitals.Name) bool {
	return !may.BoundToSubjects() && !may.Covers(device)
}

// searchedDevices returns the devices that a search names. Those that do not exist are left
// out. So are hidden ones in a search of patients, none of whom has worn them.
func (v *view) searchedDevices(ctx context.Context, s *search) (devices []vitals.Name, err error) {
	for i := range s.devices {
		name, err := v.resolve(ctx, &s.devices[i])
		switch found := err == nil; {
		case !found && !errors.Is(err, storage.ErrNotFound):
			return nil, err
		case hides(v.may, &name):
			if s.patients == nil {
				return nil, errForbidden
			}
		case found:
			devices = append(devices, name)
		}
	}
	return devices, nil
}

// ofPatients returns the assignments of patients, if the request may read what was measured of all of them.
func (v *view) ofPatients(ctx context.Context, patients []storage.Subject) (all []storage.Assignment, err error) {
	for _, subject := range patients {
		assignments, may, err := query.AssignmentsOf(ctx, v.Subjects, v.may, subject)
		if err != nil {
			return nil, err
		}
		if !may {
			return nil, errForbidden
		}
		all = append(all, assignments...)
	}
	return all, nil
}

// ofDevices returns the assignments of devices to the subjects that the request covers.
func (v *view) ofDevices(ctx context.Context, devices ...vitals.Name) (all []storage.Assignment, err error) {
	for _, device := range devices {
		assignments, err := v.DeviceAssignments(ctx, device)
		if err != nil {
			return nil, fmt.Errorf("read assignments: %w", err)
		}
		for _, a := range assignments {
			if v.may.CoversSubject(string(a.Subject)) {
				all = append(all, a)
			}
		}
	}
	return all, nil
}

// note sets the notes of p.
func (v *view) note(ctx context.Context, s *search, p *plan, devices []vitals.Name,
	assignments []storage.Assignment) error {
	if len(s.ignored) > 0 {
		p.notes = append(p.notes, noteIgnored)
	}
	switch {
	case s.patients != nil:
		return nil
	case v.may.BoundToSubjects():
		// The same for all devices, so that it does not show whether there are others.
		p.notes = append(p.notes, noteBound)
		return nil
	}
	for _, device := range devices {
		found, err := v.hasUnassigned(ctx, device, s.measured, assignments)
		if err != nil {
			return err
		}
		if found {
			p.notes = append(p.notes, noteUnassigned)
			return nil
		}
	}
	return nil
}

// hasUnassigned reports whether a device has readings in a span outside of its assignments,
// which are sorted by their beginnings.
func (v *view) hasUnassigned(ctx context.Context, device vitals.Name, within span,
	assignments []storage.Assignment) (bool, error) {
	var found [1]storage.Record
	look := func(gap span) (bool, error) {
		if gap.empty() {
			return false, nil
		}
		n, err := v.Scan(ctx, storage.Range{Device: device, FromUnixMs: gap.fromUnixMs, ToUnixMs: gap.toUnixMs}, found[:])
		if err != nil {
			return false, fmt.Errorf("scan readings: %w", err)
		}
		return n > 0, nil
	}
	from := within.fromUnixMs
	for _, a := range assignments {
		if a.Device != device {
			continue
		}
		if found, err := look(span{from, min(a.FromUnixMs, within.toUnixMs)}); found || err != nil {
			return found, err
		}
		from = max(from, a.ToUnixMs)
	}
	return look(span{from, within.toUnixMs})
}

// readable reports whether may allows to read all that p reads.
func (p *plan) readable(may *gate.Access) bool {
	for _, subject := range p.subjects {
		if !may.CoversSubject(string(subject)) {
			return false
		}
	}
	return !slices.ContainsFunc(p.devices, func(device vitals.Name) bool { return hides(may, &device) })
}

// resolve returns the name of a device. For an id with a hash of which no device is known, it
// returns storage.ErrNotFound with the beginning of the name.
func (v *view) resolve(ctx context.Context, id *deviceID) (vitals.Name, error) {
	if id.exact {
		return id.name, nil
	}
	page := make([]storage.Device, 256)
	for after := id.name; ; {
		n, err := v.Devices(ctx, after, page)
		if err != nil {
			return vitals.Name{}, fmt.Errorf("list devices: %w", err)
		}
		for i := range page[:n] {
			after = page[i].Name
			if !after.HasPrefix(&id.name) {
				return id.name, storage.ErrNotFound
			}
			if id.is(&after) {
				return after, nil
			}
		}
		if n < len(page) {
			return id.name, storage.ErrNotFound
		}
	}
}
