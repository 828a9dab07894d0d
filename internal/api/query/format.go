package query

import (
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Format is a text format of readings.
type Format uint8

// The formats.
const (
	JSON   Format = iota // one object with the readings and the cursor of the next page
	NDJSON               // one object per line
	CSV                  // RFC 4180, with a header
)

// formatNames and contentTypes are indexed by Format and never modified.
var (
	formatNames  = [...]string{JSON: "json", NDJSON: "ndjson", CSV: "csv"}
	contentTypes = [...]string{
		JSON:   "application/json",
		NDJSON: "application/x-ndjson",
		CSV:    "text/csv; charset=utf-8; header=present",
	}
)

// ContentType returns the media type of a response in this format.
func (f Format) ContentType() string { return contentTypes[f] }

// An encoder formats records. Its methods append to a buffer and do not allocate
// otherwise.
type encoder struct {
	format Format
	device vitals.Name        // of all records
	flags  *vitals.FlagLimits // nil: no flags
}

// appendHead appends the text before the first record.
func (e *encoder) appendHead(dst []byte) []byte {
	switch e.format {
	case JSON:
		return append(dst, `{"readings":[`...)
	case CSV:
		dst = append(dst, "device,time"...)
		for s := range vitals.Sign(vitals.NumSigns) {
			dst = append(append(dst, ','), s.Field()...)
		}
		dst = append(dst, ",gateway,received"...)
		if e.flags != nil {
			dst = append(dst, ",flags"...)
		}
		return append(dst, "\r\n"...)
	}
	return dst
}

// appendRecord appends one record.
func (e *encoder) appendRecord(dst []byte, r *storage.Record, first bool) []byte {
	switch e.format {
	case CSV:
		return e.appendRow(dst, r)
	case NDJSON:
		return append(e.appendObject(dst, r), '\n')
	}
	if !first {
		dst = append(dst, ',')
	}
	return e.appendObject(append(dst, '\n'), r)
}

// appendTail appends the text after the last record.
func (e *encoder) appendTail(dst []byte, cursor string) []byte {
	if e.format != JSON {
		return dst
	}
	dst = append(dst, "\n]"...)
	if cursor != "" {
		dst = append(append(append(dst, `,"next_cursor":"`...), cursor...), '"')
	}
	if e.flags != nil {
		dst = appendNotice(dst)
	}
	return append(dst, "}\n"...)
}

// appendNotice appends the notice that must accompany flags.
func appendNotice(dst []byte) []byte {
	return append(append(append(dst, `,"flags_notice":"`...), vitals.FlagNotice...), '"')
}

// appendObject appends a record as a JSON object: the reading as it was sent, when it
// was received, and its flags.
func (e *encoder) appendObject(dst []byte, r *storage.Record) []byte {
	reading := vitals.Reading{Device: e.device, TimeUnixMs: r.TimeUnixMs, Values: r.Values, UTCOffset: r.UTCOffset}
	if r.Gateway != nil {
		reading.Gateway = *r.Gateway
	}
	dst = vitals.AppendMembers(append(dst, '{'), &reading)
	dst = append(dst, `,"received":"`...)
	dst = vitals.AppendTime(dst, r.ReceivedUnixMs)
	dst = append(dst, '"')
	if e.flags != nil {
		dst = appendFlags(dst, e.flags.Flags(&r.Values))
	}
	return append(dst, '}')
}

// appendFlags appends the member with the flags, if there are any. Names and texts of
// flags need no escapes in JSON.
func appendFlags(dst []byte, set vitals.FlagSet) []byte {
	if set == 0 {
		return dst
	}
	dst = append(dst, `,"flags":[`...)
	first := true
	for f := range set.All() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, '"'), f.Subject()...)
		dst = append(append(append(dst, ' '), f.Text()...), '"')
	}
	return append(dst, ']')
}

// appendRow appends a record as a CSV row. No cell needs quotes: names contain no
// commas, and flags are separated by semicolons.
func (e *encoder) appendRow(dst []byte, r *storage.Record) []byte {
	dst = e.device.AppendTo(dst)
	dst = vitals.AppendTime(append(dst, ','), r.TimeUnixMs)
	for s := range vitals.Sign(vitals.NumSigns) {
		dst = append(dst, ',')
		if v, ok := r.Values.Get(s); ok {
			dst = vitals.AppendHundredths(dst, v)
		}
	}
	if dst = append(dst, ','); r.Gateway != nil {
		dst = r.Gateway.AppendTo(dst)
	}
	dst = vitals.AppendTime(append(dst, ','), r.ReceivedUnixMs)
	if e.flags != nil {
		dst = append(dst, ',')
		first := true
		for f := range e.flags.Flags(&r.Values).All() {
			if !first {
				dst = append(dst, ';')
			}
			first = false
			dst = append(append(append(dst, f.Subject()...), ' '), f.Text()...)
		}
	}
	return append(dst, "\r\n"...)
}

// negotiate returns the format preferred by an Accept header. ok is false if none is
// acceptable. A missing header accepts all. Among formats with the same weight, JSON is
// preferred.
//
// Parameters other than q are ignored (RFC 9110, section 12.5.1).
func negotiate(accept []string) (f Format, ok bool) {
	if len(accept) == 0 {
		return JSON, true
	}
	best, bestQ := JSON, 0
	for f := range Format(len(formatNames)) {
		if q := quality(accept, f); q > bestQ {
			best, bestQ = f, q
		}
	}
	return best, bestQ > 0
}

// quality returns the weight of f in an Accept header, 0 to 1000: that of the most
// specific media range that matches.
func quality(accept []string, f Format) int {
	best, specific := 0, -1
	for _, line := range accept {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			s := specificity(strings.ToLower(strings.TrimSpace(name)), f)
			if s > specific {
				best, specific = weight(params), s
			}
		}
	}
	return best
}

// specificity returns how specifically a media range matches f: 2 by name, 1 by type, 0
// by */*, -1 not at all.
func specificity(name string, f Format) int {
	switch {
	case name == "*/*":
		return 0
	case f == CSV && name == "text/*", f != CSV && name == "application/*":
		return 1
	case f == CSV && name == "text/csv",
		f == JSON && name == "application/json",
		f == NDJSON && (name == "application/x-ndjson" || name == "application/ndjson" || name == "application/jsonl"):
		return 2
	}
	return -1
}

// weight returns the q of a media range's parameters in thousandths: 1000 if it is
// missing, 0 if it is malformed.
func weight(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if !ok || !strings.EqualFold(name, "q") {
			continue
		}
		whole, decimals, _ := strings.Cut(value, ".")
		if len(whole) != 1 || whole[0] > '1' || whole[0] < '0' || len(decimals) > 3 {
			return 0
		}
		q := int(whole[0]-'0') * 1000
		for i, unit := 0, 100; i < len(decimals); i, unit = i+1, unit/10 {
			if decimals[i] < '0' || decimals[i] > '9' {
				return 0
			}
			q += int(decimals[i]-'0') * unit
		}
		return min(q, 1000)
	}
	return 1000
}
