package tracing

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// scope names the instrumentation.
const scope = "github.com/pulsegate/pulsegate/internal/observe/tracing"

// schema is the version of OpenTelemetry's semantic conventions that defines the
// attributes http.*.
const schema = "https://opentelemetry.io/schemas/1.37.0"

// Kinds of spans and codes of statuses, from opentelemetry-proto's trace.proto.
const (
	kindInternal = 1
	kindServer   = 2
	statusError  = 2

	// Bits of a span's flags in addition to those of W3C Trace Context.
	flagKnowsRemote = 0x100
	flagIsRemote    = 0x200
)

// appendTraces appends an OTLP ExportTraceServiceRequest in JSON encoding: IDs are
// hexadecimal, 64-bit integers are strings, and enumerations are numbers
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
func appendTraces(dst []byte, batch []Request, service, version string) []byte {
	dst = append(dst, `{"resourceSpans":[{"resource":{"attributes":[`...)
	dst = appendString(dst, "service.name", service)
	dst = append(dst, ',')
	dst = appendString(dst, "service.version", version)
	dst = append(dst, `]},"schemaUrl":"`+schema+`","scopeSpans":[{"schemaUrl":"`+schema+`","scope":{"name":"`+scope+`"},"spans":[`...)
	for i := range batch {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendRequest(dst, &batch[i])
	}
	return append(dst, "]}]}]}"...)
}

// appendRequest appends the spans of a request.
func appendRequest(dst []byte, r *Request) []byte {
	s := span{trace: r.traceID(), id: newSpanID(), parent: r.Parent.SpanID, state: r.Parent.State, kind: kindServer, name: r.Method, period: r.Period}
	if r.Route != "" {
		s.name += " " + r.Route
	}
	s.flags = uint32(r.Parent.Flags) | flagKnowsRemote
	if !r.Parent.IsZero() {
		s.flags |= flagIsRemote
	}
	dst = s.appendHead(dst)
	dst = append(dst, `,"attributes":[`...)
	dst = appendString(dst, "http.request.method", r.Method)
	if r.Route != "" {
		dst = append(dst, ',')
		dst = appendString(dst, "http.route", r.Route)
	}
	if r.Status > 0 {
		dst = appendInt(append(dst, ','), "http.response.status_code", r.Status)
	}
	dst = append(dst, ',')
	dst = appendString(dst, "pulsegate.lane", r.Lane)
	if r.Readings > 0 {
		dst = appendInt(append(dst, ','), "pulsegate.readings", r.Readings)
	}
	dst = append(dst, ']')
	if r.Status < 0 || r.Status >= http.StatusInternalServerError {
		dst = append(dst, `,"status":{"code":`+strconv.Itoa(statusError)+`}`...)
	}
	dst = append(dst, '}')

	parent := s.id
	for phase, period := range r.Phases {
		if period.Start.IsZero() {
			continue
		}
		p := span{trace: s.trace, id: newSpanID(), parent: parent, state: s.state, flags: uint32(r.Parent.Flags) | flagKnowsRemote,
			kind: kindInternal, name: phaseNames[phase], period: period}
		dst = p.appendHead(append(dst, ','))
		if Phase(phase) == Commit {
			dst = append(dst, `,"attributes":[`...)
			dst = appendInt(dst, "pulsegate.commit.readings", r.Group)
			dst = appendInt(append(dst, ','), "pulsegate.commit.groups", r.Groups)
			dst = append(dst, ']')
		}
		dst = append(dst, '}')
	}
	return dst
}

// A span is an OTLP span without its attributes and its status.
type span struct {
	trace      [16]byte
	id, parent [8]byte // zero: no parent
	state      string
	flags      uint32
	kind       int
	name       string
	period     Period
}

// appendHead appends the beginning of a span, without attributes, status and closing
// brace.
func (s *span) appendHead(dst []byte) []byte {
	dst = append(dst, `{"traceId":"`...)
	dst = hex.AppendEncode(dst, s.trace[:])
	dst = append(dst, `","spanId":"`...)
	dst = hex.AppendEncode(dst, s.id[:])
	if s.parent != [8]byte{} {
		dst = append(dst, `","parentSpanId":"`...)
		dst = hex.AppendEncode(dst, s.parent[:])
	}
	dst = append(dst, '"')
	if s.state != "" {
		dst = append(dst, `,"traceState":`...)
		dst = appendQuoted(dst, s.state)
	}
	dst = append(dst, `,"flags":`...)
	dst = strconv.AppendUint(dst, uint64(s.flags), 10)
	dst = append(dst, `,"kind":`...)
	dst = strconv.AppendInt(dst, int64(s.kind), 10)
	dst = append(dst, `,"name":`...)
	dst = appendQuoted(dst, s.name)
	dst = append(dst, `,"startTimeUnixNano":"`...)
	dst = appendTime(dst, s.period.Start)
	dst = append(dst, `","endTimeUnixNano":"`...)
	dst = appendTime(dst, s.period.End)
	return append(dst, '"')
}

func appendTime(dst []byte, t time.Time) []byte { return strconv.AppendInt(dst, t.UnixNano(), 10) }

// appendQuoted appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error is about invalid UTF-8
	return dst
}

func appendString(dst []byte, key, value string) []byte {
	dst = append(append(dst, `{"key":"`...), key...)
	dst = append(dst, `","value":{"stringValue":`...)
	dst = appendQuoted(dst, value)
	return append(dst, "}}"...)
}

func appendInt(dst []byte, key string, value int) []byte {
	dst = append(append(dst, `{"key":"`...), key...)
	dst = append(dst, `","value":{"intValue":"`...)
	dst = strconv.AppendInt(dst, int64(value), 10)
	return append(dst, `"}}`...)
}
