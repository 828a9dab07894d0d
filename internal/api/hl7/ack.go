package hl7

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
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

// Answer appends the answers to a message to dst, each in a frame: an ACK, none, or two, as MSH-15 and MSH-16 ask
// for. It returns the code of the original mode, or "" if there is no answer because the same message may be stored
// later: most clients do not send it again after an answer, whatever its code. It must be called after Decode, once.
func (m *Message) Answer(dst []byte, o *ingest.Outcome, now time.Time) (answers []byte, code string) {
	m.errors, m.reason = nil, ""
	if r, whole := o.Refusal(); whole {
		switch {
		case later(r.Problem):
			return dst, ""
		case m.err != nil && r.Problem.Status() == http.StatusBadRequest:
			m.opt.reject(vitals.Name{}, m.at.name(), m.err.reason)
			m.addError(m.at, m.err.code, m.at.name(), m.err.reason)
		default:
			m.opt.reject(vitals.Name{}, r.Field, cmp.Or(r.Reason, r.Problem.Title()))
			m.addError(location{}, internalError, "", join(r.Problem.Title(), r.Detail, r.Field, r.Reason))
		}
		return m.appendAnswers(dst, rejected, now), rejected
	}
	if o.AllStored() {
		return m.appendAnswers(dst, accepted, now), accepted
	}
	code = failed
	count := m.dropped
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
			if count++; count-m.dropped <= maxErrors {
				m.addRejected(p, i, &r)
			}
		}
	}
	if code == "" {
		return dst, ""
	}
	if more := count - maxErrors; more > 0 {
		m.addError(location{}, internalError, "", strconv.Itoa(more)+" further OBX were rejected")
	}
	return m.appendAnswers(dst, failed, now), failed
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
func (o *Options) reject(device vitals.Name, field, reason string) {
	if o.OnRejected != nil {
		o.OnRejected(device, field, reason)
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

// addRejected adds an error for an OBX of a place.
func (m *Message) addRejected(p *place, i int, r *ingest.Result) {
	at, field, code := location{segment: inOBX, ordinal: p.obx[i]}, r.Field, internalError
	switch {
	case p.err != nil && p.at != location{}:
		at = p.at
	case r.Outcome == storage.OtherSubject || r.Outcome == storage.TooManyAssignments:
		at, field, code = atPatient, "PID-3", valueNotFound
		if m.noPatient != nil && m.noPatient != errPatient {
			r.Reason = m.noPatient.Error()
		}
	case field == "time":
		at, field = p.from[theTime], p.from[theTime].name()
	case field == "device":
		at, field = p.from[theDevice], p.from[theDevice].name()
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
	m.opt.reject(cmp.Or(m.devices[r.Index], r.Device), field, reason)
	m.addError(at, code, field, reason)
}

// appendAnswers appends an answer for each of MSH-15 and MSH-16 that asks for one, or if both are empty, that of the
// original mode.
func (m *Message) appendAnswers(dst []byte, code string, now time.Time) []byte {
	accept, application := bytes.Trim(m.msh[15], `"`), bytes.Trim(m.msh[16], `"`)
	if wants(accept, code) {
		dst = m.appendAnswer(dst, "C"+code[1:], now)
	}
	if wants(application, code) || len(accept)+len(application) == 0 {
		dst = m.appendAnswer(dst, code, now)
	}
	return dst
}

// wants reports whether a condition of HL7's table 0155 is true. One that is not known asks for an answer, as AL.
func wants(condition []byte, code string) bool {
	switch string(condition) {
	case "", "NE":
		return false
	case "ER":
		return code != accepted
	case "SU":
		return code == accepted
	}
	return true
}

// appendAnswer appends a frame with MSH, MSA and ERR, in the client's version of HL7.
func (m *Message) appendAnswer(dst []byte, code string, now time.Time) []byte {
	component, set := []byte{m.component}, m.msh[18]
	_, event, _ := bytes.Cut(m.msh[9], component)
	event, _, _ = bytes.Cut(event, component) // without escapes, which may stand for any bytes
	kind, clock := [][]byte{[]byte("ACK"), echo(event, set), []byte("ACK")}, "20060102150405.000-0700"
	switch {
	case m.version < version22:
		kind, clock = kind[:1], "20060102150405-0700"
	case m.version < version231:
		kind = kind[:2]
	}
	id, version := echo(m.msh[10], set), echo(m.msh[12], set)
	if len(version) == 0 {
		version = []byte("2.6")
	}
	header := [][]byte{
		[]byte("MSH"), {m.component, m.repetition, m.escape, m.sub}, []byte("Pulsegate"), nil,
		echo(m.msh[3], set), echo(m.msh[4], set),
		now.UTC().AppendFormat(nil, clock), nil, bytes.Join(kind, component), id, []byte("P"), version,
	}
	if len(set) > 0 && m.version >= version23 { // what is not from the message is ASCII
		header = append(header, nil, nil, nil, nil, nil, echo(set, set))
	}
	dst = append(append(append(dst, startBlock), bytes.Join(header, []byte{m.field})...), '\r')
	dst = append(dst, bytes.Join([][]byte{[]byte("MSA"), []byte(code), id}, []byte{m.field})...)
	if m.version < version25 && m.reason != "" {
		dst = m.appendEscaped(append(dst, m.field), m.reason[:min(len(m.reason), maxReason)])
	}
	return append(append(append(dst, '\r'), m.errors...), endBlock, endFrame)
}

// maxReason bounds MSA-3.
const maxReason = 80

// echo returns a field of the message with a question mark for what is not of the character set in MSH-18.
func echo(field, set []byte) []byte {
	switch {
	case isLatin(set):
		return field
	case len(set) == 0, string(set) == "UNICODE UTF-8":
		return bytes.ToValidUTF8(field, []byte("?"))
	}
	return bytes.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, field)
}

// conditions has the texts of HL7's table 0357. It is never modified.
var conditions = map[condition]string{
	segmentSequence: "Segment sequence error", requiredMissing: "Required field missing", wrongType: "Data type error",
	valueNotFound: "Table value not found", unsupportedMessage: "Unsupported message type",
	unsupportedEvent: "Unsupported event code",
	unsupportedID:    "Unsupported processing id", unsupportedVersion: "Unsupported version id",
	duplicateKey:  "Duplicate key identifier",
	internalError: "Application internal error",
}

// addError adds an error to the answers: an ERR, or before version 2.5 a repetition of ERR-1 of the only one. field
// may be empty.
func (m *Message) addError(at location, code condition, field, reason string) {
	m.reason = cmp.Or(m.reason, join(field, reason))
	component, old := string(m.component), m.version < version25
	place := segmentNames[at.segment]
	for _, n := range []int{int(at.ordinal), int(at.field)} {
		if n > 0 {
			place += component
			place += strconv.Itoa(n)
		} else if old {
			place += component
		}
	}
	kind := []string{strconv.Itoa(int(code)), conditions[code], "HL70357"}
	if old {
		switch {
		case m.version < version23:
			kind = kind[:1]
		case m.version < version231:
			kind = kind[:2]
		}
		start := "ERR" + string(m.field)
		if n := len(m.errors); n > 0 {
			m.errors, start = m.errors[:n-1], string(m.repetition)
		}
		m.errors = append(append(m.errors, start+place+component+strings.Join(kind, string(m.sub))...), '\r')
		return
	}
	segment := strings.Join([]string{"ERR", "", place, strings.Join(kind, component), "E", "", "", "", ""},
		string(m.field))
	m.errors = append(m.appendEscaped(append(m.errors, segment...), join(field, reason)), '\r')
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
