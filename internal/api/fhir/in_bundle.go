package fhir

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/codes"
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
	fullURL                  string
	resource                 sentResource
	method, url, ifNoneExist []byte
}

// A decoder decodes the body of an intake.
type decoder struct {
	*intake
	*parser
	in      *ingest.Intake
	devices map[vitals.Name]*resolved
	urls    map[string]*sentEntry // of Devices and Patients, by fullUrl
	err     error                 // of the store
}

// Decode implements [ingest.Input].
func (s *intake) Decode(body []byte, in *ingest.Intake) error {
	if err := strictjson.CheckSize(body); err != nil {
		return err
	}
	in.Units = true
	s.access = in.Access()
	d := &decoder{
		intake: s, in: in,
		parser: &parser{Reader: strictjson.NewReader(body),
			codes: codes.Table{Signs: s.h.reader.Signs(), PulseAsHeartRate: s.h.opt.PulseAsHeartRate}, leavesOut: in.LeavesOut},
		devices: map[vitals.Name]*resolved{}, urls: map[string]*sentEntry{},
	}
	if s.bundle {
		return d.decodeBundle()
	}
	e := sentEntry{resource: d.resource(false), method: []byte("POST"), url: []byte("Observation"),
		ifNoneExist: s.ifNoneExist}
	if s.id != "" {
		e.method, e.url, e.ifNoneExist = []byte("PUT"), []byte("Observation/"+s.id), nil
	}
	if err := d.End(); err != nil {
		return err
	}
	if e.resource.kind != "Observation" {
		return ingest.Invalid("resourceType", "not an Observation")
	}
	s.places = make([]place, 1)
	d.place(0, &e)
	return d.err
}

func (d *decoder) decodeBundle() error {
	entries, err := d.entries()
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if kind := e.resource.kind; e.fullURL != "" && (kind == "Device" || kind == "Patient") {
			if d.urls[e.fullURL] != nil {
				return ingest.Invalid(fmt.Sprintf("entry[%d].fullUrl", i), "another entry has the same")
			}
			d.urls[e.fullURL] = e
		}
	}
	d.places = make([]place, len(entries))
	for i := range entries {
		if d.place(i, &entries[i]); d.err != nil {
			break
		}
	}
	codes.LeaveOut(d.in.Batch, func(i int32) int { return d.places[i].order }, func(i int32, _ vitals.Name) {
		d.places[i].left = true
		d.leaveOut(int(i), 0)
	})
	return d.err
}

// entries reads the Bundle.
func (d *decoder) entries() ([]sentEntry, error) {
	p := d.parser
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
	d.transaction = string(typ) == "transaction"
	d.in.Whole = d.transaction
	member, why := p.Wrong()
	switch {
	case member != "":
		return nil, ingest.Malformed(member + " is " + why + ".")
	case string(kind) != "Bundle":
		return nil, ingest.Invalid("resourceType", "not a Bundle; send an Observation to /fhir/Observation")
	case !d.transaction && string(typ) != "batch":
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
			e.fullURL = string(p.Text())
		case "resource":
			e.resource = p.resource(false)
		case "request":
			p.Texts([]string{"method", "url", "ifNoneExist"}, &e.method, &e.url, &e.ifNoneExist)
		default:
			p.Skip()
		}
	})
	return e
}

// place decides about the entry at position i.
func (d *decoder) place(i int, e *sentEntry) {
	p := &d.places[i]
	kind, fault := e.resource.kind, (*fieldFault)(nil)
	switch {
	case string(e.method) == "PUT" && kind == "Observation":
		fault = d.observation(i, e)
	case string(e.method) != "POST":
		fault = &fieldFault{"", "only POST is supported in a Bundle, and PUT of an Observation"}
		p.problem = d.h.opt.Problems.MethodNotAllowed
	case strings.TrimPrefix(string(e.url), "/") != kind:
		fault = &fieldFault{"", "request.url is not the type of the resource"}
	case kind == "Observation":
		fault = d.observation(i, e)
	case kind == "Device":
		fault = d.existingDevice(p, e)
	case kind == "Patient":
		fault = d.existingPatient(p, e)
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
	d.in.Batch.Refused = append(d.in.Batch.Refused, refused)
}

// observation adds the readings of an Observation.
func (d *decoder) observation(i int, e *sentEntry) *fieldFault {
	o, fault := d.observe(&e.resource, d.in.MaxUnit)
	if d.samples > d.in.MaxReadings { // those of refused Observations take time too
		d.err = vitals.ErrTooManyReadings
		return nil
	}
	if fault != nil {
		return fault
	}
	if len(e.ifNoneExist) > 0 && !e.isOwn() {
		return &fieldFault{"",
			"If-None-Exist is supported with an identifier of the resource itself only; what was stored before is " +
				"always recognized"}
	}
	device, fault := d.deviceOf(&e.resource)
	if fault != nil || d.err != nil {
		return fault
	}
	p := &d.places[i]
	*p = place{
		what: observationEntry, device: device.name, unixMs: o.at.unixMs, offset: o.at.offset, group: o.group,
		values:  o.values,
		sampled: o.samples != nil, component: o.component, order: o.order, named: e.resource.subject.sent,
	}
	if d.in.LeavesOut(o.doubt) {
		p.doubt = o.doubt
		d.leaveOut(i, o.doubt)
		return nil
	}
	sign := o.sign()
	if o.samples != nil {
		p.unixMs = o.samples[0].unixMs
		p.values.Set(sign, o.samples[0].value)
	}
	worn := storage.SpanAt(device.assignments, p.unixMs)
	p.patient, p.assignedUnixMs = worn.Subject, worn.ChangedUnixMs
	if string(e.method) == "PUT" {
		switch id := e.resource.id; {
		case strings.TrimPrefix(string(e.url), "/") != "Observation/"+id:
			p.problem = d.h.opt.Problems.BadParameter // https://hl7.org/fhir/R4/http.html#update
			return &fieldFault{"id", "not the id in the URL"}
		case string(p.appendObservationID(d.codes.Signs, nil)) != id:
			return &fieldFault{"id", "not the id of this Observation: the sign, the time and the device decide it"}
		}
	}
	b := d.in.Batch
	first := len(b.Readings)
	r := vitals.Reading{Device: device.name, TimeUnixMs: o.at.unixMs, Values: o.values, UTCOffset: o.at.offset}
	if o.samples == nil {
		fault = d.add(i, e, device, &r)
	}
	for j := range o.samples {
		if fault != nil || d.err != nil {
			break
		}
		r.TimeUnixMs, r.Values = o.samples[j].unixMs, vitals.Values{}
		r.Values.Set(sign, o.samples[j].value)
		fault = d.add(i, e, device, &r)
	}
	if fault != nil {
		b.Readings, b.Index = b.Readings[:first], b.Index[:first]
	}
	return fault
}

// leaveOut leaves out a value of each sign of the Observation at a place.
func (d *decoder) leaveOut(i int, why codes.Doubt) {
	p := &d.places[i]
	for _, c := range mappingOf(d.codes.Signs, p.group).components {
		d.in.LeftOut = append(d.in.LeftOut, ingest.LeftOut{
			Index: i, Source: ingest.FHIR, Device: p.device, Field: d.codes.Signs.Field(c.sign), Why: why,
		})
	}
}

// add adds a reading, if it is valid and its device was assigned to the Observation's subject.
func (d *decoder) add(i int, e *sentEntry, device *resolved, r *vitals.Reading) *fieldFault {
	if err := d.in.Rules.Validate(r, d.in.NowUnixMs); err != nil {
		broken := err.(*vitals.FieldError)
		return &fieldFault{d.places[i].path(d.codes.Signs, broken.Field), broken.Reason()}
	}
	assigned := storage.SubjectAt(device.assignments, r.TimeUnixMs)
	switch {
	case assigned == "":
		return &fieldFault{"device", "assigned to no patient at that time"}
	case !d.isSubject(&e.resource, assigned):
		return &fieldFault{"subject", "not the patient to whom the device was assigned at that time"}
	}
	if len(d.in.Batch.Readings) == d.in.MaxReadings {
		d.err = vitals.ErrTooManyReadings
		return nil
	}
	d.in.Batch.Readings = append(d.in.Batch.Readings, *r)
	d.in.Batch.Index = append(d.in.Batch.Index, int32(i))
	return nil
}

// isOwn reports whether the condition of an entry asks for an identifier of the resource itself.
func (e *sentEntry) isOwn() bool {
	return slices.Contains(e.resource.identifiers, conditionValue(string(e.ifNoneExist)))
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
func (d *decoder) existingDevice(p *place, e *sentEntry) *fieldFault {
	if len(e.ifNoneExist) == 0 {
		return &fieldFault{"", "Pulsegate creates no Devices; refer to Device/{id}, or send it with ifNoneExist"}
	}
	device, fault := d.choose(e.names())
	if fault == nil {
		p.what, p.device = deviceEntry, device.name
	}
	return fault
}

// existingPatient finds the Patient that an entry would create.
func (d *decoder) existingPatient(p *place, e *sentEntry) *fieldFault {
	if len(e.ifNoneExist) == 0 {
		return &fieldFault{"", "Pulsegate creates no Patients; refer to Patient/{id}, or send it with ifNoneExist"}
	}
	var found []storage.Subject
	for _, text := range e.names() {
		subject, err := storage.ParseSubject(text)
		if err != nil {
			continue
		}
		var assignments []storage.Assignment
		if err := d.in.Await(func() (err error) {
			assignments, err = d.h.subjects.SubjectAssignments(d.request.Context(), subject)
			return err
		}); err != nil {
			d.err = ingest.Unavailable()
			return nil
		}
		// A patient whose devices the client may not write to is not revealed.
		known := slices.ContainsFunc(assignments, func(a storage.Assignment) bool { return d.in.Covers(&a.Device) })
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

// names returns the values of the identifiers of a Device or Patient, that of ifNoneExist first.
func (e *sentEntry) names() (names []string) {
	if value := conditionValue(string(e.ifNoneExist)); value != "" {
		names = append(names, value)
	}
	return append(names, e.resource.identifiers...)
}
