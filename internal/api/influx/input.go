package influx

import (
	"bytes"
	"errors"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// An input is one request.
type input struct {
	h         *Handler
	api       *api
	precision precision
	malformed string // what is wrong with the query; "" means nothing

	number []byte // buffer
	mapped point
}

// Reasons for which a line is rejected. Their texts are sent to the client.
var (
	errNoTime    = errors.New("missing; without a timestamp, each retry would be a new reading")
	errTimestamp = errors.New("not an integer")
	errTwice     = errors.New("given twice")
	errTag       = errors.New("a tag, where a field is needed")
	errString    = errors.New("a string, not a number")
	errBoolean   = errors.New("a boolean, not a number")
	errNoLine    = ingest.Malformed("There is no line with a reading.")
)

// Decode implements [ingest.Input]. The position of a reading is the number of its line, from 0.
func (s *input) Decode(body []byte, in *ingest.Intake) error {
	if s.malformed != "" {
		return ingest.Malformed(s.malformed)
	}
	lines, points := NewScanner(body), 0
	for ; lines.Next(); points++ {
		if points == in.MaxReadings {
			return vitals.ErrTooManyReadings
		}
		index := lines.Line() - 1
		if s.h.opt.Mappings.Len() > 0 {
			if fits := s.take(lines, in, index); fits != nil {
				if !fits.Ignore && lines.Bytes() > s.h.opt.MaxLineBytes {
					return vitals.ErrReadingTooLong
				}
				continue
			}
		}
		var r vitals.Reading
		field, err := s.read(lines, &r)
		if lines.Bytes() > s.h.opt.MaxLineBytes {
			return vitals.ErrReadingTooLong
		}
		if err == nil {
			if broken := in.Rules.Validate(&r, in.NowUnixMs); broken != nil {
				why := broken.(*vitals.FieldError)
				field, err = why.Field, why.Err
			}
		}
		if err != nil {
			in.Batch.Refused = append(in.Batch.Refused, vitals.FieldError{Index: index, Field: field, Err: err})
			continue
		}
		in.Batch.Readings = append(in.Batch.Readings, r)
		in.Batch.Index = append(in.Batch.Index, int32(index))
	}
	if points == 0 && s.api.path == WriteV2Path {
		return errNoLine
	}
	return nil
}

// take reads a point that a mapping fits, and returns its shape. It returns nil, and reads nothing, if none does.
func (s *input) take(lines *Scanner, in *ingest.Intake, index int) *shape.Shape {
	fits, cells, timestamp, err := s.h.opt.Mappings.fitting(lines, &s.mapped)
	if fits == nil {
		return nil
	}
	record := s.record(fits, cells, index, timestamp)
	switch given, twice := errors.AsType[*vitals.FieldOf](err); {
	case twice:
		in.Batch.Refused = append(in.Batch.Refused, vitals.FieldError{Index: index, Field: given.Part, Err: given.Err})
	case fits.Ignore:
		record.Ignore(in)
	default:
		record.Take(in)
	}
	return fits
}

// read reads a point, and returns the first rule that it breaks. A point that is not of the protocol
// breaks no other rule.
func (s *input) read(p *Scanner, r *vitals.Reading) (field string, err error) {
	refuse := func(name string, why error) {
		if err == nil && why != nil {
			field, err = name, why
		}
	}
	timestamp, syntax := p.Read(nil,
		func(key, value []byte) { refuse(s.tag(string(key), value, r)) },
		func(key []byte, kind Kind, value []byte) { refuse(s.field(key, kind, value, r)) },
	)
	if syntax != nil {
		return "", syntax
	}
	if r.Device.IsZero() {
		refuse(reportable([]byte(s.h.opt.DeviceTag)), vitals.ErrMissing)
	}
	if len(timestamp) == 0 {
		refuse("time", errNoTime)
		return field, err
	}
	var why error
	r.TimeUnixMs, why = s.precision.unixMs(timestamp)
	refuse("time", why)
	return field, err
}

func (s *input) tag(key string, value []byte, r *vitals.Reading) (field string, err error) {
	into := &r.Device
	switch _, sign := s.h.opt.Signs.Named(key); {
	case key == s.h.opt.DeviceTag:
	case key == gatewayTag:
		into = &r.Gateway
	case sign:
		return key, errTag
	default:
		return "", nil
	}
	if err = errTwice; into.IsZero() {
		*into, err = vitals.ParseName(value)
	}
	if err != nil {
		field = reportable([]byte(key))
	}
	return field, err
}

func (s *input) field(key []byte, kind Kind, value []byte, r *vitals.Reading) (field string, err error) {
	sign, known := s.h.opt.Signs.Named(string(key))
	if !known {
		if s.h.opt.IgnoreUnknown {
			return "", nil
		}
		return reportable(key), vitals.ErrUnknownField
	}
	field = s.h.opt.Signs.Field(sign)
	switch {
	case r.Values.Has(sign):
		return field, errTwice
	case kind == String:
		return field, errString
	case kind == Boolean:
		return field, errBoolean
	}
	number, ok := appendJSON(s.number[:0], kind, value)
	if s.number = number; !ok {
		return field, vitals.ErrNumber
	}
	v, err := s.h.opt.Signs.Of(sign).Parse(number)
	if err == nil {
		r.Values.Set(sign, v)
	}
	return field, err
}

// appendJSON appends a number with the spelling of JSON, which has a digit on both sides of a point and no zeros in
// front. It returns false if value has no digits where its kind needs them.
func appendJSON(dst []byte, kind Kind, value []byte) ([]byte, bool) {
	text, negative := bytes.CutPrefix(value, []byte("-"))
	digits := 0
	for digits < len(text) && isDigit(text[digits]) {
		digits++
	}
	whole, rest := bytes.TrimLeft(text[:digits], "0"), text[digits:]
	fraction := len(rest) > 1 && rest[0] == '.' && isDigit(rest[1])
	if kind == Other || kind != Float && (digits == 0 || len(rest) > 0) || kind == Unsigned && negative ||
		digits == 0 && !fraction {
		return dst, false
	}
	if negative {
		dst = append(dst, '-')
	}
	if len(whole) == 0 {
		dst = append(dst, '0')
	}
	dst = append(dst, whole...)
	if !fraction {
		rest = bytes.TrimPrefix(rest, []byte("."))
	}
	return append(dst, rest...), true
}

// reportable returns a name of the client's if it is safe to repeat to it, or "".
func reportable(name []byte) string {
	if n, err := vitals.ParseName(name); err == nil && !strings.Contains(n.String(), ":") {
		return n.String()
	}
	return ""
}
