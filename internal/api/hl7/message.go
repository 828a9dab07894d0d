package hl7

import (
	"bytes"
	"encoding/hex"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are the options of messages. They are not modified.
type Options struct {
	Signs         *vitals.Signs
	Zone          *time.Location // of times without an offset; nil means that they are rejected
	IgnoreUnknown bool           // leave out OBX with codes that no sign has instead of rejecting them

	// Assign, if not nil, is called for each reading of a message with a patient before it is stored. The client may
	// write readings of the device. An error rejects the reading; its text is sent to the client.
	Assign func(in *ingest.Intake, r *vitals.Reading, patient storage.Subject) error
}

// A Message is a message of a client. It is an [ingest.Input]. Only one goroutine at a time uses a Message.
type Message struct {
	opt   *Options
	text  []byte
	fault *fault // why the message is rejected as a whole; nil means that it is not

	field, component, repetition, escape, sub byte // separators

	msh  fields
	zone []byte // offset of MSH-7, such as +0100; empty if there is none

	places []place // by position
}

// A fault is why a message or an OBX is rejected.
type fault struct {
	at     location
	code   int // of HL7's table 0357
	reason string
}

// Codes of HL7's table 0357.
const (
	segmentSequence    = 100
	requiredMissing    = 101
	wrongType          = 102
	valueNotFound      = 103
	unsupportedMessage = 200
	unsupportedEvent   = 201
	unsupportedID      = 202
	unsupportedVersion = 203
	duplicateKey       = 205
	internalError      = 207
)

// A location is a field of a segment, or a segment if field is 0.
type location struct {
	segment        string
	ordinal, field int // from 1
}

// fields has the fields of a segment by their numbers, as far as they are read. Field 0 is the segment's name.
type fields [19][]byte

// Parse returns the message. It retains text, which must not be modified while the Message is in use.
func Parse(text []byte, opt *Options) *Message {
	m := &Message{opt: opt, text: text, field: '|', component: '^', repetition: '~', escape: '\\', sub: '&'}
	m.fault = m.readHeader()
	return m
}

// readHeader reads MSH, and returns why the message is rejected as a whole.
func (m *Message) readHeader() *fault {
	header, _ := cutSegment(m.text)
	if len(header) < len(`MSH|^~\&|`) || string(header[:3]) != "MSH" {
		return &fault{location{"MSH", 1, 0}, segmentSequence, "the message does not begin with MSH"}
	}
	reject := func(field, code int, reason string) *fault {
		return &fault{location{"MSH", 1, field}, code, reason}
	}
	separators := header[3:8]
	for i, c := range separators {
		if c <= ' ' || c > '~' || isAlphanumeric(c) || bytes.IndexByte(separators[:i], c) >= 0 {
			return reject(2, wrongType, "not four different separators")
		}
	}
	m.field, m.component, m.repetition, m.escape, m.sub = separators[0], separators[1], separators[2], separators[3], separators[4]
	m.split(&m.msh, header)
	copy(m.msh[2:], m.msh[1:]) // MSH-1 is the separator
	m.msh[1] = header[3:4]
	if _, offset, ok := cutOffset(m.part(m.msh[7], 1)); ok {
		m.zone = offset
	}
	switch set := m.msh[18]; string(set) {
	case "", "UNICODE UTF-8":
		if !utf8.Valid(m.text) {
			return reject(18, wrongType, "the message is not UTF-8")
		}
	case "ASCII":
		for _, c := range m.text {
			if c >= utf8.RuneSelf {
				return reject(18, wrongType, "the message is not ASCII")
			}
		}
	default:
		return reject(18, valueNotFound, "neither ASCII nor UNICODE UTF-8; other character sets are not read")
	}
	switch {
	case string(m.part(m.msh[9], 1)) != "ORU":
		return reject(9, unsupportedMessage, "not ORU^R01")
	case string(m.part(m.msh[9], 2)) != "R01":
		return reject(9, unsupportedEvent, "not ORU^R01")
	case len(m.msh[10]) == 0:
		return reject(10, requiredMissing, "missing")
	case string(m.part(m.msh[11], 1)) != "P":
		return reject(11, unsupportedID, "not P; messages of trainings and tests are not stored")
	case !bytes.HasPrefix(m.msh[12], []byte("2.")):
		return reject(12, unsupportedVersion, "not a version of HL7 v2")
	}
	return nil
}

func isAlphanumeric(c byte) bool { return c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'z' }

func cutSegment(text []byte) (segment, rest []byte) {
	if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, nil
}

// segments returns the segments that are not empty.
func (m *Message) segments() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := m.text; len(rest) > 0; {
			var segment []byte
			if segment, rest = cutSegment(rest); len(segment) > 0 && !yield(segment) {
				return
			}
		}
	}
}

// name returns the name of a segment.
func (m *Message) name(segment []byte) string {
	name, _, _ := bytes.Cut(segment, []byte{m.field})
	switch string(name) { // a constant needs no memory
	case "OBX":
		return "OBX"
	case "OBR":
		return "OBR"
	case "PRT":
		return "PRT"
	case "PID":
		return "PID"
	}
	return ""
}

// split sets to to the fields of a segment.
func (m *Message) split(to *fields, segment []byte) {
	*to = fields{}
	for i := range to {
		end := bytes.IndexByte(segment, m.field)
		if end < 0 {
			to[i] = segment
			return
		}
		to[i], segment = segment[:end], segment[end+1:]
	}
}

// part returns a component, from 1, of the first repetition of a field, without escapes.
func (m *Message) part(field []byte, n int) []byte {
	field, _, _ = bytes.Cut(field, []byte{m.repetition})
	for ; n > 1; n-- {
		_, field, _ = bytes.Cut(field, []byte{m.component})
	}
	field, _, _ = bytes.Cut(field, []byte{m.component})
	return m.unescape(field)
}

// unescape replaces the escape sequences of separators and of bytes in hex. Others remain.
func (m *Message) unescape(text []byte) []byte {
	if bytes.IndexByte(text, m.escape) < 0 {
		return text
	}
	var plain []byte
	for {
		before, rest, found := bytes.Cut(text, []byte{m.escape})
		plain = append(plain, before...)
		sequence, after, closed := bytes.Cut(rest, []byte{m.escape})
		switch {
		case !found:
			return plain
		case !closed:
			return append(append(plain, m.escape), rest...)
		}
		switch c := m.escaped(sequence); {
		case c != nil:
			plain = append(plain, c...)
		default:
			plain = append(append(append(plain, m.escape), sequence...), m.escape)
		}
		text = after
	}
}

// escaped returns what an escape sequence stands for, or nil.
func (m *Message) escaped(sequence []byte) []byte {
	switch string(sequence) {
	case "F":
		return []byte{m.field}
	case "S":
		return []byte{m.component}
	case "T":
		return []byte{m.sub}
	case "R":
		return []byte{m.repetition}
	case "E":
		return []byte{m.escape}
	}
	if digits, ok := bytes.CutPrefix(sequence, []byte("X")); ok {
		if b, err := hex.DecodeString(string(digits)); err == nil && len(b) > 0 {
			return b
		}
	}
	return nil
}

// Subject returns the patient in PID-3, or "" if there is none. It returns an error whose text is for the client if the
// identifier is not one of Pulsegate's, or if the message has several patients.
func (m *Message) Subject() (patient storage.Subject, err error) {
	if m.fault != nil {
		return "", nil
	}
	var pid fields
	for segment := range m.segments() {
		if m.name(segment) != "PID" {
			continue
		}
		m.split(&pid, segment)
		id := m.part(pid[3], 1)
		if len(id) == 0 || string(id) == string(patient) {
			continue
		}
		if patient != "" {
			return "", errPatients
		}
		if patient, err = storage.ParseSubject(string(id)); err != nil {
			return "", errPatient
		}
	}
	return patient, nil
}
