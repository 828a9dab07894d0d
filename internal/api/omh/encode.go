package omh

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Encoder appends the data points of one device's records.
type Encoder struct {
	device   string
	name     []byte // of which uuids are made, up to the time
	starts   [len(schemas)]string
	decimals [len(schemas)]int // of the signs of each schema
	signs    *vitals.Signs
	left     uint32 // signs of which values were left out
	more     bool   // there is a data point already
}

// NewEncoder returns an Encoder for a device, whose records have signs of a table.
func NewEncoder(device vitals.Name, signs *vitals.Signs) *Encoder {
	e := &Encoder{device: device.String(), signs: signs}
	e.name = append(e.name, uuidNamespace[:]...)
	e.name = append(append(e.name, e.device...), ' ')
	for i := range schemas {
		s := &schemas[i]
		e.decimals[i] = vitals.BuiltIn(s.signs[0]).Decimals
		e.starts[i] = `","schema_id":{"namespace":"` + namespace + `","name":"` + s.name + `","version":"` + s.version +
			`"},"source_creation_date_time":"`
	}
	return e
}

// AppendHead appends the text before the first record.
func (e *Encoder) AppendHead(dst []byte) []byte { return append(dst, '[') }

// AppendTail appends the text after the last record.
func (e *Encoder) AppendTail(dst []byte, _ string) []byte { return append(dst, "\n]\n"...) }

// AppendRecord appends the data points of a record: one for each schema of which it has a sign.
func (e *Encoder) AppendRecord(dst []byte, r *storage.Record, _ bool) []byte {
	left := r.Values.Present()
	var text [40]byte
	when := vitals.AppendLocalTime(text[:0], r.TimeUnixMs, r.UTCOffset)
	for i := range schemas {
		s := &schemas[i]
		if !r.Values.Has(s.signs[0]) {
			continue
		}
		if e.more {
			dst = append(dst, ',')
		}
		e.more = true
		dst = e.appendUUID(append(dst, "\n{\"header\":{\"uuid\":\""...), r.TimeUnixMs, i)
		dst = append(append(dst, e.starts[i]...), when...)
		dst = append(dst,
			`","modality":"`+sensed+`","external_datasheets":[{"datasheet_type":"hardware","datasheet_reference":"`+deviceURN...)
		dst = append(dst, e.device...)
		if r.Gateway != nil {
			dst = append(dst, `"},{"datasheet_type":"gateway","datasheet_reference":"`+gatewayURN...)
			dst = r.Gateway.AppendTo(dst)
		}
		dst = append(dst, `"}]},"body":{`...)
		for j, sign := range s.signs {
			v, _ := r.Values.Get(sign)
			left &^= 1 << sign
			dst = append(append(append(dst, '"'), s.members[j]...), `":{"value":`...)
			dst = vitals.AppendDecimal(dst, v, e.decimals[i])
			dst = append(append(append(dst, `,"unit":"`...), s.unit...), `"},`...)
		}
		dst = append(append(dst, `"effective_time_frame":{"date_time":"`...), when...)
		dst = append(append(append(dst, `"}`...), s.more...), "}}"...)
	}
	e.left |= left
	return dst
}

// LeftOut returns the fields of the signs of which values were left out, with commas between them, in
// the order of the signs.
func (e *Encoder) LeftOut() string {
	var fields []string
	for s, d := range e.signs.All() {
		if e.left&(1<<s) != 0 {
			fields = append(fields, d.Field)
		}
	}
	return strings.Join(fields, ", ")
}

// uuidNamespace is the namespace of the uuids, a random UUID.
var uuidNamespace = [16]byte{0x5b, 0x0e, 0x8d, 0x3c, 0x1f, 0x52, 0x4e, 0x0b, 0x9a, 0x77, 0x2c, 0x61, 0xd4,
	0x90, 0xe8, 0x35}

// appendUUID appends the name-based UUID of a data point (RFC 9562, section 5.5).
func (e *Encoder) appendUUID(dst []byte, unixMs int64, schema int) []byte {
	e.name = strconv.AppendInt(e.name, unixMs, 10)
	e.name = append(e.name, ' ', '0'+byte(schema))
	sum := sha1.Sum(e.name)
	e.name = e.name[:len(uuidNamespace)+len(e.device)+1]
	id := sum[:16]
	id[6] = id[6]&0x0f | 5<<4
	id[8] = id[8]&0x3f | 2<<6
	dst = append(hex.AppendEncode(dst, id[:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:])
}
