package fhir

import (
	"fmt"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// appendObservationID appends the id of the Observation at a place; of SampledData, that of its
// first sample with a value.
func (p *place) appendObservationID(signs *vitals.Signs, dst []byte) []byte {
	dst = append(append(dst, mappingOf(signs, p.group).key...), '-')
	dst = append(appendTimeID(dst, p.unixMs), '-')
	return appendDeviceID(dst, &p.device)
}

// location appends the URL of the resource at a place.
func (s *intake) location(dst []byte, p *place) []byte {
	switch dst = append(dst, s.base...); p.what {
	case deviceEntry:
		return appendDeviceID(append(dst, "/Device/"...), &p.device)
	case patientEntry:
		return append(append(dst, "/Patient/"...), p.patient...)
	default:
		return p.appendObservationID(s.h.reader.Signs(), append(dst, "/Observation/"...))
	}
}

// unstored reports whether the Observation at a place was left out: it was neither rejected nor stored.
func (p *place) unstored() bool { return p.doubt != 0 || p.left }

// outcome returns the issue of a place that was not rejected: a warning if its device disowns it.
func (p *place) outcome() (issue, note string) {
	switch {
	case p.doubt != 0:
		return warning, p.doubt.Reason()
	case p.left:
		return information, "Not stored: the Bundle has another source of the sign, which comes first."
	case p.added:
		return information, "The Observation is stored."
	}
	return information, "This Observation was stored before."
}

// appendResource appends the Observation at a place as it is read, or nothing if it cannot be read now. What was stored
// before is recorded in the audit log first, like every Observation that is read. A client
// without the read right gets only what it has sent: not the patient, unless the Observation names one, and neither
// the offset of a reading that was stored before nor when it arrived.
func (s *intake) appendResource(dst []byte, p *place) []byte {
	r := storage.Record{TimeUnixMs: p.unixMs, Values: p.values, UTCOffset: p.offset, ReceivedUnixMs: p.receivedUnixMs}
	subject := p.patient
	mayRead := s.access.MayRead()
	if !mayRead && !p.named {
		subject = ""
	}
	f := newForm(s.base, s.h.reader.Signs(), &p.device, subject, p.group)
	if !mayRead {
		f.hideUpdated()
	} else if !p.alone {
		err := s.h.record(s.request, &s.access, []storage.Subject{subject}, p.device, span{p.unixMs, p.unixMs + 1})
		if err != nil {
			s.h.opt.Report(err)
			return dst
		}
		if r, err = s.h.view(nil).recordAt(s.request.Context(), p.device, p.unixMs); err != nil ||
			groupsOf(&r.Values)&(1<<p.group) == 0 {
			return dst
		}
	}
	return f.appendResource(dst, &r, p.assignedUnixMs)
}

// singleReply answers POST /fhir/Observation and PUT /fhir/Observation/{id} as the client prefers
// (https://hl7.org/fhir/R4/http.html#ops), by default with the resource.
func (s *intake) singleReply(p *place) ingest.Answer {
	if problem := p.rejected(); problem != nil {
		o := s.h.outcomes[problem]
		return ingest.Answer{Head: o.head, Body: outcomeOf(o.text, p.result.Reason,
			expression("Observation", p.result.Field)), RetryAfter: p.result.RetryAfter}
	}
	answer := ingest.Answer{Head: s.h.heads[contentType]}
	if !p.unstored() {
		answer.Location = string(s.location(nil, p))
	}
	if p.added {
		answer.Head = s.h.created
	}
	switch {
	case s.prefer == "minimal":
	case s.prefer == "OperationOutcome", p.unstored():
		issue, note := p.outcome()
		answer.Body = outcomeOf(issue, note, "")
	default:
		if answer.Body = s.appendResource(nil, p); answer.Body != nil {
			answer.Body = append(answer.Body, '\n')
		}
	}
	return answer
}

// expression returns the FHIRPath of a field of a resource.
func expression(resource, field string) string {
	if field == "" {
		return resource
	}
	return resource + "." + field
}

// maxIssues bounds the issues of a rejected transaction.
const maxIssues = 100

// transactionReply answers a transaction. If an entry was rejected, so is the transaction.
func (s *intake) transactionReply() ingest.Answer {
	body, issues := []byte(outcomeStart), 0
	var answer ingest.Answer
	for i := range s.places {
		p := &s.places[i]
		problem := p.rejected()
		if problem == nil {
			continue
		}
		o := s.h.outcomes[problem]
		if issues++; issues == 1 {
			answer.Head, answer.RetryAfter = o.head, p.result.RetryAfter
		} else {
			body = append(body, ',')
		}
		if issues > maxIssues {
			body = append(body,
				`{"severity":"error","code":"processing","diagnostics":"Further entries are not acceptable either."}`...)
			break
		}
		body = appendIssue(body, o.text, p.result.Reason, expression(fmt.Sprintf("Bundle.entry[%d].resource", i),
			p.result.Field))
	}
	if issues == 0 {
		return s.bundleReply("transaction-response")
	}
	const note = "Nothing of the transaction was stored. A batch stores each entry that is acceptable."
	answer.Body = append(appendIssue(append(body, ','), information, note, ""), outcomeEnd...)
	return answer
}

// bundleReply answers a Bundle entry by entry.
func (s *intake) bundleReply(typ string) ingest.Answer {
	dst := make([]byte, 0, 64+128*len(s.places))
	dst = append(append(append(dst, `{"resourceType":"Bundle","type":"`...), typ...), `","entry":[`...)
	for i := range s.places {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.appendResponse(dst, i)
	}
	if len(s.places) == 0 { // FHIR has no empty arrays
		dst = dst[:len(dst)-len(`,"entry":[`)]
		return ingest.Answer{Head: s.h.heads[contentType], Body: append(dst, "}\n"...)}
	}
	return ingest.Answer{Head: s.h.heads[contentType], Body: append(dst, "]}\n"...)}
}

// maxRepresented is the largest number of entries of a Bundle whose answer includes the resources. Such an answer may
// be ten times as long as the Bundle, and some resources are read from the store.
const maxRepresented = 100

// appendResponse appends the response to an entry.
func (s *intake) appendResponse(dst []byte, i int) []byte {
	p := &s.places[i]
	dst = append(dst, '{')
	represented := (s.prefer == "" || s.prefer == "representation") && len(s.places) <= maxRepresented
	if represented && p.rejected() == nil && p.what == observationEntry && !p.unstored() {
		if text := s.appendResource(nil, p); len(text) > 0 {
			dst = append(reply.AppendJSONString(append(dst, `"fullUrl":`...), string(s.location(nil, p))), `,"resource":`...)
			dst = append(append(dst, text...), ',')
		}
	}
	dst = append(dst, `"response":{"status":"`...)
	if problem := p.rejected(); problem != nil {
		dst = strconv.AppendInt(dst, int64(problem.Status()), 10)
		dst = append(append(dst, `","outcome":`...), outcomeStart...)
		dst = appendIssue(dst, s.h.outcomes[problem].text, p.result.Reason,
			expression("Bundle.entry["+strconv.Itoa(i)+"].resource", p.result.Field))
		return append(dst, `]}}}`...)
	}
	if p.added {
		dst = append(dst, `201"`...)
	} else {
		dst = append(dst, `200"`...)
	}
	if !p.unstored() {
		dst = reply.AppendJSONString(append(dst, `,"location":`...), string(s.location(nil, p)))
	}
	if p.unstored() || s.prefer == "OperationOutcome" && p.what == observationEntry {
		issue, note := p.outcome()
		dst = appendIssue(append(append(dst, `,"outcome":`...), outcomeStart...), issue, note, "")
		dst = append(dst, "]}"...)
	}
	return append(dst, "}}"...)
}
