package query

import (
	"bytes"
	"mime"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Format is a format of readings.
type Format uint8

// The formats.
const (
	JSON    Format = iota // one object with the readings and the cursor of the next page
	NDJSON                // one object per line
	CSV                   // RFC 4180, with a header
	Parquet               // Apache Parquet; not for aggregates
	OMH                   // data points of Open mHealth; not for aggregates, nor by the Accept header

	TextFormats = Parquet // number of text formats
)

// formatNames and contentTypes are indexed by Format and never modified.
var (
	formatNames  = [...]string{JSON: "json", NDJSON: "ndjson", CSV: "csv", Parquet: "parquet", OMH: "omh"}
	contentTypes = [...]string{
		JSON:   "application/json",
		NDJSON: "application/x-ndjson",
		CSV:    "text/csv; charset=utf-8; header=present",

		Parquet: "application/vnd.apache.parquet",
		OMH:     "application/json",
	}
)

// Formats returns all formats; of aggregates, there are the first TextFormats.
func Formats() []Format { return []Format{JSON, NDJSON, CSV, Parquet, OMH} }

// String returns the name of the format, as in the parameter format.
func (f Format) String() string { return formatNames[f] }

// ContentType returns the media type of a response in this format.
func (f Format) ContentType() string { return contentTypes[f] }

// An encoder formats the records of devices. Its methods append to a buffer and do not
// allocate otherwise.
//
// In every format, a record consists of the device, the time, the offset, the values, the
// gateway, the subject of its time, the time of receipt, and the flags. The encoder keeps the texts that consecutive
// records usually share.
type encoder struct {
	format Format
	signs  *vitals.Signs
	flags  *recordFlagger // nil means no flags

	columns uint32 // the signs that have a column of CSV
	plain   bool   // values are as in JSON; otherwise those of signs with decimals have at least one

	device   vitals.Name
	measured clock // appends the device and the time of a record
	received clock // appends the gateway, the subject and the time of receipt

	offset     vitals.UTCOffset // of the last record
	offsetText []byte           // from its time to its values
	gateway    *vitals.Name     // of the last record
	worn       wearing
}

// newEncoder returns an encoder of a device's records, given its assignments.
func newEncoder(format Format, device vitals.Name, assigned []storage.Assignment, signs *vitals.Signs,
	flags *recordFlagger) *encoder {
	e := &encoder{
		format:     format,
		signs:      signs,
		flags:      flags,
		columns:    signs.Known(),
		plain:      format == JSON,
		offsetText: make([]byte, 0, 32),
		received:   clock{text: make([]byte, 0, 64+2*vitals.MaxNameBytes)},
		worn:       wearing{all: assigned},
	}
	e.setDevice(device)
	e.setOffset(0)
	e.setGateway(nil)
	return e
}

// setDevice sets the device that the encoder appends.
func (e *encoder) setDevice(device vitals.Name) {
	if device == e.device && e.measured.text != nil {
		return
	}
	e.device = device
	text := e.measured.text[:0]
	if e.format == CSV {
		text = append(device.AppendTo(text), ',')
	} else {
		text = append(device.AppendTo(append(text, `{"device":"`...)), `","time":"`...)
	}
	e.measured.setText(text)
}

// setOffset sets the offset from UTC that the encoder appends.
func (e *encoder) setOffset(offset vitals.UTCOffset) {
	e.offset = offset
	text := e.offsetText[:0]
	minutes, ok := offset.Minutes()
	switch {
	case e.format == CSV:
		text = append(text, ',')
	case ok:
		text = append(text, `","utc_offset_minutes":`...)
	default:
		text = append(text, '"')
	}
	if ok {
		text = strconv.AppendInt(text, int64(minutes), 10)
	}
	e.offsetText = text
}

// setGateway sets the gateway that the encoder appends, before the subject; nil means none.
func (e *encoder) setGateway(gateway *vitals.Name) {
	e.gateway = gateway
	text := e.received.text[:0]
	switch {
	case e.format == CSV && gateway == nil:
		text = append(text, ',')
	case e.format == CSV:
		text = gateway.AppendTo(append(text, ','))
	case gateway != nil:
		text = append(gateway.AppendTo(append(text, `,"gateway":"`...)), '"')
	}
	if e.format == CSV {
		text = append(append(append(text, ','), e.worn.now.Subject...), ',')
	} else {
		text = append(appendSubject(text, "subject", e.worn.now.Subject), `,"received":"`...)
	}
	e.received.setText(text)
}

// AppendHead appends the text before the first record.
func (e *encoder) AppendHead(dst []byte) []byte {
	switch e.format {
	case JSON:
		return append(dst, `{"readings":[`...)
	case CSV:
		dst = append(dst, "device,time,utc_offset_minutes"...)
		for s := range vitals.InOrder(e.columns) {
			dst = append(append(dst, ','), e.signs.Field(s)...)
		}
		dst = append(dst, ",gateway,subject,received"...)
		if e.flags != nil {
			dst = append(dst, ",flags"...)
		}
		return append(dst, "\r\n"...)
	}
	return dst
}

// AppendRecord appends one record: the reading as it was sent, when it was received, and
// its flags. No cell of a CSV row needs quotes: names contain no commas, and flags are
// separated by semicolons.
func (e *encoder) AppendRecord(dst []byte, r *storage.Record, first bool) []byte {
	if r.UTCOffset != e.offset {
		e.setOffset(r.UTCOffset)
	}
	if g := e.gateway; e.worn.seek(r.TimeUnixMs) || r.Gateway != g && (r.Gateway == nil || g == nil || *r.Gateway != *g) {
		e.setGateway(r.Gateway)
	}
	if e.format == JSON {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(dst, '\n')
	}
	dst = e.measured.append(dst, r.TimeUnixMs)
	dst = append(dst, e.offsetText...)
	if e.format == CSV {
		dst = e.appendCells(dst, &r.Values)
	} else {
		dst = e.appendMembers(dst, &r.Values)
	}
	dst = e.received.append(dst, r.ReceivedUnixMs)
	var flags vitals.FlagSet
	if e.flags != nil {
		flags = e.flags.flags(&e.device, e.worn.now.Subject, &r.Values)
	}
	switch e.format {
	case CSV:
		if e.flags != nil {
			dst = appendFlagCell(dst, e.signs, flags)
		}
		return append(dst, "\r\n"...)
	case NDJSON:
		return append(appendFlags(append(dst, '"'), e.signs, flags), "}\n"...)
	default:
		return append(appendFlags(append(dst, '"'), e.signs, flags), '}')
	}
}

// AppendReading appends a reading of a device, and of the subject of its time, as in a JSON page of readings. The
// names of its flags are left out if flags is nil.
func AppendReading(dst []byte, device vitals.Name, subject storage.Subject, r *storage.Record, signs *vitals.Signs,
	flags *vitals.FlagLimits) []byte {
	always := []storage.Assignment{{Subject: subject, ToUnixMs: storage.OpenEnd}}
	var shown *recordFlagger
	if flags != nil {
		shown = &recordFlagger{flagger: flagger{all: flags}}
	}
	e := newEncoder(NDJSON, device, always, signs, shown)
	e.plain = true
	dst = e.AppendRecord(dst, r, true)
	return dst[:len(dst)-1] // without the line's end
}

// appendMembers appends the values as members of JSON, each after a comma.
func (e *encoder) appendMembers(dst []byte, values *vitals.Values) []byte {
	if e.plain {
		return e.signs.AppendMembers(dst, values)
	}
	for s, v := range values.All() {
		d := e.signs.Of(s)
		dst = append(append(append(dst, `,"`...), d.Field...), `":`...)
		dst = appendFloat(dst, d, v, d.Decimals > 0)
	}
	return dst
}

// appendFloat appends a value, with at least one decimal if isFloat. Tools infer the type of a column from its first
// values, perhaps thousands, and round later ones if those look like integers.
func appendFloat(dst []byte, d *vitals.Definition, v vitals.Value, isFloat bool) []byte {
	begin := len(dst)
	if dst = d.Append(dst, v); isFloat && bytes.IndexByte(dst[begin:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendCells appends the values as cells of a CSV row, each after a comma.
func (e *encoder) appendCells(dst []byte, values *vitals.Values) []byte {
	for s := range vitals.InOrder(e.columns) {
		dst = append(dst, ',')
		if v, ok := values.Get(s); ok {
			d := e.signs.Of(s)
			dst = appendFloat(dst, d, v, d.Decimals > 0)
		}
	}
	return dst
}

// AppendTail appends the text after the last record.
func (e *encoder) AppendTail(dst []byte, cursor string) []byte {
	if e.format != JSON {
		return dst
	}
	dst = appendNext(append(dst, "\n]"...), cursor)
	if e.flags != nil {
		dst = appendNotice(dst)
	}
	return append(dst, "}\n"...)
}

// appendNext appends the cursor of the next page, if there is one.
func appendNext(dst []byte, cursor string) []byte {
	if cursor == "" {
		return dst
	}
	return append(append(append(dst, `,"next_cursor":"`...), cursor...), '"')
}

// appendNotice appends the notice that must accompany flags.
func appendNotice(dst []byte) []byte {
	return append(append(append(dst, `,"flags_notice":"`...), vitals.FlagNotice...), '"')
}

// appendFlags appends the member with the flags, if there are any. Names and texts of
// flags need no escapes in JSON.
func appendFlags(dst []byte, signs *vitals.Signs, set vitals.FlagSet) []byte {
	if set.IsZero() {
		return dst
	}
	return append(joinFlags(append(dst, `,"flags":["`...), signs, set, `","`), `"]`...)
}

// appendFlagCell appends the CSV cell with the flags after a comma.
func appendFlagCell(dst []byte, signs *vitals.Signs, set vitals.FlagSet) []byte {
	return joinFlags(append(dst, ','), signs, set, ";")
}

// joinFlags appends flags with a separator between them.
func joinFlags(dst []byte, signs *vitals.Signs, set vitals.FlagSet, separator string) []byte {
	first := true
	for _, f := range signs.Flags(set) {
		if !first {
			dst = append(dst, separator...)
		}
		first = false
		dst = append(append(append(dst, f.Subject...), ' '), f.Text...)
	}
	return dst
}

// negotiate returns the format below the given one that an Accept header prefers. ok is false if none is
// acceptable. A missing header accepts all. Among formats with the same weight, JSON is
// preferred.
//
// Parameters other than q are ignored (RFC 9110, section 12.5.1).
func negotiate(accept []string, below Format) (f Format, ok bool) {
	if len(accept) == 0 {
		return JSON, true
	}
	best, bestQ := JSON, 0.0
	for f := range below {
		if q := quality(accept, f); q > bestQ {
			best, bestQ = f, q
		}
	}
	return best, bestQ > 0
}

// quality returns the weight of f in an Accept header, 0 to 1: that of the most
// specific media range that matches.
func quality(accept []string, f Format) float64 {
	best, specific := 0.0, -1
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, _ := mime.ParseMediaType(item) // without parameters if one is malformed
		if s := specificity(name, f); s > specific {
			best, specific = weight(params["q"]), s
		}
	}
	return best
}

// specificity returns how specifically a media range matches f: 2 by name, 1 by type, 0
// by */*, -1 not at all.
func specificity(name string, f Format) int {
	switch {
	case f == OMH: // its media type is that of JSON
		return -1
	case name == "*/*":
		return 0
	case f == CSV && name == "text/*", f != CSV && name == "application/*":
		return 1
	case f == CSV && name == "text/csv",
		f == JSON && name == "application/json",
		f == Parquet && name == contentTypes[Parquet],
		f == NDJSON && (name == "application/x-ndjson" || name == "application/ndjson" || name == "application/jsonl"):
		return 2
	}
	return -1
}

// weight returns a weight, 1 if it is missing, and 0 if it is malformed.
func weight(text string) float64 {
	if text == "" {
		return 1
	}
	q, err := strconv.ParseFloat(text, 64)
	if err != nil || !(q >= 0) {
		return 0
	}
	return min(q, 1)
}
