package fhir

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Observation serves GET /fhir/Observation/{id}. It is recorded in the audit log like a search.
//
// A resource that the client may not read is answered like one that does not exist, here and
// with the other types.
func (h *Handler) Observation(w http.ResponseWriter, r *http.Request) {
	h.read(w, r, func(r *http.Request, v *view) ([]byte, error) {
		id, ok := parseObservationID(v.Signs(), h.opt.Param(r, "id"))
		if !ok {
			return nil, storage.ErrNotFound
		}
		device, err := v.readable(r.Context(), &id.device)
		if err != nil {
			return nil, err
		}
		record, err := v.recordAt(r.Context(), device, id.unixMs)
		if err != nil || groupsOf(&record.Values)&(1<<id.group) == 0 {
			return nil, notFoundOr(err)
		}
		assignments, err := v.ofDevices(r.Context(), device)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(assignments, func(a storage.Assignment) bool { return a.Covers(id.unixMs) })
		if i < 0 {
			return nil, storage.ErrNotFound
		}
		subject, changed := assignments[i].Subject, assignments[i].ChangedUnixMs
		if r.Method != http.MethodHead {
			if err := h.record(r, v.may, []storage.Subject{subject}, device, span{id.unixMs, id.unixMs + 1}); err != nil {
				return nil, err
			}
		}
		return newForm(h.base(r), v.Signs(), &device, subject, id.group).appendResource(nil, &record, changed), nil
	})
}

// Device serves GET /fhir/Device/{id}: the name of a device that has readings.
func (h *Handler) Device(w http.ResponseWriter, r *http.Request) {
	h.read(w, r, func(r *http.Request, v *view) ([]byte, error) {
		id, ok := parseDeviceID(h.opt.Param(r, "id"))
		if !ok {
			return nil, storage.ErrNotFound
		}
		device, err := v.readable(r.Context(), &id)
		if err != nil {
			return nil, err
		}
		if v.may.BoundToSubjects() {
			assignments, err := v.ofDevices(r.Context(), device)
			if err != nil || len(assignments) == 0 {
				return nil, notFoundOr(err)
			}
		} else if _, err := v.Latest(r.Context(), device); err != nil {
			return nil, err
		}
		return deviceResource(&device), nil
	})
}

func deviceResource(device *vitals.Name) []byte {
	name := device.String()
	return []byte(`{"resourceType":"Device","id":"` + string(appendDeviceID(nil, device)) +
		`","identifier":[{"value":"` + name + `"}],"deviceName":[{"name":"` + name + `","type":"user-friendly-name"}]}`)
}

// Patient serves GET /fhir/Patient/{id}: the id of a subject to whom a device was assigned, and
// nothing else, because Pulsegate knows no more.
func (h *Handler) Patient(w http.ResponseWriter, r *http.Request) {
	h.read(w, r, func(r *http.Request, v *view) ([]byte, error) {
		subject, err := storage.ParseSubject(h.opt.Param(r, "id"))
		if err != nil {
			return nil, storage.ErrNotFound
		}
		assignments, err := v.ofPatients(r.Context(), []storage.Subject{subject})
		if err != nil || len(assignments) == 0 {
			return nil, notFoundOr(err)
		}
		return patientResource(subject), nil
	})
}

func patientResource(subject storage.Subject) []byte {
	return []byte(`{"resourceType":"Patient","id":"` + string(subject) + `"}`)
}

// read answers a request for one resource.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, resource func(*http.Request, *view) ([]byte, error)) {
	r = query.WithoutCancel(r)
	head, access, leave, ok := h.begin(w, r)
	if !ok {
		return
	}
	defer leave()
	text, err := resource(r, h.view(&access))
	if err != nil {
		if err == errForbidden {
			h.opt.Gate.NotCovered(&access, gate.PeerOf(r))
			err = storage.ErrNotFound
		}
		h.fail(w, r, &access, err)
		return
	}
	_ = head.Write(w, r, append(text, '\n')) // an error means that the client has disconnected
}

// notFoundOr returns err or, if it is nil, storage.ErrNotFound.
func notFoundOr(err error) error {
	if err == nil {
		return storage.ErrNotFound
	}
	return err
}

// readable returns the device with an id, or errForbidden if it is hidden, whether it exists
// or not.
func (v *view) readable(ctx context.Context, id *deviceID) (vitals.Name, error) {
	device, err := v.resolve(ctx, id)
	if (err == nil || errors.Is(err, storage.ErrNotFound)) && hides(v.may, &device) {
		return device, errForbidden
	}
	return device, err
}

// recordAt returns the record of a device and time, or storage.ErrNotFound.
func (v *view) recordAt(ctx context.Context, device vitals.Name, unixMs int64) (storage.Record, error) {
	var found [1]storage.Record
	n, err := v.Scan(ctx, storage.Range{Device: device, FromUnixMs: unixMs, ToUnixMs: unixMs + 1}, found[:])
	switch {
	case err != nil:
		return found[0], fmt.Errorf("scan readings: %w", err)
	case n == 0:
		return found[0], storage.ErrNotFound
	}
	return found[0], nil
}
