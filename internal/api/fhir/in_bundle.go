package fhir

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxEntries bounds the entries of a Bundle. Each takes about 1 KiB of memory while the Bundle
// is decoded.
const maxEntries = 10_000

// A sentEntry is an entry of a Bundle.
type sentEntry struct {
	fullURL                  []byte
	resource                 sentResource
	method, url, ifNoneExist []byte
}

// Decode implements [ingest.Input].
func (s *intake) Decode(body []byte, in *ingest.Intake) error {
	if err := strictjson.CheckSize(body); err != nil {
		return err
	}
	s.parser, s.in = newParser(body), in
	s.devices, s.assignments, s.urls = map[string]*resolved{}, map[vitals.Name][]storage.Assignment{}, map[string]*sentEntry{}
	in.Units = true
	defer func() { s.parser, s.in, s.devices, s.assignments, s.urls = nil, nil, nil, nil, nil }()
	if !s.bundle {
		e := sentEntry{resource: s.parser.resource(0), method: []byte("POST"), url: []byte("Observation"), ifNoneExist: s.ifNoneExist}
		if err := s.parser.End(); err != nil {
			return err
		}
		if string(e.resource.kind) != "Observation" {
			return ingest.Invalid("resourceType", "not an Observation")
		}
		s.places = make([]place, 1)
		s.place(0, &e)
		return s.err
	}
	entries, err := s.entries()
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if kind := string(e.resource.kind); len(e.fullURL) > 0 && (kind == "Device" || kind == "Patient") {
			if s.urls[string(e.fullURL)] != nil {
				return ingest.Invalid(fmt.Sprintf("entry[%d].fullUrl", i), "another entry has the same")
			}
			s.urls[string(e.fullURL)] = e
		}
	}
	s.places = make([]place, len(entries))
	for i := range entries {
		if s.place(i, &entries[i]); s.err != nil {
			break
		}
	}
	return s.err
}

// entries reads the Bundle.
func (s *intake) entries() ([]sentEntry, error) {
	p := s.parser
	var kind, typ []byte
	var entries []sentEntry
	tooMany := false
	p.Object(func(name []byte) {
		switch string(name) {
		case "resourceType":
			kind = p.Text()
		case "type":
			typ = p.Text()
		case "entry":
			p.Array(func() {
				if len(entries) == maxEntries {
					tooMany = true
					p.Skip()
					return
				}
				entries = append(entries, p.entry())
			})
		default:
			p.Skip()
		}
	})
	if err := p.End(); err != nil {
		return nil, err
	}
	s.transaction = string(typ) == "transaction"
	s.in.Whole = s.transaction
	member, why := p.Wrong()
	switch {
	case member != "":
		return nil, ingest.Malformed(member + " is " + why + ".")
	case string(kind) != "Bundle":
		return nil, ingest.Invalid("resourceType", "not a Bundle; send an Observation to /fhir/Observation")
	case !s.transaction && string(typ) != "batch":
		return nil, ingest.Invalid("type", "neither transaction nor batch")
	case tooMany:
		return nil, ingest.TooLarge(fmt.Sprintf("A Bundle may have %d entries.", maxEntries))
	}
	return entries, nil
}

func (p *parser) entry() (e sentEntry) {
	p.Object(func(name []byte) {
		switch string(name) {
		case "fullUrl":
			e.fullURL = p.Text()
		case "resource":
			e.resource = p.resource(0)
		case "request":
			p.Object(func(name []byte) {
				switch string(name) {
				case "method":
					e.method = p.Text()
				case "url":
					e.url = p.Text()
				case "ifNoneExist":
					e.ifNoneExist = p.Text()
				default:
					p.Skip()
				}
			})
		default:
			p.Skip()
		}
	})
	return e
}

// place decides about the entry at position i.
func (s *intake) place(i int, e *sentEntry) {
	p := &s.places[i]
	kind, fault := string(e.resource.kind), (*fieldFault)(nil)
	switch {
	case string(e.method) != "POST":
		fault = &fieldFault{"", "only POST is supported in a Bundle"}
		p.problem = s.rc.problems.MethodNotAllowed
	case strings.TrimPrefix(string(e.url), "/") != kind:
		fault = &fieldFault{"", "request.url is not the type of the resource"}
	case kind == "Observation":
		fault = s.observation(i, e)
	case kind == "Device":
		fault = s.existingDevice(p, e)
	case kind == "Patient":
		fault = s.existingPatient(p, e)
	default:
		fault = &fieldFault{"", "Pulsegate stores Observations of vital signs only"}
	}
	if fault == nil {
		return
	}
	refused := vitals.FieldError{Index: i, Field: fault.field, Err: fault}
	if fault == notCovered {
		refused.Err = ingest.ErrNotCovered
	}
	if kind == "Device" && fault.field == "device" {
		refused.Field = "identifier" // which names the device
	}
	s.in.Batch.Refused = append(s.in.Batch.Refused, refused)
}

// observation adds the readings of an Observation.
func (s *intake) observation(i int, e *sentEntry) *fieldFault {
	o, fault := s.parser.observe(&e.resource, s.in.MaxUnit)
	if s.parser.samples > s.in.MaxReadings { // those of refused Observations take time too
		s.err = vitals.ErrTooManyReadings
		return nil
	}
	if fault != nil {
		return fault
	}
	if len(e.ifNoneExist) > 0 && !s.isOwn(e) {
		return &fieldFault{"", "If-None-Exist is supported with an identifier of the resource itself only; what was stored before is always recognized"}
	}
	device, fault := s.deviceOf(&e.resource)
	if fault != nil || s.err != nil {
		return fault
	}
	p := &s.places[i]
	*p = place{what: observationEntry, device: device.name, unixMs: o.at.unixMs, group: o.group, paths: o.paths}
	b := s.in.Batch
	first := len(b.Readings)
	r := vitals.Reading{Device: device.name, TimeUnixMs: o.at.unixMs, Values: o.values, UTCOffset: o.at.offset}
	if o.samples == nil {
		fault = s.add(i, e, device, &r)
	}
	sign := mappings[o.group].components[0].sign
	for j := range o.samples {
		if fault != nil || s.err != nil {
			break
		}
		r.TimeUnixMs, r.Values = o.samples[j].unixMs, vitals.Values{}
		r.Values.Set(sign, o.samples[j].value)
		fault = s.add(i, e, device, &r)
	}
	if o.samples != nil {
		p.unixMs = o.samples[0].unixMs
	}
	if fault != nil {
		b.Readings, b.Index = b.Readings[:first], b.Index[:first]
	}
	return fault
}

// add adds a reading, if it is valid and its device was assigned to the Observation's subject.
func (s *intake) add(i int, e *sentEntry, device *resolved, r *vitals.Reading) *fieldFault {
	if err := s.in.Rules.Validate(r, s.in.NowUnixMs); err != nil {
		broken := err.(*vitals.FieldError)
		return &fieldFault{s.places[i].path(broken.Field), broken.Reason()}
	}
	assigned := device.at(r.TimeUnixMs)
	switch {
	case assigned == "":
		return &fieldFault{"device", "assigned to no patient at that time"}
	case !s.isSubject(&e.resource, assigned):
		return &fieldFault{"subject", "not the patient to whom the device was assigned at that time"}
	}
	if len(s.in.Batch.Readings) == s.in.MaxReadings {
		s.err = vitals.ErrTooManyReadings
		return nil
	}
	s.in.Batch.Readings = append(s.in.Batch.Readings, *r)
	s.in.Batch.Index = append(s.in.Batch.Index, int32(i))
	return nil
}

// isOwn reports whether a condition asks for an identifier of the resource itself.
func (s *intake) isOwn(e *sentEntry) bool {
	value := conditionValue(string(e.ifNoneExist))
	for _, id := range s.parser.identifiers[e.resource.identifiers.from:e.resource.identifiers.to] {
		if value != "" && value == string(id.value) {
			return true
		}
	}
	return false
}

// conditionValue returns the value of the identifier for which a condition such as
// identifier=system|value asks, or "" for any other condition.
func conditionValue(condition string) string {
	query, err := url.ParseQuery(strings.TrimPrefix(condition, "?"))
	if err != nil || len(query) != 1 || len(query["identifier"]) != 1 {
		return ""
	}
	token := query["identifier"][0]
	return token[strings.LastIndexByte(token, '|')+1:]
}

// existingDevice finds the Device that an entry would create.
func (s *intake) existingDevice(p *place, e *sentEntry) *fieldFault {
	if len(e.ifNoneExist) == 0 {
		return &fieldFault{"", "Pulsegate creates no Devices; refer to Device/{id}, or send it with ifNoneExist"}
	}
	device := s.choose(s.namesOf(e))
	if device.fault != nil {
		return device.fault
	}
	p.what, p.device = deviceEntry, device.name
	return nil
}

// existingPatient finds the Patient that an entry would create.
func (s *intake) existingPatient(p *place, e *sentEntry) *fieldFault {
	if len(e.ifNoneExist) == 0 {
		return &fieldFault{"", "Pulsegate creates no Patients; refer to Patient/{id}, or send it with ifNoneExist"}
	}
	var found []storage.Subject
	for _, text := range s.namesOf(e) {
		subject, err := storage.ParseSubject(text)
		if err != nil {
			continue
		}
		assignments, err := s.rc.subjects.SubjectAssignments(s.ctx, subject)
		if err != nil {
			s.err = ingest.Unavailable()
			return nil
		}
		// A patient whose devices the client may not write to is not revealed.
		known := slices.ContainsFunc(assignments, func(a storage.Assignment) bool { return s.in.Covers(&a.Device) })
		if known && (len(found) == 0 || found[0] != subject) {
			found = append(found, subject)
		}
	}
	if len(found) != 1 {
		return &fieldFault{"identifier", "no value of it is the id of one patient to whom a device is assigned"}
	}
	p.what, p.patient = patientEntry, found[0]
	return nil
}

// namesOf returns the values of the identifiers of a Device or Patient, that of ifNoneExist
// first.
func (s *intake) namesOf(e *sentEntry) (names []string) {
	if value := conditionValue(string(e.ifNoneExist)); value != "" {
		names = append(names, value)
	}
	return append(names, s.values(e.resource.identifiers)...)
}

// values returns the values of identifiers.
func (s *intake) values(of within) (values []string) {
	for _, id := range s.parser.identifiers[of.from:of.to] {
		values = append(values, string(id.value))
	}
	return values
}

// containedIn returns a contained resource by its reference, without the #.
func (s *intake) containedIn(r *sentResource, id []byte) *containedResource {
	for i := r.contained.from; i < r.contained.to; i++ {
		if c := &s.parser.contained[i]; bytes.Equal(c.id, id) {
			return c
		}
	}
	return nil
}
