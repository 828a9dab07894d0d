package vitals

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Default bounds of a [Decoder].
const (
	DefaultMaxReadings     = 1 << 18  // per body; a Batch of that many takes 72 MB
	DefaultMaxReadingBytes = 16 << 10 // per reading; a typical one has less than 200
)

// DecoderOptions configure a [Decoder].
type DecoderOptions struct {
	// IgnoreUnknown skips fields that are not in the data model instead of rejecting
	// the reading. They must still be valid JSON.
	IgnoreUnknown bool

	// MaxReadings bounds the number of readings in one body, including rejected ones. 0
	// means DefaultMaxReadings.
	MaxReadings int

	// MaxReadingBytes bounds the length of one reading. It also bounds the memory for
	// checking its syntax, which is several times that length if an unknown field
	// contains an object with very many names. 0 means DefaultMaxReadingBytes.
	MaxReadingBytes int
}

// A Decoder decodes JSON bodies. It is reusable but not safe for concurrent use.
type Decoder struct {
	rules           *Validator
	ignoreUnknown   bool
	maxReadings     int
	maxReadingBytes int

	// json reads src. Both are empty except within decodeStrict.
	json jsontext.Decoder
	src  bytes.Buffer

	from Origin // of the body that is decoded

	// scratch is a buffer for unescaped strings.
	scratch [maxEscapedBytes]byte

	// after has the member that was last seen after each member, and at memberUnknown the first one of a
	// reading. The members of the next reading are probably in the same order.
	after [memberUnknown + 1]member

	// unknown is the name of the last reported unknown field. It is cached so that a
	// fleet with one misspelt field allocates one string.
	unknown string
}

// NewDecoder returns a decoder that validates readings with rules.
func NewDecoder(rules *Validator, options DecoderOptions) *Decoder {
	d := &Decoder{
		rules:           rules,
		ignoreUnknown:   options.IgnoreUnknown,
		maxReadings:     min(options.MaxReadings, math.MaxInt32), // Batch.Index holds int32
		maxReadingBytes: options.MaxReadingBytes,
	}
	if d.maxReadings <= 0 {
		d.maxReadings = DefaultMaxReadings
	}
	if d.maxReadingBytes <= 0 {
		d.maxReadingBytes = DefaultMaxReadingBytes
	}
	d.json.Reset(&d.src)
	return d
}

// An Origin is where a body comes from, as far as that is known from something else than the body,
// such as the topic to which it was published. Its zero names are not known.
type Origin struct{ Device, Gateway Name }

// complete sets the names that r lacks. It returns the field of a name that is another one.
func (o *Origin) complete(r *Reading) (field string, err error) {
	if !o.Device.IsZero() {
		if r.Device.IsZero() {
			r.Device = o.Device
		} else if r.Device != o.Device {
			return fieldDevice, ErrOrigin
		}
	}
	if !o.Gateway.IsZero() {
		if r.Gateway.IsZero() {
			r.Gateway = o.Gateway
		} else if r.Gateway != o.Gateway {
			return fieldGateway, ErrOrigin
		}
	}
	return "", nil
}

// DecodeFrom is Decode for a body whose readings may lack the names that from has, and may not have
// others: see [ErrOrigin].
func (d *Decoder) DecodeFrom(body []byte, nowUnixMs int64, from Origin, dst *Batch) error {
	d.from = from
	err := d.Decode(body, nowUnixMs, dst)
	d.from = Origin{}
	return err
}

// mark is a byte order mark in UTF-8. It is never modified.
var mark = []byte("\ufeff")

// Decode decodes a body into dst and replaces its previous content. The shape follows
// from the body alone: an array, one value, or NDJSON. nowUnixMs is the server's clock,
// in ms since 1970-01-01T00:00:00Z.
//
// Each reading is accepted or rejected independently of the others, so Decode returns
// nil even if all were rejected. The possible errors are a [*SyntaxError],
// [ErrTooManyReadings] and [ErrReadingTooLong], whichever occurs first in the body.
// After an error dst is empty, and nothing of the body must be used.
//
// Decode does not retain body, except a copy of the name of an unknown field.
func (d *Decoder) Decode(body []byte, nowUnixMs int64, dst *Batch) error {
	dst.Reset()
	times := d.rules.limits.times(nowUnixMs)
	i := 0
	if bytes.HasPrefix(body, mark) {
		i = len(mark)
	}
	i = skipSpace(body, i)
	var err error
	switch {
	case i == len(body):
		err = notJSON(body, i, reasonEmpty)
	case body[i] == '[':
		err = d.decodeArray(body, i, times, dst)
	default:
		err = d.decodeLines(body, i, times, dst)
	}
	if err != nil {
		dst.Reset()
	}
	return err
}

// decodeArray decodes the array that starts at body[i] and checks that only white space
// follows.
func (d *Decoder) decodeArray(body []byte, i int, times timeSpan, dst *Batch) (err error) {
	dst.Shape = Array
	i = skipSpace(body, i+1)
	if byteAt(body, i) == ']' {
		return checkEnd(body, i+1)
	}
	for {
		if i, err = d.decodeElement(body, i, times, dst); err != nil {
			return err
		}
		i = skipSpace(body, i)
		switch byteAt(body, i) {
		case ',':
			i = skipSpace(body, i+1)
		case ']':
			return checkEnd(body, i+1)
		default:
			return notJSON(body, i, reasonNotJSON)
		}
	}
}

// checkEnd returns an error unless only white space follows at body[i].
func checkEnd(body []byte, i int) error {
	if i = skipSpace(body, i); i < len(body) {
		return notJSON(body, i, reasonTrailing)
	}
	return nil
}

// decodeLines decodes the value that starts at body[i] and all further values, each of
// which must start on a new line.
func (d *Decoder) decodeLines(body []byte, i int, times timeSpan, dst *Batch) (err error) {
	dst.Shape = Single
	for {
		if i, err = d.decodeElement(body, i, times, dst); err != nil {
			return err
		}
		next := skipSpace(body, i)
		if next == len(body) {
			return nil
		}
		if bytes.IndexByte(body[i:next], '\n') < 0 {
			return notJSON(body, next, reasonTrailing)
		}
		dst.Shape = NDJSON
		i = next
	}
}

// decodeElement decodes the JSON value that starts at body[i] and adds it to dst, as an
// accepted or rejected reading. It returns the index after the value.
func (d *Decoder) decodeElement(body []byte, i int, times timeSpan, dst *Batch) (end int, err error) {
	index := dst.Len()
	if index == d.maxReadings {
		return 0, ErrTooManyReadings
	}
	n := len(dst.Readings)
	dst.Readings = slices.Grow(dst.Readings, 1)[:n+1]
	r := &dst.Readings[n]
	r.reset()
	end, ok := d.decodePlain(body, i, times, r)
	if !ok || end-i > d.maxReadingBytes {
		r.reset()
		var field string
		var broken error
		if end, field, broken, err = d.decodeStrict(body, i, times, r); err != nil {
			return 0, err
		}
		if broken != nil {
			dst.Readings = dst.Readings[:n]
			dst.Refused = append(dst.Refused, FieldError{Index: index, Field: field, Err: broken})
			return end, nil
		}
	}
	dst.Index = append(dst.Index, int32(index))
	if index == 0 {
		dst.expect((len(body) - end) / (end - i)) // assuming that they are as long as this one
	}
	return end, nil
}

// Reasons of a SyntaxError.
const (
	reasonEmpty     = "empty body"
	reasonTrailing  = "data after the end of the value"
	reasonCut       = "cut off"
	reasonDuplicate = "field name given twice"
	reasonUTF8      = "invalid UTF-8"
	reasonEscape    = "invalid escape sequence"
	reasonDeep      = "nested too deeply"
	reasonNotJSON   = "not JSON"
)

// notJSON returns the error for an invalid byte at body[i], or for the end of body.
func notJSON(body []byte, i int, reason string) error {
	if i >= len(body) && reason != reasonEmpty {
		reason = reasonCut
	}
	return &SyntaxError{Offset: int64(i), Reason: reason}
}

// maxDepth is the maximum nesting depth of arrays and objects in jsontext.
const maxDepth = 10_000

// syntaxError converts an error of jsontext about the value at body[start]. It does not
// keep its text, which quotes the body.
func syntaxError(body []byte, start int, err error) error {
	offset := len(body)
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		offset = min(start+int(syntactic.ByteOffset), offset)
	}
	reason := reasonNotJSON
	switch r, size := utf8.DecodeRune(body[offset:]); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		reason = reasonDuplicate
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		reason = reasonCut
	case r == utf8.RuneError && size == 1:
		reason = reasonUTF8
	case r == '\\':
		reason = reasonEscape
	case (r == '{' || r == '[') && depth(body[start:offset]) >= maxDepth:
		reason = reasonDeep
	}
	return notJSON(body, offset, reason)
}

// depth returns how many arrays and objects are open at the end of prefix, which is
// valid so far.
func depth(prefix []byte) (open int) {
	inString := false
	for i := 0; i < len(prefix); i++ {
		switch c := prefix[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			open++
		case c == '}' || c == ']':
			open--
		}
	}
	return open
}

// skipSpace returns the index of the first byte of text at or after i that is not JSON
// white space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && text[i] <= ' ' && isSpace(text[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
