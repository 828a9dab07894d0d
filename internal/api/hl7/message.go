package hl7

import (
	"bytes"
	"encoding/hex"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are the options of messages. They are not modified.
type Options struct {
	Signs            *vitals.Signs
	Zone             *time.Location // of times without an offset; nil means that they are rejected
	PulseAsHeartRate bool           // see [codes.Table]
	IgnoreUnknown    bool           // leave out OBX with codes that no sign has instead of rejecting them

	// Authority is the assigning authority of the identifiers of patients in PID-3, and after ^ their type if there are
	// several. Empty means identifiers without an authority.
	Authority string

	Patients Patients // its Record is that of the server

	// OnRejected, if not nil, is called for each ERR segment. The device is zero if it is not known, or if the message is
	// rejected as a whole. field and reason have no texts of the message.
	OnRejected func(device vitals.Name, field, reason string)
}

// A Message is a message of a client. It is an [ingest.Input]. Only one goroutine at a time uses a Message.
type Message struct {
	opt  *Options
	text []byte

	at  location // of err
	err *rule    // why the message is rejected as a whole; nil means that it is not

	field, component, repetition, escape, sub byte // separators

	ending  byte // of segments
	legible bool // no byte belongs to a character set that is not known
	version int  // of HL7; see versionOf

	msh  fields
	zone []byte // offset of MSH-7, such as +0100; empty if there is none

	places    []place             // by position
	devices   map[int]vitals.Name // of rejected readings, by position: at most maxErrors
	errors    []byte              // of the answer: its ERR segments
	reason    string              // the first of them
	dropped   int                 // further OBX that were rejected
	unknown   int                 // OBX that were left out because their codes are not known
	noPatient error               // why it is not known who the patient is
}

// A rule is a reason for which a message or an OBX is rejected. Its text is sent to the client.
type rule struct {
	code   condition
	reason string
}

func (r *rule) Error() string { return r.reason }

// A condition is a code of HL7's table 0357.
type condition int

const (
	segmentSequence    condition = 100
	requiredMissing    condition = 101
	wrongType          condition = 102
	valueNotFound      condition = 103
	unsupportedMessage condition = 200
	unsupportedEvent   condition = 201
	unsupportedID      condition = 202
	unsupportedVersion condition = 203
	duplicateKey       condition = 205
	internalError      condition = 207
)

// A location is a field of a segment, or a segment if field is 0.
type location struct {
	segment segmentName
	field   uint8 // from 1
	ordinal int32 // of the segments with this name, from 1
}

// A segmentName is an index of segmentNames.
type segmentName uint8

const (
	noSegment segmentName = iota
	inMSH
	inPID
	inOBR
	inOBX
	inPRT
)

// segmentNames is never modified.
var segmentNames = [...]string{noSegment: "", inMSH: "MSH", inPID: "PID", inOBR: "OBR", inOBX: "OBX", inPRT: "PRT"}

// name returns the name of a field, such as OBX-5, or "".
func (l location) name() string {
	if l.field == 0 {
		return ""
	}
	return segmentNames[l.segment] + "-" + strconv.Itoa(int(l.field))
}

// fields has the fields of a segment by their numbers, as far as they are read. Field 0 is the segment's name.
type fields [19][]byte

// Parse returns the message. It retains text, which must not be modified while the Message is in use.
func Parse(text []byte, opt *Options) *Message {
	m := &Message{opt: opt, text: text, field: '|', component: '^', repetition: '~', escape: '\\', sub: '&',
		ending: '\r', version: latest}
	if bytes.IndexByte(text, '\r') < 0 {
		m.ending = '\n'
	}
	m.at = location{segment: inMSH, ordinal: 1}
	m.at.field, m.err = m.readHeader()
	return m
}

// maxHeader bounds MSH, of which the answer has parts.
const maxHeader = 4 << 10

// readHeader reads MSH, and returns the field and the rule for which the message is rejected.
func (m *Message) readHeader() (at uint8, err *rule) {
	header, _ := m.cutSegment(m.text)
	if len(header) < len(`MSH|^~\&`) || string(header[:3]) != "MSH" {
		return 0, &rule{segmentSequence, "the message does not begin with MSH"}
	}
	if len(header) > maxHeader {
		return 0, &rule{wrongType, "longer than " + strconv.Itoa(maxHeader) + " bytes"}
	}
	header, _, broken := bytes.Cut(header, []byte("\n"))
	if len(header) < len(`MSH|^~\&`) {
		return 2, errSeparators
	}
	separators := header[3:8]
	for i, c := range separators {
		if c <= ' ' || c > '~' || isAlphanumeric(c) || bytes.IndexByte(separators[:i], c) >= 0 {
			return 2, errSeparators
		}
	}
	m.field, m.component, m.repetition, m.escape, m.sub = separators[0], separators[1], separators[2], separators[3],
		separators[4]
	m.split(&m.msh, header)
	copy(m.msh[2:], m.msh[1:]) // MSH-1 is the separator
	_, m.zone = cutOffset(m.part(m.msh[7], 1))
	m.version = versionOf(m.part(m.msh[12], 1))
	m.legible = isLatin(m.msh[18]) || utf8.Valid(m.text)
	set := string(m.msh[18])
	switch {
	case broken:
		return 0, &rule{segmentSequence, "a line feed within MSH; segments end with a carriage return"}
	case len(m.msh[2]) > len(`^~\&#`):
		return 2, errSeparators
	case set != "" && set != "ASCII" && set != "UNICODE UTF-8" && !isLatin(m.msh[18]):
		return 18, &rule{valueNotFound,
			"neither ASCII, UNICODE UTF-8 nor 8859/1 to 8859/15; other character sets are not read"}
	case !m.reads(m.msh[10]):
		return 10, errBytes
	case string(m.part(m.msh[9], 1)) != "ORU":
		return 9, &rule{unsupportedMessage, "not ORU with the event R01"}
	case string(m.part(m.msh[9], 2)) != "R01":
		return 9, &rule{unsupportedEvent, "not ORU with the event R01"}
	case len(m.msh[10]) == 0:
		return 10, &rule{requiredMissing, "missing"}
	case string(m.part(m.msh[11], 1)) != "P":
		return 11, &rule{unsupportedID, "not P; messages of trainings and tests are not stored"}
	case !bytes.HasPrefix(m.msh[12], []byte("2.")):
		return 12, &rule{unsupportedVersion, "not a version of HL7 v2"}
	}
	return 0, nil
}

func isAlphanumeric(c byte) bool { return c-'0' <= 9 || (c|0x20)-'a' <= 'z'-'a' }

// isLatin reports whether MSH-18 is one of the sets of ISO 8859. Their characters are single bytes, so no separator
// is part of a character.
func isLatin(set []byte) bool {
	part, found := strings.CutPrefix(string(set), "8859/")
	n, err := strconv.ParseUint(part, 10, 8)
	return found && err == nil && part[0] != '0' && n >= 1 && n <= 15
}

// reads reports whether the characters of text are known. If they are not, text may be in a set such as GBK, whose
// characters contain separators, and its fields may be wrong.
func (m *Message) reads(text []byte) bool { return m.legible || utf8.Valid(text) }

// Versions of HL7 v2 whose answers differ, as three digits: 2.3.1 is 231.
const (
	version22  = 220
	version23  = 230
	version231 = 231
	version25  = 250
	latest     = 260 // also for versions that are not known
)

// versionOf returns a version of HL7 v2.
func versionOf(text []byte) int {
	n, err := strconv.Atoi(strings.ReplaceAll(string(text), ".", ""))
	if n < 100 {
		n *= 10
	}
	if err != nil || n <= 200 || n >= 300 {
		return latest
	}
	return n
}

// cutSegment cuts the first segment off a text. The line feed of CR LF is part of the end. Any other line feed is
// data, as in notes, unless the message has no CR: then line feeds end segments.
func (m *Message) cutSegment(text []byte) (segment, rest []byte) {
	i := bytes.IndexByte(text, m.ending)
	if i < 0 {
		return text, nil
	}
	return text[:i], bytes.TrimPrefix(text[i+1:], []byte("\n"))
}

// segments returns the segments that are not empty, and their names.
func (m *Message) segments() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for rest := m.text; len(rest) > 0; {
			var segment []byte
			if segment, rest = m.cutSegment(rest); len(segment) == 0 {
				continue
			}
			name, _, _ := bytes.Cut(segment[:min(len(segment), 4)], []byte{m.field}) // 4 bytes are no name
			if !yield(string(name), segment) {
				return
			}
		}
	}
}

// split sets to to the fields of a segment.
func (m *Message) split(to *fields, segment []byte) {
	*to = fields{}
	found := true
	for i := 0; i < len(to) && found; i++ {
		to[i], segment, found = bytes.Cut(segment, []byte{m.field})
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

// maxPart bounds the bytes that are read of a component. No text that is looked for is as long.
const maxPart = 1 << 10

// unescape replaces the escape sequences of separators and of bytes in hex. Others remain. A text beyond maxPart is
// cut.
func (m *Message) unescape(text []byte) []byte {
	text = text[:min(len(text), maxPart)]
	if bytes.IndexByte(text, m.escape) < 0 {
		return text
	}
	escape, plain := []byte{m.escape}, make([]byte, 0, len(text))
	for {
		before, rest, found := bytes.Cut(text, escape)
		if plain = append(plain, before...); !found {
			return plain
		}
		sequence, after, closed := bytes.Cut(rest, escape)
		if !closed {
			return append(append(plain, m.escape), rest...)
		}
		plain, text = m.appendPlain(plain, sequence), after
	}
}

// appendPlain appends the bytes that an escape sequence stands for.
func (m *Message) appendPlain(dst, sequence []byte) []byte {
	if i := bytes.Index([]byte("FSRET"), sequence); i >= 0 && len(sequence) == 1 {
		return append(dst, [...]byte{m.field, m.component, m.repetition, m.escape, m.sub}[i])
	}
	if digits, ok := bytes.CutPrefix(sequence, []byte("X")); ok {
		if plain, err := hex.AppendDecode(dst, digits); err == nil {
			return plain
		}
	}
	return append(append(append(dst, m.escape), sequence...), m.escape)
}

// Subject returns the patient in PID-3, or "" if there is none; named reports whether there is a PID. It returns an
// error whose text is for the client if it is not known which patient that is, or if the message has several.
func (m *Message) Subject() (patient storage.Subject, named bool, err error) {
	if m.err != nil {
		return "", false, nil
	}
	var pid fields
	var id string
	first := true
	for name, segment := range m.segments() {
		if name != "PID" {
			continue
		}
		m.split(&pid, segment)
		its, unknown := m.identifierOf(pid[3])
		if !m.reads(pid[1]) || !m.reads(pid[2]) || !m.reads(pid[3]) {
			unknown = errBytes
		}
		if !first && (its != id || unknown != err) { // also one without an identifier
			return "", true, errPatients
		}
		id, err, first = its, unknown, false
	}
	if id == "" || err != nil {
		return "", !first, err
	}
	if patient, err = storage.ParseSubject(id); err != nil {
		return "", true, errPatient
	}
	return patient, true, nil
}

// identifierOf returns the identifier in PID-3, or "" if there is none. It is unique only within an authority: without
// one of the right authority, or with several, the patient is not known.
func (m *Message) identifierOf(field []byte) (id string, err error) {
	other := ""
	for one := range bytes.SplitSeq(field, []byte{m.repetition}) {
		switch its := string(m.part(one, 1)); {
		case its == "" || its == `""` || its == id:
		case !m.hasAuthority(one):
			other = its
		case id != "":
			return id, errIdentifiers
		default:
			id = its
		}
	}
	if id == "" && other != "" {
		return other, errAuthority
	}
	return id, nil
}

// hasAuthority reports whether an identifier is of [Options.Authority].
func (m *Message) hasAuthority(id []byte) bool {
	authority, kind, typed := strings.Cut(m.opt.Authority, "^")
	if typed && string(m.part(id, 5)) != kind {
		return false
	}
	for range 3 { // the assigning authority is the fourth component: its name, and its universal ID
		_, id, _ = bytes.Cut(id, []byte{m.component})
	}
	id, _, _ = bytes.Cut(id, []byte{m.component})
	name, rest, _ := bytes.Cut(id, []byte{m.sub})
	universal, _, _ := bytes.Cut(rest, []byte{m.sub})
	if authority == "" {
		return len(name)+len(universal) == 0
	}
	return string(m.unescape(name)) == authority || string(m.unescape(universal)) == authority
}
