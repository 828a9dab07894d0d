package otlp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// The collector decodes every field of every span correctly.
func TestCollectorReads(t *testing.T) {
	exports := make(chan []byte, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		exports <- body
		// The response of a collector that has accepted everything.
		answer, err := ptraceotlp.NewExportResponse().MarshalJSON()
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(answer) // the exporter counts what it can decode
	}))
	defer collector.Close()
	endpoint, err := url.Parse(collector.URL)
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.New(tracing.Options{Endpoint: endpoint, Sample: 1, Service: `pulse"gate`, Version: "1.2.3",
		Every: time.Hour})
	start := time.Unix(1_800_000_000, 123_456_789)
	record := func(parent tracing.Parent, status int, phases ...tracing.Phase) {
		r := tracer.Begin(parent)
		r.Method, r.Route, r.Lane, r.Status = "POST", "/v1/readings", "full", status
		r.Readings, r.Group, r.Groups = 3, 64, 1
		r.Period = tracing.Period{Start: start, End: start.Add(time.Second)}
		for i, p := range phases {
			r.Phases[p] = tracing.Period{Start: start.Add(time.Duration(i)), End: start.Add(time.Duration(i + 1))}
		}
		tracer.Record(&r)
	}
	parent, ok := tracing.ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if !ok {
		t.Fatal("traceparent was not read")
	}
	parent.State = `vendor=a"b\`
	record(parent, 503, tracing.Read, tracing.Decode, tracing.Queue, tracing.Commit)
	record(tracing.Parent{}, 200)
	if err := tracer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := tracer.Stats(), (tracing.Stats{Exported: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}

	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalJSON(<-exports); err != nil {
		t.Fatal(err)
	}
	traces := request.Traces()
	if traces.SpanCount() != 6 || traces.ResourceSpans().Len() != 1 ||
		traces.ResourceSpans().At(0).ScopeSpans().Len() != 1 {
		t.Fatalf("%d spans of %d resources, want 6 of 1", traces.SpanCount(), traces.ResourceSpans().Len())
	}
	resource := traces.ResourceSpans().At(0)
	if got, want := attributes(resource.Resource().Attributes()),
		"service.name=pulse\"gate service.version=1.2.3"; got != want {
		t.Errorf("resource: got %s, want %s", got, want)
	}
	scope := resource.ScopeSpans().At(0)
	if !strings.HasSuffix(scope.Scope().Name(), "internal/observe/tracing") ||
		!strings.HasPrefix(scope.SchemaUrl(), "https://opentelemetry.io/schemas/") {
		t.Errorf("scope %s, schema %s", scope.Scope().Name(), scope.SchemaUrl())
	}
	root, second := scope.Spans().At(0), scope.Spans().At(5)
	for i, want := range []string{
		"POST /v1/readings|Server|1s|Error|http.request.method=POST http.response.status_code=503 http.route=/v1/readings " +
			"pulsegate.lane=full pulsegate.readings=3",
		"read|Internal|1ns|Unset|",
		"decode|Internal|1ns|Unset|",
		"queue|Internal|1ns|Unset|",
		"commit|Internal|1ns|Unset|pulsegate.commit.groups=1 pulsegate.commit.readings=64",
		"POST /v1/readings|Server|1s|Unset|http.request.method=POST http.response.status_code=200 http.route=/v1/readings " +
			"pulsegate.lane=full pulsegate.readings=3",
	} {
		s := scope.Spans().At(i)
		got := fmt.Sprintf("%s|%s|%v|%s|%s", s.Name(), s.Kind(), s.EndTimestamp().AsTime().Sub(s.StartTimestamp().AsTime()),
			s.Status().Code(), attributes(s.Attributes()))
		if got != want {
			t.Errorf("span %d:\n got %s\nwant %s", i, got, want)
		}
		if i < 5 && (s.TraceID() != parent.TraceID || s.TraceState().AsRaw() != parent.State) {
			t.Errorf("span %d has trace %s with state %q", i, s.TraceID(), s.TraceState().AsRaw())
		}
		if i > 0 && i < 5 && s.ParentSpanID() != root.SpanID() {
			t.Errorf("span %d has parent %s, want %s", i, s.ParentSpanID(), root.SpanID())
		}
		if s.SpanID().IsEmpty() {
			t.Errorf("span %d has no ID", i)
		}
	}
	if root.ParentSpanID() != parent.SpanID || !root.StartTimestamp().AsTime().Equal(start) || root.Flags() != 0x301 {
		t.Errorf("the first has parent %s, starts at %v, flags %x", root.ParentSpanID(), root.StartTimestamp(), root.Flags())
	}
	if !second.ParentSpanID().IsEmpty() || second.TraceID().IsEmpty() || second.TraceID() == parent.TraceID ||
		second.Flags() != 0x100 || second.Kind() != ptrace.SpanKindServer {
		t.Errorf("the second has trace %s, parent %s, flags %x", second.TraceID(), second.ParentSpanID(), second.Flags())
	}
}

// attributes returns the attributes sorted by name.
func attributes(m pcommon.Map) string {
	var all []string
	for name, value := range m.All() {
		all = append(all, name+"="+value.AsString())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Spans that a collector rejects are counted as failed.
func TestCollectorRejects(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		response := ptraceotlp.NewExportResponse()
		response.PartialSuccess().SetRejectedSpans(1)
		response.PartialSuccess().SetErrorMessage("too old")
		answer, err := response.MarshalJSON()
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(answer) // the exporter counts what it can decode
	}))
	defer collector.Close()
	endpoint, err := url.Parse(collector.URL)
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.New(tracing.Options{Endpoint: endpoint, Sample: 1})
	r := tracer.Begin(tracing.Parent{})
	tracer.Record(&r)
	if err := tracer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := tracer.Stats(), (tracing.Stats{Failed: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
