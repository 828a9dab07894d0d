package hl7

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxErrors bounds the ERR segments of an answer.
const maxErrors = 1000

// Acknowledgement codes of HL7's table 0008. Those of the enhanced mode begin with C.
const (
	accepted = "AA"
	failed   = "AE" // the client must send something else
	rejected = "AR"
)

// Answer appends the answer to a message to dst: an ACK. It must be called after Decode, once.
func (m *Message) Answer(dst []byte, o *ingest.Outcome, now time.Time) []byte {
	if r, whole := o.Refusal(); whole {
		if m.fault != nil && r.Problem.Status() == http.StatusBadRequest {
			return m.appendError(m.appendHeader(dst, rejected, now), m.fault)
		}
		return m.Reject(dst, strings.Join(nonEmpty(r.Problem.Title(), r.Detail, r.Field, r.Reason), ": "), now)
	}
	if o.AllStored() {
		return m.appendHeader(dst, accepted, now)
	}
	dst = m.appendHeader(dst, failed, now)
	count := 0
	for r := range o.Results() {
		if r.Problem == nil {
			continue
		}
		p := &m.places[r.Index]
		for i, ordinal := range p.obx {
			if ordinal == 0 {
				continue
			}
			if count++; count <= maxErrors {
				dst = m.appendError(dst, p.fault(i, &r, m.opt.Signs))
			}
		}
	}
	if count > maxErrors {
		dst = m.appendError(dst, &fault{location{}, internalError, strconv.Itoa(count-maxErrors) + " further OBX were rejected"})
	}
	return dst
}

// Reject appends the answer to a message that is rejected as a whole, for a reason that is not in it: AR, after which a
// client may send the same message again.
func (m *Message) Reject(dst []byte, reason string, now time.Time) []byte {
	return m.appendError(m.appendHeader(dst, rejected, now), &fault{code: internalError, reason: reason})
}

func nonEmpty(texts ...string) (all []string) {
	for _, t := range texts {
		if t != "" {
			all = append(all, t)
		}
	}
	return all
}

// fault returns why an OBX of the place was rejected.
func (p *place) fault(i int, r *ingest.Result, signs *vitals.Signs) *fault {
	f := &fault{at: location{"OBX", p.obx[i], 0}, code: internalError, reason: r.Reason}
	field := r.Field
	switch {
	case p.err != nil && p.at.segment != "":
		f.at, field = p.at, p.at.name()
	case r.Field == "time":
		f.at, field = p.time, p.time.name()
	case r.Field == "device" && p.device.segment != "":
		f.at, field = p.device, p.device.name()
	case r.Field == signs.Field(p.signs[i]):
		f.at.field = 5
	}
	broken, own := errors.AsType[*rule](p.err)
	switch {
	case own:
		f.code = broken.code
	case errors.Is(p.err, vitals.ErrMissing):
		f.code = requiredMissing
	case r.Problem.Status() == http.StatusConflict:
		f.code = duplicateKey
	}
	if f.reason == "" {
		f.reason = r.Problem.Title()
	}
	if field != "" {
		f.reason = field + ": " + f.reason
	}
	return f
}

// name returns the name of a field, such as OBX-5.
func (l location) name() string {
	if l.field == 0 {
		return l.segment
	}
	return l.segment + "-" + strconv.Itoa(l.field)
}

// appendHeader appends MSH and MSA.
func (m *Message) appendHeader(dst []byte, code string, now time.Time) []byte {
	version := "2.6"
	if v := m.part(m.msh[12], 1); len(v) > 0 && len(v) <= len("2.5.1") {
		version = string(v)
	}
	// In the enhanced mode, a client may want to know that the message is stored, and not that an application has read it.
	if string(m.msh[16]) == "NE" && len(m.msh[15]) > 0 && string(m.msh[15]) != "NE" {
		code = "C" + code[1:]
	}
	sep := string(m.field)
	dst = append(dst, "MSH"+sep...)
	dst = append(dst, m.component, m.repetition, m.escape, m.sub)
	dst = append(dst, sep+"Pulsegate"+sep+sep...)
	dst = append(append(append(dst, m.msh[3]...), sep...), m.msh[4]...)
	dst = append(now.UTC().AppendFormat(append(dst, sep...), "20060102150405.000-0700"), sep+sep+"ACK"...)
	dst = append(append(dst, m.component), "R01"...)
	dst = append(append(dst, m.component), "ACK"+sep...)
	dst = append(append(dst, m.msh[10]...), sep+"P"+sep...)
	dst = append(dst, version+strings.Repeat(sep, 6)+"UNICODE UTF-8\r"...)
	dst = append(dst, "MSA"+sep+code+sep...)
	return append(append(dst, m.msh[10]...), '\r')
}

// conditions has the texts of the codes of HL7's table 0357.
var conditions = map[int]string{
	segmentSequence: "Segment sequence error", requiredMissing: "Required field missing", wrongType: "Data type error",
	valueNotFound: "Table value not found", unsupportedMessage: "Unsupported message type", unsupportedEvent: "Unsupported event code",
	unsupportedID: "Unsupported processing id", unsupportedVersion: "Unsupported version id", duplicateKey: "Duplicate key identifier",
	internalError: "Application internal error",
}

// appendError appends ERR.
func (m *Message) appendError(dst []byte, f *fault) []byte {
	dst = append(dst, "ERR"...)
	dst = append(dst, m.field, m.field)
	if f.at.segment != "" {
		dst = append(append(dst, f.at.segment...), m.component)
		dst = strconv.AppendInt(dst, int64(f.at.ordinal), 10)
		if f.at.field > 0 {
			dst = strconv.AppendInt(append(dst, m.component), int64(f.at.field), 10)
		}
	}
	dst = strconv.AppendInt(append(dst, m.field), int64(f.code), 10)
	dst = append(append(dst, m.component), conditions[f.code]...)
	dst = append(append(dst, m.component), "HL70357"...)
	dst = append(dst, m.field, 'E', m.field, m.field, m.field, m.field) // ERR-8
	return append(m.appendEscaped(dst, f.reason), '\r')
}

// appendEscaped appends text with separators as escape sequences.
func (m *Message) appendEscaped(dst []byte, text string) []byte {
	for i := range len(text) {
		name := byte(0)
		switch c := text[i]; c {
		case m.field:
			name = 'F'
		case m.component:
			name = 'S'
		case m.sub:
			name = 'T'
		case m.repetition:
			name = 'R'
		case m.escape:
			name = 'E'
		default:
			dst = append(dst, c)
			continue
		}
		dst = append(dst, m.escape, name, m.escape)
	}
	return dst
}
