package fhir

import (
	"bytes"
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
)

// A parser reads resources.
type parser struct {
	*strictjson.Reader
	codes     codes.Table
	leavesOut func(codes.Doubt) bool
	samples   int // of SampledData that were converted, stored or not
}

// A sentResource is a resource as it was sent, as far as Pulsegate reads it.
type sentResource struct {
	containedResource

	// fault is about the first element that Pulsegate must not ignore and does not store, or that is not
	// what FHIR says. Of Observations only.
	fault *fieldFault
	doubt codes.Doubt // with which the device disowns the value

	final      bool
	code       meaning
	device     sentReference
	subject    sentReference
	effective  effective
	value      quantity
	hasValue   bool
	sampled    sampledData
	hasSampled bool
	components []sentComponent
	contained  []containedResource
}

// A containedResource is a contained Device or Patient, or another resource.
type containedResource struct {
	kind, id    string   // kind is resourceType
	identifiers []string // values
}

// maxParts bounds the identifiers, the components and the contained resources of a resource, so
// that a small body neither takes much memory nor many look-ups. One with more identifiers is
// read as one without any.
const maxParts = 16

type sentReference struct {
	sent      bool
	reference string
	value     string // of identifier
}

// An effective is the time of an Observation.
type effective struct {
	field string // "": none
	start []byte
	end   []byte // of a period; nil means none
}

type quantity struct {
	value, system, code []byte
	comparator          bool
}

type sampledData struct {
	origin                                         quantity
	period, factor, lower, upper, dimensions, data []byte
}

type sentComponent struct {
	code     meaning
	value    quantity
	hasValue bool
	fault    *fieldFault
	doubt    codes.Doubt
}

// A fieldFault is why an Observation is rejected: a path within it, which may be empty, and the
// reason. Neither has a measured value or a patient.
type fieldFault struct{ field, reason string }

func (f *fieldFault) Error() string { return f.reason }

// in returns f as a fault of a part of an Observation. It returns nil if f is nil.
func (f *fieldFault) in(part string) *fieldFault {
	if f == nil {
		return nil
	}
	return &fieldFault{part + f.field, f.reason}
}

// refuse notes the first element that cannot be accepted.
func (r *sentResource) refuse(field, reason string) {
	if r.fault == nil {
		r.fault = &fieldFault{field, reason}
	}
}

const (
	notStored    = "not stored by Pulsegate; send the resource without it"
	changesSense = "changes the meaning of the Observation, and is not stored"
)

// resource reads a resource of any type.
func (p *parser) resource(isContained bool) (r sentResource) {
	p.Object(func(name []byte) {
		switch string(name) {
		case "resourceType":
			r.kind = string(p.Text())
		case "id":
			r.id = string(p.Text())
		case "identifier":
			p.identifiers(&r)
		case "contained":
			if isContained {
				p.Mismatch("allowed in a contained resource")
				return
			}
			p.contained(&r)
		default:
			p.element(&r, name)
		}
	})
	p.refuseWrong(&r)
	return r
}

// refuseWrong refuses a resource if a value in it has the wrong kind.
func (p *parser) refuseWrong(r *sentResource) {
	if member, why := p.Wrong(); member != "" {
		r.refuse("", member+" is "+why)
	}
}

// identifiers reads the identifiers of a resource.
func (p *parser) identifiers(r *sentResource) {
	p.Array(func() {
		if v := p.identifier(); v != "" && len(r.identifiers) <= maxParts {
			r.identifiers = append(r.identifiers, v)
		}
	})
	if len(r.identifiers) > maxParts {
		r.identifiers = nil
	}
}

// contained reads contained resources. They contain no further ones.
func (p *parser) contained(r *sentResource) {
	p.refuseWrong(r) // what is wrong in a contained resource is not wrong in r
	p.Array(func() {
		if len(r.contained) == maxParts {
			p.Skip()
			r.refuse("contained", "more than 16 resources")
			return
		}
		r.contained = append(r.contained, p.resource(true).containedResource)
	})
}

// element reads an element of an Observation. Elements of other resources that have the same
// names are read too, and ignored later.
func (p *parser) element(r *sentResource, name []byte) {
	switch string(name) {
	case "status":
		r.final = string(p.Text()) == status
	case "code":
		if p.Kind() != jsontext.KindBeginObject { // of resources other than Observations
			p.Skip()
			return
		}
		r.code = p.meaning()
	case "device":
		r.device = p.reference()
	case "subject":
		r.subject = p.reference()
	case "effectiveDateTime":
		r.setEffective(effective{field: "effectiveDateTime", start: p.Text()})
	case "effectiveInstant":
		r.setEffective(effective{field: "effectiveInstant", start: p.Text()})
	case "effectivePeriod":
		r.setEffective(p.period())
	case "valueQuantity":
		r.value, r.hasValue = p.quantity(), true
	case "valueSampledData":
		r.sampled, r.hasSampled = p.sampledData(), true
	case "component":
		p.Array(func() {
			if len(r.components) == maxParts {
				p.Skip()
				r.refuse("component", "more than 16, of which some are "+notStored)
			} else if c := p.component(); c.code != meansSupplement {
				r.components = append(r.components, c)
			}
		})
	case "meta":
		p.meta(r)
	case "interpretation":
		p.interpretation(&r.doubt, &r.fault)
	case "modifierExtension", "implicitRules", "focus":
		p.Skip()
		r.refuse(string(name), changesSense)
	case "dataAbsentReason":
		p.absent(&r.doubt)
	case "effectiveTiming":
		p.Skip()
		r.refuse("effectiveTiming", "not supported; send effectiveDateTime, effectiveInstant or effectivePeriod")
	case "language", "text", "extension", "basedOn", "partOf", "category", "encounter", "issued", "performer", "note",
		"bodySite", "method", "specimen", "referenceRange", "hasMember", "derivedFrom":
		p.Skip() // neither stored nor needed to understand the value
	default:
		p.Skip()
		switch {
		case bytes.HasPrefix(name, []byte("_")): // extensions of a primitive element
		case bytes.HasPrefix(name, []byte("value")):
			r.refuse("value[x]", "of a type that Pulsegate does not store")
		case plain(name):
			r.refuse("", string(name)+" is not an element of an Observation in FHIR R4")
		default:
			r.refuse("", "has an element that an Observation in FHIR R4 does not have")
		}
	}
}

func (r *sentResource) setEffective(e effective) {
	if r.effective.field != "" {
		r.refuse("effective[x]", "given twice")
	}
	r.effective = e
}

// plain reports whether the name of a member may be repeated to the client and in a log.
func plain(name []byte) bool {
	for _, c := range name {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 40
}

// identifier reads an Identifier and returns its value.
func (p *parser) identifier() string {
	var value []byte
	p.Texts([]string{"value"}, &value)
	return string(value)
}

func (p *parser) reference() sentReference {
	ref := sentReference{sent: true}
	p.Object(func(name []byte) {
		switch string(name) {
		case "reference":
			ref.reference = string(p.Text())
		case "identifier":
			ref.value = p.identifier()
		default:
			p.Skip()
		}
	})
	return ref
}

// concept reads a CodeableConcept, and calls visit with each of its codings.
func (p *parser) concept(visit func(system, code []byte)) {
	p.Object(func(name []byte) {
		if string(name) != "coding" {
			p.Skip()
			return
		}
		p.Array(func() { visit(p.coding()) })
	})
}

// meaning reads a CodeableConcept and returns the meaning of its codes.
func (p *parser) meaning() (m meaning) {
	m = codes.Anything
	p.concept(func(system, code []byte) { m &= meaningOf(p.codes, system, code) })
	return m
}

func (p *parser) coding() (system, code []byte) {
	p.Texts([]string{"system", "code"}, &system, &code)
	return system, code
}

func (p *parser) quantity() (q quantity) {
	p.Object(func(name []byte) {
		switch string(name) {
		case "value":
			q.value = p.Number()
		case "system":
			q.system = p.Text()
		case "code":
			q.code = p.Text()
		case "comparator":
			p.Skip()
			q.comparator = true
		default:
			p.Skip()
		}
	})
	return q
}

func (p *parser) period() effective {
	e := effective{field: "effectivePeriod.start"}
	p.Texts([]string{"start", "end"}, &e.start, &e.end)
	return e
}

func (p *parser) sampledData() (s sampledData) {
	p.Object(func(name []byte) {
		switch string(name) {
		case "origin":
			s.origin = p.quantity()
		case "period":
			s.period = p.Number()
		case "factor":
			s.factor = p.Number()
		case "lowerLimit":
			s.lower = p.Number()
		case "upperLimit":
			s.upper = p.Number()
		case "dimensions":
			s.dimensions = p.Number()
		case "data":
			s.data = p.Text()
		default:
			p.Skip()
		}
	})
	return s
}

// component reads a component. Those that describe the measurement are left out.
func (p *parser) component() (c sentComponent) {
	p.Object(func(name []byte) {
		switch string(name) {
		case "code":
			c.code = p.meaning()
		case "valueQuantity":
			c.value, c.hasValue = p.quantity(), true
		case "dataAbsentReason":
			p.absent(&c.doubt)
		case "interpretation":
			p.interpretation(&c.doubt, &c.fault)
		case "modifierExtension":
			p.Skip()
			c.fault = cmp.Or(c.fault, &fieldFault{"modifierExtension", changesSense})
		default:
			p.Skip()
		}
	})
	return c
}

// meta reads meta, whose security labels may mark test data.
func (p *parser) meta(r *sentResource) {
	p.Object(func(name []byte) {
		if string(name) != "security" {
			p.Skip()
			return
		}
		p.Array(func() {
			if _, code := p.coding(); string(code) == "HTEST" {
				r.doubt = max(r.doubt, codes.Test)
			}
		})
	})
}

// Systems of codes with which a device qualifies a measurement: of the Personal Health Device guide, and of later
// drafts of the guide for devices at the point of care.
const (
	measurementStatus = "http://hl7.org/fhir/uv/pocd/CodeSystem/measurement-status"
	statusOfDevices   = "http://terminology.hl7.org/CodeSystem/measurement-status"
)

// interpretation reads interpretations. High, low and the like are ignored, because they follow from the value. Those
// of a device are ignored if they say nothing against the value.
func (p *parser) interpretation(doubt *codes.Doubt, fault **fieldFault) {
	p.Array(func() {
		p.concept(func(system, code []byte) {
			if string(system) != measurementStatus && string(system) != statusOfDevices {
				return
			}
			switch d := codes.StatusDoubt(code); string(code) {
			case "validated-data", "in-alarm", "alarm-inhibited", "msmt-state-in-alarm", "msmt-state-al-inhibited":
			default:
				if d == 0 {
					*fault = cmp.Or(*fault, &fieldFault{"interpretation", "not a status of measurements that is known"})
				}
				*doubt = max(*doubt, d)
			}
		})
	})
}

// absent reads a dataAbsentReason: whatever it is, nothing was measured.
func (p *parser) absent(doubt *codes.Doubt) {
	*doubt = max(*doubt, codes.NotAvailable)
	p.concept(func(_, code []byte) {
		if string(code) == "error" { // https://hl7.org/fhir/R4/valueset-data-absent-reason.html
			*doubt = codes.Invalid
		}
	})
}
