package vitals

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// The names of the fields that are not signs.
const (
	fieldDevice  = "device"
	fieldTime    = "time"
	fieldGateway = "gateway"
)

// decodeStrict decodes any JSON value that starts at body[i] and returns the index
// after it. It decodes a reading into r, which must be zero, or returns the first rule
// that the value breaks: first the rules about one member in the order of the members,
// then missing members, then the rules about several signs. broken is nil if no rule is
// broken.
//
// It always checks the syntax of the whole value. err is a *SyntaxError or
// ErrReadingTooLong.
func (d *Decoder) decodeStrict(body []byte, i int, times timeSpan, r *Reading) (end int, field string,
	broken, err error) {
	// One byte more than allowed is enough to detect that the reading is too long.
	window := body[i:]
	window = window[:min(len(window), d.maxReadingBytes+1)]
	d.src = *bytes.NewBuffer(window)
	if d.json.PeekKind() != jsontext.KindBeginObject {
		_, err = d.json.ReadValue()
		broken = ErrNotObject
	} else {
		field, broken, err = d.strictObject(times, r)
	}
	end = i + int(d.json.InputOffset())
	if err != nil || end-i > maxKeptBytes {
		d.json = jsontext.Decoder{}
	}
	d.src = bytes.Buffer{}
	d.json.Reset(&d.src) // drop the reference to body

	cut := errors.Is(err, io.ErrUnexpectedEOF) && i+len(window) < len(body)
	switch {
	case cut, err == nil && end-i > d.maxReadingBytes:
		return 0, "", nil, ErrReadingTooLong
	case err != nil:
		return 0, "", nil, syntaxError(body, i, err)
	default:
		return end, field, broken, nil
	}
}

// maxKeptBytes is the maximum length of a value after which the JSON decoder is reused.
// The JSON decoder keeps a table of names per nesting depth, so a long hostile value
// would occupy much memory for the lifetime of the Decoder.
const maxKeptBytes = 4 << 10

func (d *Decoder) strictObject(times timeSpan, r *Reading) (field string, broken, err error) {
	if _, err := d.json.ReadToken(); err != nil {
		return "", nil, err
	}
	hasTime := false
	m := memberUnknown
	for d.json.PeekKind() != jsontext.KindEndObject {
		quoted, err := d.json.ReadValue()
		if err != nil {
			return "", nil, err
		}
		name := ""
		if broken == nil {
			if next := d.after[m]; string(quoted) == d.rules.names.quoted[next] {
				m = next
			} else {
				text := d.unquote(quoted)
				if m = d.rules.names.find(text); m == memberUnknown && (!d.ignoreUnknown || d.rules.retired(text)) {
					name = d.reportable(text)
				}
			}
		}
		value, err := d.json.ReadValue()
		if err != nil {
			return "", nil, err
		}
		if broken != nil || m != memberUnknown && value.Kind() == jsontext.KindNull {
			continue // only the syntax matters: the reading is rejected, or the field was not measured
		}
		switch m {
		case memberUnknown:
			if !d.ignoreUnknown || name != "" {
				field, broken = name, ErrUnknownField
			}
		case memberDevice:
			field, broken = fieldDevice, d.strictName(value, &r.Device)
		case memberGateway:
			field, broken = fieldGateway, d.strictName(value, &r.Gateway)
		case memberTime:
			hasTime = true
			field, broken = fieldTime, d.strictTime(value, times, r)
		default:
			field, broken = d.rules.limits.Signs.Field(Sign(m)), d.strictSign(value, Sign(m), &r.Values)
		}
	}
	if _, err := d.json.ReadToken(); err != nil {
		return "", nil, err
	}
	if broken == nil {
		field, broken = d.from.complete(r)
	}
	switch {
	case broken != nil:
		return field, broken, nil
	case r.Device.IsZero():
		return fieldDevice, ErrMissing, nil
	case !hasTime:
		return fieldTime, ErrMissing, nil
	}
	field, broken = checkTogether(&r.Values)
	return field, broken, nil
}

func (d *Decoder) strictName(value jsontext.Value, n *Name) error {
	if value.Kind() != jsontext.KindString {
		return errNotString
	}
	return n.parse(d.unquote(value))
}

func (d *Decoder) strictTime(value jsontext.Value, times timeSpan, r *Reading) (err error) {
	switch value.Kind() {
	case jsontext.KindString:
		r.TimeUnixMs, r.UTCOffset, err = ParseRFC3339(d.unquote(value))
	case jsontext.KindNumber:
		r.TimeUnixMs, err = ParseUnixMs(value)
		if err == nil && r.TimeUnixMs >= 0 && r.TimeUnixMs < times.leastInteger {
			err = ErrSeconds
		}
	default:
		return errNotTime
	}
	switch err {
	case nil:
		return d.rules.checkTime(r.TimeUnixMs, times)
	case ErrFuture:
		return d.rules.ahead
	default:
		return err
	}
}

func (d *Decoder) strictSign(value jsontext.Value, s Sign, values *Values) error {
	if value.Kind() != jsontext.KindNumber {
		return errNotNumber
	}
	v, err := d.rules.limits.Signs.Of(s).Parse(value)
	switch err {
	case nil:
	case ErrRange:
		return d.rules.outside[s]
	default:
		return err
	}
	if err := d.rules.checkValue(s, v); err != nil {
		return err
	}
	values.Set(s, v)
	return nil
}

// maxEscapedBytes is the maximum length of a name, a time or a field name with escapes,
// including quotes: each byte takes at most 6 bytes as an escape.
const maxEscapedBytes = 6*max(MaxNameBytes, MaxTimeBytes) + len(`""`)

// unquote returns the unescaped content of a valid JSON string. The content is valid
// until the next call and the next read. Strings that are too long to be meaningful are
// returned with their escapes.
func (d *Decoder) unquote(quoted jsontext.Value) []byte {
	content := quoted[1 : len(quoted)-1]
	if len(quoted) > len(d.scratch) || bytes.IndexByte(content, '\\') < 0 {
		return content
	}
	content, _ = jsontext.AppendUnquote(d.scratch[:0], quoted) // cannot fail: quoted is valid
	return content
}

// reportable returns an unknown field's name if it is safe to repeat it to a client and
// in a log, or "". The name comes from a client and may contain anything.
func (d *Decoder) reportable(name []byte) string {
	if len(name) == 0 || len(name) > MaxNameBytes {
		return ""
	}
	for _, c := range name {
		if !nameByte[c] || c == ':' {
			return ""
		}
	}
	if d.unknown != string(name) {
		d.unknown = string(name)
	}
	return d.unknown
}
