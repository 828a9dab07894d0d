package hl7

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxErrors bounds the ERR segments of an answer.
const maxErrors = 1000

// Acknowledgement codes of HL7's table 0008. The codes of the enhanced mode begin with C.
const (
	accepted = "AA"
	failed   = "AE" // the client must send something else
	rejected = "AR"
)

// Answer appends the answer to a message to dst: an ACK. It returns its code, or "" if there is none, because the same
// message may be stored later: most clients do not send it again after an answer, whatever its code. It must be called
// after Decode, once.
func (m *Message) Answer(dst []byte, o *ingest.Outcome, now time.Time) (answer []byte, code string) {
	if r, whole := o.Refusal(); whole {
		switch {
		case later(r.Problem):
			return dst, ""
		case m.err != nil && r.Problem.Status() == http.StatusBadRequest:
			m.reject(vitals.Name{}, m.at.name(), m.err.reason)
			return m.appendError(m.appendHeader(dst, rejected, now), m.at, m.err.code, m.at.name(), m.err.reason), rejected
		}
		m.reject(vitals.Name{}, r.Field, cmp.Or(r.Reason, r.Problem.Title()))
		return m.Reject(dst, join(r.Problem.Title(), r.Detail, r.Field, r.Reason), now), rejected
	}
	if o.AllStored() {
		return m.appendHeader(dst, accepted, now), accepted
	}
	answer, code = m.appendHeader(dst, failed, now), failed
	count := 0
	for r := range o.Results() {
		switch {
		case r.Problem == nil && r.Outcome != 0:
			continue
		case r.Problem == nil, later(r.Problem):
			code = ""
			continue
		}
		p := &m.places[r.Index]
		for i, ordinal := range p.obx {
			if ordinal == 0 {
				continue
			}
			if count++; count <= maxErrors {
				answer = m.appendRejected(answer, p, i, &r)
			}
		}
	}
	if code == "" {
		return dst, ""
	}
	if count > maxErrors {
		answer = m.appendError(answer, location{}, internalError, "", strconv.Itoa(count-maxErrors)+" further OBX were rejected")
	}
	return answer, code
}

// Reject appends the answer to a message that is rejected as a whole, for a reason that is not in it.
func (m *Message) Reject(dst []byte, reason string, now time.Time) []byte {
	return m.appendError(m.appendHeader(dst, rejected, now), location{}, internalError, "", reason)
}

// later reports whether what was rejected with a problem may be stored later.
func later(p *reply.Problem) bool {
	switch status := p.Status(); status {
	case http.StatusUnauthorized, http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

// reject calls OnRejected.
func (m *Message) reject(device vitals.Name, field, reason string) {
	if m.opt.OnRejected != nil {
		m.opt.OnRejected(device, field, reason)
	}
}

// join joins the texts that are not empty.
func join(texts ...string) (joined string) {
	for _, text := range texts {
		if joined != "" && text != "" {
			joined += ": "
		}
		joined += text
	}
	return joined
}

// appendRejected appends ERR for an OBX of a place.
func (m *Message) appendRejected(dst []byte, p *place, i int, r *ingest.Result) []byte {
	at, field, code := location{"OBX", p.obx[i], 0}, r.Field, internalError
	switch {
	case p.err != nil && p.at != location{}:
		at = p.at
	case field == "time":
		at, field = p.from[theTime].at, p.from[theTime].at.name()
	case field == "device":
		at, field = p.from[theDevice].at, p.from[theDevice].at.name()
	case field == m.opt.Signs.Field(p.signs[i]):
		at.field = 5
	}
	broken, own := errors.AsType[*rule](p.err)
	switch {
	case own:
		code = broken.code
	case errors.Is(p.err, vitals.ErrMissing):
		code = requiredMissing
	case r.Problem.Status() == http.StatusConflict:
		code = duplicateKey
	}
	reason := cmp.Or(r.Reason, r.Problem.Title())
	m.reject(p.reading.Device, field, reason)
	return m.appendError(dst, at, code, field, reason)
}

// appendHeader appends MSH and MSA.
func (m *Message) appendHeader(dst []byte, code string, now time.Time) []byte {
	// In the enhanced mode, a client may want to know that the message is stored, and not that an application has read it.
	if string(m.msh[16]) == "NE" && len(m.msh[15]) > 0 && string(m.msh[15]) != "NE" {
		code = "C" + code[1:]
	}
	component := []byte{m.component}
	_, event, _ := bytes.Cut(m.msh[9], component)
	event, _, _ = bytes.Cut(event, component)
	kind := bytes.Join([][]byte{[]byte("ACK"), event, []byte("ACK")}, component) // without escapes, which may stand for any bytes
	header := [][]byte{
		[]byte("MSH"), {m.component, m.repetition, m.escape, m.sub}, []byte("Pulsegate"), nil, m.msh[3], m.msh[4],
		now.UTC().AppendFormat(nil, "20060102150405.000-0700"), nil, kind, m.msh[10], []byte("P"), []byte(cmp.Or(string(m.msh[12]), "2.6")),
	}
	if len(m.msh[18]) > 0 { // what is not from the message is ASCII
		header = append(header, nil, nil, nil, nil, nil, m.msh[18])
	}
	dst = append(append(dst, bytes.Join(header, []byte{m.field})...), '\r')
	return append(append(dst, bytes.Join([][]byte{[]byte("MSA"), []byte(code), m.msh[10]}, []byte{m.field})...), '\r')
}

// conditions has the texts of HL7's table 0357. It is never modified.
var conditions = map[condition]string{
	segmentSequence: "Segment sequence error", requiredMissing: "Required field missing", wrongType: "Data type error",
	valueNotFound: "Table value not found", unsupportedMessage: "Unsupported message type", unsupportedEvent: "Unsupported event code",
	unsupportedID: "Unsupported processing id", unsupportedVersion: "Unsupported version id", duplicateKey: "Duplicate key identifier",
	internalError: "Application internal error",
}

// appendError appends ERR. field may be empty.
func (m *Message) appendError(dst []byte, at location, code condition, field, reason string) []byte {
	component := string(m.component)
	place := at.segment
	for _, n := range []int{at.ordinal, at.field} {
		if n > 0 {
			place += component + strconv.Itoa(n)
		}
	}
	kind := strings.Join([]string{strconv.Itoa(int(code)), conditions[code], "HL70357"}, component)
	segment := strings.Join([]string{"ERR", "", place, kind, "E", "", "", "", ""}, string(m.field))
	return append(m.appendEscaped(append(dst, segment...), join(field, reason)), '\r')
}

// appendEscaped appends text with separators as escape sequences.
func (m *Message) appendEscaped(dst []byte, text string) []byte {
	separators := []byte{m.field, m.component, m.repetition, m.escape, m.sub}
	for i := range len(text) {
		if n := bytes.IndexByte(separators, text[i]); n >= 0 {
			dst = append(dst, m.escape, "FSRET"[n], m.escape)
		} else {
			dst = append(dst, text[i])
		}
	}
	return dst
}
