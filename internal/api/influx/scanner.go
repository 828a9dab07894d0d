package influx

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Scanner reads the points of a text in line protocol. It allocates only for names with
// escapes, and does not modify the text. FuzzLineProtocol compares it with InfluxData's own parser.
type Scanner struct {
	text    []byte
	at      int
	line    int  // number of the line at at, from 1
	point   int  // number of the line in which the point begins
	start   int  // of that line
	unread  bool // the point is not read to its end
	err     error
	scratch []byte // unescaped names of the point
}

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
	if s.unread {
		s.skipLine()
	}
	s.err, s.scratch = nil, s.scratch[:0]
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
		s.point, s.unread = s.line, true
		return true
	}
}

// Line returns the number of the point's first line, from 1.
func (s *Scanner) Line() int { return s.point }

// Bytes returns how many bytes of the point have been read.
func (s *Scanner) Bytes() int { return s.at - s.start }

// Read calls measurement, if it is not nil, tag and field with those of the point, and returns the text of its
// timestamp, or nil if there is none. A value that is a string has its escapes and not its quotes, a number not its
// suffix. They are valid until Next is called. The error is why the point is not of the protocol, without repeating it.
func (s *Scanner) Read(measurement func(name []byte), tag func(key, value []byte),
	field func(key []byte, kind Kind, value []byte)) (timestamp []byte, err error) {
	name := s.name(", ")
	if len(name) == 0 {
		s.fail("no measurement")
	}
	if s.comma(); s.err == nil && measurement != nil {
		measurement(name)
	}
	for s.err == nil && !s.sees(' ') {
		key := s.key("neither a tag nor a space and a field")
		value := s.name(",= ")
		if len(value) == 0 {
			s.fail("a tag has no value")
		}
		if s.comma(); s.err == nil {
			tag(key, value)
		}
	}
	s.spaces()
	for more := true; more && s.err == nil; {
		key := s.key("no field with = and a value")
		kind, value := s.value()
		if more = s.sees(','); more {
			s.at++
		} else if !s.blank() {
			s.fail("neither a comma nor a space after a field")
		}
		if s.err == nil {
			field(key, kind, value)
		}
	}
	if s.err == nil {
		timestamp = s.time()
	}
	s.unread = s.err != nil
	return timestamp, s.err
}

// key returns the name before an =, which it skips. why is the error if there is none.
func (s *Scanner) key(why string) []byte {
	key := s.name(",= ")
	if len(key) == 0 || !s.sees('=') {
		s.fail(why)
		return nil
	}
	s.at++
	return key
}

// value returns the value of a field.
func (s *Scanner) value() (Kind, []byte) {
	if s.err != nil {
		return Other, nil
	}
	if s.sees('"') {
		return String, s.quoted()
	}
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte(", \r\n", s.text[s.at]) < 0 {
		s.at++
	}
	return kindOf(s.text[begin:s.at])
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

// time returns the timestamp at the end of the line, or nil if there is none.
func (s *Scanner) time() []byte {
	if s.spaces(); s.endOfLine() {
		return nil
	}
	begin := s.at
	for s.at < len(s.text) && (s.text[s.at] == '-' || isDigit(s.text[s.at])) {
		s.at++
	}
	value, blank := s.text[begin:s.at], s.blank()
	s.spaces()
	if !blank || !s.endOfLine() {
		s.fail("the timestamp is not an integer at the end of the line")
	}
	return value
}

// blank reports whether a space, an end of a line or the end of the text follows.
func (s *Scanner) blank() bool {
	return s.at >= len(s.text) || strings.IndexByte(" \r\n", s.text[s.at]) >= 0
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
	if s.at++; s.blank() {
		s.fail("a comma without a tag")
	}
}

// name returns the text up to one of the bytes in ends, which a backslash escapes, or a control
// character. A backslash before any other byte is one.
func (s *Scanner) name(ends string) []byte {
	if s.err != nil {
		return nil
	}
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
		s.err = errors.New("byte " + strconv.Itoa(s.at-s.start+1) + " of the line: " + reason)
	}
}

func isDigit(c byte) bool { return c-'0' <= 9 }
