package fhir

import (
	"net/http"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Sending
//
// An Observation that is sent becomes a reading of its device; SampledData becomes several. It
// is admitted, committed and counted as a reading of POST /v1/readings is, and so is stored
// before it is answered with 200 or 201. What its device disowns is answered with 200 and a
// warning. Nothing else of a resource is stored: elements that
// change the meaning of a value, and values that are not stored, are refused; elements that
// only describe it are ignored.
//
// Devices and Patients are never created. A conditional create of one that is assigned finds it.

// ObservationForm is the form of POST /fhir/Observation.
func (h *Handler) ObservationForm(r *http.Request) ingest.Input { return h.intake(r, false) }

// BundleForm is the form of POST /fhir.
func (h *Handler) BundleForm(r *http.Request) ingest.Input { return h.intake(r, true) }

// UpdateForm is the form of PUT /fhir/Observation/{id}.
func (h *Handler) UpdateForm(r *http.Request) ingest.Input {
	s := h.intake(r, false)
	s.id = h.opt.Param(r, "id")
	return s
}

func (h *Handler) intake(r *http.Request, bundle bool) *intake {
	return &intake{
		h: h, request: r, base: h.base(r), bundle: bundle, ifNoneExist: []byte(r.Header.Get("If-None-Exist")),
		prefer: preference(r, "return"),
	}
}

// An intake is one request to store Observations.
type intake struct {
	h           *Handler
	request     *http.Request
	base        string // URL of the FHIR server
	bundle      bool
	transaction bool
	ifNoneExist []byte
	id          string // in the URL of an update, else ""
	prefer      string // the preference return
	access      gate.Access

	places []place // by position
}

// A place is one position: an entry of a Bundle, or a single Observation.
type place struct {
	device vitals.Name // of an Observation, or an existing Device
	unixMs int64       // of an Observation
	offset vitals.UTCOffset
	values vitals.Values // of an Observation; of SampledData, of the first sample with a value
	group  group         // of an Observation
	doubt  codes.Doubt   // with which an Observation is left out; 0 means that it is not
	what   what

	patient        storage.Subject // an existing Patient, or that of an Observation
	assignedUnixMs int64           // when the assignment to it was last changed
	named          bool            // the Observation names its subject

	sampled   bool    // SampledData
	order     int     // as in observed
	left      bool    // a value was left out, because another source of the sign comes first
	component [2]int8 // as in observed

	added          bool  // something was new
	alone          bool  // the reading of an Observation was new: no other sign of it was stored before
	receivedUnixMs int64 // when it arrived, if alone
	result         ingest.Result
	problem        *reply.Problem // instead of that of result; nil means that of result
}

// What a place holds.
type what uint8

const (
	refusedEntry what = iota
	observationEntry
	deviceEntry
	patientEntry
)

// rejected returns why the place was rejected, or nil.
func (p *place) rejected() *reply.Problem {
	if p.problem != nil {
		return p.problem
	}
	return p.result.Problem
}

// Respond implements [ingest.Responder].
func (s *intake) Respond(outcome *ingest.Outcome) ingest.Answer {
	if r, rejected := outcome.Refusal(); rejected {
		o := s.h.outcomes[r.Problem]
		return ingest.Answer{Head: o.head, Body: outcomeOf(o.text, strings.TrimSpace(r.Detail+" "+r.Reason), r.Field),
			RetryAfter: r.RetryAfter}
	}
	for r := range outcome.Results() {
		p := &s.places[r.Index]
		p.left = false // not all values
		switch {
		case r.Problem != nil:
			if p.result.Problem == nil {
				p.result = r
				p.result.Field = p.path(s.h.reader.Signs(), r.Field)
			}
		case r.Outcome != 0 && r.Outcome != storage.Duplicate: // 0: another entry was rejected
			p.added, p.alone, p.receivedUnixMs = true, r.Outcome == storage.Stored && !p.sampled, r.ReceivedUnixMs
		}
	}
	switch {
	case !s.bundle:
		return s.singleReply(&s.places[0])
	case s.transaction:
		return s.transactionReply()
	}
	return s.bundleReply("batch-response")
}

// path returns the path of a field of a reading in the place's resource.
func (p *place) path(signs *vitals.Signs, field string) string {
	switch field {
	case "time":
		return "effective[x]"
	case "device":
		return "device"
	case "gateway", "":
		return ""
	}
	for _, c := range mappingOf(signs, p.group).components {
		switch {
		case signs.Field(c.sign) != field:
		case p.sampled:
			return "valueSampledData.data"
		case p.group == bloodPressure:
			return componentPath(int(p.component[c.sign]), ".valueQuantity.value")
		default:
			return "valueQuantity.value"
		}
	}
	return field
}
