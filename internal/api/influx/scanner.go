package influx

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Scanner reads the points of a text in line protocol. After Next, which must return true, call Tag
// until it returns false, then Field likewise, then Time and Err. It allocates only for names with
// escapes, and does not modify the text. FuzzLineProtocol compares it with InfluxData's own parser.
type Scanner struct {
	text    []byte
	at      int
	line    int // number of the line at at, from 1
	point   int // number of the line in which the point begins
	start   int // of that line
	part    part
	err     error
	scratch []byte // unescaped names of the point
}

// A part of a point.
type part uint8

const (
	atEnd part = iota
	atTags
	atFields
	atTime
)

// A Kind is the type of a field's value, by its spelling.
type Kind uint8

// The kinds.
const (
	Float    Kind = iota // 36.6, or 72 without a suffix
	Integer              // 72i
	Unsigned             // 72u
	Boolean              // t, true, f, false, in lower or upper case
	String               // in quotes
	Other                // none of the protocol
)

// NewScanner returns a Scanner of a text.
func NewScanner(text []byte) *Scanner { return &Scanner{text: text, line: 1} }

// Next advances to the next point, and skips blank lines, comments and what is left of the last point.
func (s *Scanner) Next() bool {
	if s.part != atEnd {
		s.skipLine()
	}
	s.part, s.err, s.scratch = atEnd, nil, s.scratch[:0]
	for {
		s.start = s.at
		s.spaces()
		switch {
		case s.at == len(s.text):
			return false
		case s.text[s.at] == '#':
			s.skipLine()
			continue
		case s.endOfLine():
			continue
		}
		break
	}
	s.point, s.part = s.line, atTags
	switch measurement := s.name(", "); {
	case s.err != nil:
	case len(measurement) == 0:
		s.fail("no measurement")
	default:
		s.comma()
	}
	return true
}

// Line returns the number of the point's first line, from 1.
func (s *Scanner) Line() int { return s.point }

// Bytes returns how many bytes of the point have been read.
func (s *Scanner) Bytes() int { return s.at - s.start }

// Err returns why the point is not of the protocol, without repeating it, or nil.
func (s *Scanner) Err() error { return s.err }

// Tag returns the next tag. It is valid until Next is called.
func (s *Scanner) Tag() (key, value []byte, ok bool) {
	switch {
	case s.err != nil || s.part != atTags:
		return nil, nil, false
	case s.sees(' '):
		s.spaces()
		s.part = atFields
		return nil, nil, false
	}
	if key = s.name(",= "); s.err != nil {
		return nil, nil, false
	}
	if len(key) == 0 || !s.sees('=') {
		s.fail("neither a tag nor a space and a field")
		return nil, nil, false
	}
	s.at++
	if value = s.name(",= "); s.err == nil && len(value) == 0 {
		s.fail("a tag has no value")
	}
	s.comma()
	return key, value, s.err == nil
}

// Field returns the next field. A value that is a string is returned with its escapes and without
// its quotes, a number without its suffix. Both are valid until Next is called.
func (s *Scanner) Field() (key []byte, kind Kind, value []byte, ok bool) {
	if s.err != nil || s.part != atFields {
		return nil, 0, nil, false
	}
	if key = s.name(",= "); s.err != nil {
		return nil, 0, nil, false
	}
	if len(key) == 0 || !s.sees('=') {
		s.fail("no field with = and a value")
		return nil, 0, nil, false
	}
	s.at++
	if s.sees('"') {
		kind, value = String, s.quoted()
	} else {
		begin := s.at
		for s.at < len(s.text) && strings.IndexByte(", \r\n", s.text[s.at]) < 0 {
			s.at++
		}
		kind, value = kindOf(s.text[begin:s.at])
	}
	switch {
	case s.err != nil:
	case s.sees(','):
		s.at++
	case s.at == len(s.text):
		s.part = atEnd
	case !s.sees(' ') && !s.sees('\r') && !s.sees('\n'):
		s.fail("neither a comma nor a space after a field")
	default:
		s.spaces()
		if s.part = atTime; s.endOfLine() {
			s.part = atEnd
		}
	}
	return key, kind, value, s.err == nil
}

// kindOf returns the kind of a value that is not in quotes, and the value without its suffix.
func kindOf(value []byte) (Kind, []byte) {
	if len(value) == 0 {
		return Other, value
	}
	last := len(value) - 1
	switch c := value[0]; {
	case strings.IndexByte("tTfF", c) >= 0:
		return Boolean, value
	case c != '-' && c != '.' && !isDigit(c):
		return Other, value
	case value[last] == 'i':
		return Integer, value[:last]
	case value[last] == 'u':
		return Unsigned, value[:last]
	}
	return Float, value
}

// Time returns the text of the timestamp, or nil if there is none.
func (s *Scanner) Time() []byte {
	if s.err != nil || s.part != atTime {
		return nil
	}
	begin := s.at
	for s.at < len(s.text) && (s.text[s.at] == '-' || isDigit(s.text[s.at])) {
		s.at++
	}
	value := s.text[begin:s.at]
	blank := s.at == len(s.text) || s.sees(' ') || s.sees('\r') || s.sees('\n')
	s.spaces()
	if !blank || !s.endOfLine() {
		s.fail("the timestamp is not an integer at the end of the line")
		return nil
	}
	s.part = atEnd
	return value
}

// sees reports whether c is the next byte.
func (s *Scanner) sees(c byte) bool { return s.at < len(s.text) && s.text[s.at] == c }

func (s *Scanner) spaces() {
	for s.sees(' ') {
		s.at++
	}
}

// endOfLine skips the end of a line, or reports that there is none.
func (s *Scanner) endOfLine() bool {
	rest := s.text[s.at:]
	switch {
	case len(rest) == 0:
	case rest[0] == '\n':
		s.at++
		s.line++
	case rest[0] == '\r' && len(rest) == 1:
		s.at++
	case rest[0] == '\r' && rest[1] == '\n':
		s.at += 2
		s.line++
	default:
		return false
	}
	return true
}

func (s *Scanner) skipLine() {
	end := bytes.IndexByte(s.text[s.at:], '\n')
	if end < 0 {
		s.at = len(s.text)
		return
	}
	s.at += end + 1
	s.line++
}

// comma skips the comma before a tag, if there is one.
func (s *Scanner) comma() {
	if s.err != nil || !s.sees(',') {
		return
	}
	s.at++
	if s.at == len(s.text) || s.sees(' ') || s.sees('\r') || s.sees('\n') {
		s.fail("a comma without a tag")
	}
}

// name returns the text up to one of the bytes in ends, which a backslash escapes, or a control
// character. A backslash before any other byte is one.
func (s *Scanner) name(ends string) []byte {
	begin, kept, escaped := s.at, s.at, len(s.scratch)
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		if c == '\\' && s.at+1 < len(s.text) && strings.IndexByte(ends, s.text[s.at+1]) >= 0 {
			s.scratch = append(s.scratch, s.text[kept:s.at]...)
			s.at++
			kept = s.at
			continue
		}
		if c < ' ' || c == 0x7f || strings.IndexByte(ends, c) >= 0 {
			break
		}
	}
	text := s.text[begin:s.at]
	if kept > begin {
		s.scratch = append(s.scratch, s.text[kept:s.at]...)
		text = s.scratch[escaped:]
	}
	if !utf8.Valid(text) {
		s.fail("not UTF-8")
	}
	return text
}

// quoted returns the text of a string, which may contain newlines, and skips both quotes.
func (s *Scanner) quoted() []byte {
	s.at++
	begin := s.at
	for ; !s.sees('"'); s.at++ {
		if s.at == len(s.text) {
			s.fail("a string without an end, which all that follows belongs to")
			return nil
		}
		if s.text[s.at] == '\\' && s.at+1 < len(s.text) && strings.IndexByte(`\"nrt`, s.text[s.at+1]) >= 0 {
			s.at++
		}
		if s.text[s.at] == '\n' {
			s.line++
		}
	}
	text := s.text[begin:s.at]
	s.at++
	if !utf8.Valid(text) {
		s.fail("not UTF-8")
	}
	return text
}

// fail sets the error of the point, unless it has one.
func (s *Scanner) fail(reason string) {
	if s.err == nil {
		s.err = syntaxError("byte " + strconv.Itoa(s.at-s.start+1) + " of the line: " + reason)
	}
}

// A syntaxError is why a point is not of the protocol.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

func isDigit(c byte) bool { return c-'0' <= 9 }
