package tracing

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
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

// A span is an OTLP span in JSON encoding: IDs are hexadecimal, 64-bit integers are
// strings, and enumerations are numbers
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
type span struct {
	TraceID      string      `json:"traceId"`
	SpanID       string      `json:"spanId"`
	ParentSpanID string      `json:"parentSpanId,omitempty"`
	TraceState   string      `json:"traceState,omitempty"`
	Flags        uint32      `json:"flags"`
	Kind         int         `json:"kind"`
	Name         string      `json:"name"`
	Start        int64       `json:"startTimeUnixNano,string"`
	End          int64       `json:"endTimeUnixNano,string"`
	Attributes   []attribute `json:"attributes,omitempty"`
	Status       struct {
		Code int `json:"code,omitempty"`
	} `json:"status,omitzero"`
}

type attribute struct {
	Key   string            `json:"key"`
	Value map[string]string `json:"value"`
}

func textAttribute(key, value string) attribute {
	return attribute{key, map[string]string{"stringValue": value}}
}

func intAttribute(key string, value int) attribute {
	return attribute{key, map[string]string{"intValue": strconv.Itoa(value)}}
}

// encode returns an OTLP ExportTraceServiceRequest.
func encode(batch []Request, service, version string) []byte {
	var spans []span
	for i := range batch {
		spans = batch[i].appendSpans(spans)
	}
	type object map[string]any
	body, _ := json.Marshal(object{"resourceSpans": []object{{
		"resource": object{"attributes": []attribute{textAttribute("service.name", service),
			textAttribute("service.version", version)}},
		"schemaUrl": schema,
		"scopeSpans": []object{{
			"schemaUrl": schema,
			"scope":     object{"name": scope},
			"spans":     spans,
		}},
	}}}) // has nothing that cannot be encoded
	return body
}

// appendSpans appends the spans of a request.
func (r *Request) appendSpans(spans []span) []span {
	trace := r.traceID()
	root := r.span(trace, kindServer, r.Method, r.Period)
	root.Attributes = []attribute{textAttribute("http.request.method", r.Method), textAttribute("pulsegate.lane", r.Lane)}
	if r.Route != "" {
		root.Name += " " + r.Route
		root.Attributes = append(root.Attributes, textAttribute("http.route", r.Route))
	}
	if r.Status > 0 {
		root.Attributes = append(root.Attributes, intAttribute("http.response.status_code", r.Status))
	}
	if r.Readings > 0 {
		root.Attributes = append(root.Attributes, intAttribute("pulsegate.readings", r.Readings))
	}
	if r.Status < 0 || r.Status >= http.StatusInternalServerError {
		root.Status.Code = statusError
	}
	if !r.Parent.IsZero() {
		root.ParentSpanID = hex.EncodeToString(r.Parent.SpanID[:])
		root.Flags |= flagIsRemote
	}
	spans = append(spans, root)
	for i, period := range r.Phases {
		if period.Start.IsZero() {
			continue
		}
		s := r.span(trace, kindInternal, phaseNames[i], period)
		s.ParentSpanID = root.SpanID
		if Phase(i) == Commit {
			s.Attributes = []attribute{intAttribute("pulsegate.commit.readings", r.Group),
				intAttribute("pulsegate.commit.groups", r.Groups)}
		}
		spans = append(spans, s)
	}
	return spans
}

// span returns a span of the request, without a parent.
func (r *Request) span(trace string, kind int, name string, period Period) span {
	return span{
		TraceID: trace, SpanID: newSpanID(),
		TraceState: r.Parent.State, Flags: uint32(r.Parent.Flags) | flagKnowsRemote,
		Kind: kind, Name: name, Start: period.Start.UnixNano(), End: period.End.UnixNano(),
	}
}
