package fhir

import (
	"fmt"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// appendObservationID appends the id of the Observation at a place; of SampledData, that of its
// first sample with a value.
func (p *place) appendObservationID(signs *vitals.Signs, dst []byte) []byte {
	dst = append(append(dst, mappingOf(signs, p.group).key...), '-')
	dst = append(appendTimeID(dst, p.unixMs), '-')
	return appendDeviceID(dst, &p.device)
}

// singleReply answers POST /fhir/Observation.
func (s *intake) singleReply(p *place) ingest.Answer {
	if problem := p.rejected(); problem != nil {
		o := s.h.outcomes[problem]
		return ingest.Answer{Head: o.head, Body: outcomeOf(o.text, p.result.Reason, expression("Observation", p.result.Field)), RetryAfter: p.result.RetryAfter}
	}
	answer := ingest.Answer{Head: s.h.heads[contentType], Location: string(p.appendObservationID(s.h.reader.Signs(), []byte(Path+"/Observation/")))}
	note := "This Observation was stored before."
	if p.added {
		answer.Head, note = s.h.created, "The Observation is stored."
	}
	answer.Body = outcomeOf(information, note, "")
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
			body = append(body, `{"severity":"error","code":"processing","diagnostics":"Further entries are not acceptable either."}`...)
			break
		}
		body = appendIssue(body, o.text, p.result.Reason, expression(fmt.Sprintf("Bundle.entry[%d].resource", i), p.result.Field))
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

// appendResponse appends the response to an entry.
func (s *intake) appendResponse(dst []byte, i int) []byte {
	p := &s.places[i]
	dst = append(dst, `{"response":{"status":"`...)
	if problem := p.rejected(); problem != nil {
		dst = strconv.AppendInt(dst, int64(problem.Status()), 10)
		dst = append(append(dst, `","outcome":`...), outcomeStart...)
		dst = appendIssue(dst, s.h.outcomes[problem].text, p.result.Reason, expression("Bundle.entry["+strconv.Itoa(i)+"].resource", p.result.Field))
		return append(dst, `]}}}`...)
	}
	switch p.what {
	case deviceEntry:
		dst = appendDeviceID(append(dst, `200","location":"Device/`...), &p.device)
	case patientEntry:
		dst = append(append(dst, `200","location":"Patient/`...), p.patient...)
	default:
		if p.left {
			dst = append(append(dst, `200","outcome":`...), outcomeStart...)
			return append(appendIssue(dst, information, "Not stored: the Bundle has another source of the sign, which comes first.", ""), `]}}}`...)
		}
		text := `200","location":"Observation/`
		if p.added {
			text = `201","location":"Observation/`
		}
		dst = p.appendObservationID(s.h.reader.Signs(), append(dst, text...))
	}
	return append(dst, `"}}`...)
}
