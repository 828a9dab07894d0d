package tracing_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// A span is a decoded OTLP span.
type span struct {
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	TraceState   string `json:"traceState"`
	Flags        uint32 `json:"flags"`
	Kind         int    `json:"kind"`
	Name         string `json:"name"`
	Start        string `json:"startTimeUnixNano"`
	End          string `json:"endTimeUnixNano"`
	Attributes   []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	} `json:"attributes"`
	Status struct{ Code int } `json:"status"`
}

// attributes returns the attributes as text.
func (s *span) attributes() map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		m[a.Key] = a.Value.StringValue + a.Value.IntValue
	}
	return m
}

// took returns the duration of the span.
func (s *span) took(t *testing.T) time.Duration {
	t.Helper()
	start, err1 := strconv.ParseInt(s.Start, 10, 64)
	end, err2 := strconv.ParseInt(s.End, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("%q to %q", s.Start, s.End)
	}
	return time.Duration(end - start)
}

// A collector accepts traces like an OpenTelemetry collector. answer may be set before
// the first export.
type collector struct {
	*httptest.Server
	t      *testing.T
	answer http.HandlerFunc // called after the request was read; nil: 200

	mu      sync.Mutex
	spans   []span   // guarded by mu
	service []string // service.name of each export; guarded by mu
	posts   int      // guarded by mu
	header  http.Header
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the exporter gave up
	}
	var export struct {
		ResourceSpans []struct {
			Resource   span // for its attributes
			ScopeSpans []struct {
				Scope struct{ Name string }
				Spans []span
			}
		}
	}
	if err := json.Unmarshal(text, &export); err != nil {
		c.t.Errorf("export %q: %v", text, err)
	}
	if r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
		c.t.Errorf("%s %s of type %q", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	c.mu.Lock()
	c.posts++
	c.header = r.Header
	answer := c.answer
	for _, rs := range export.ResourceSpans {
		c.service = append(c.service, rs.Resource.attributes()["service.name"])
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	c.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
}

// got returns the spans received so far.
func (c *collector) got() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// options returns the Options of a Tracer that exports to c without delay.
func (c *collector) options() tracing.Options {
	u, err := url.Parse(c.URL + "/v1/traces")
	if err != nil {
		c.t.Fatal(err)
	}
	return tracing.Options{Endpoint: u, Service: "pulsegate", Version: "1.2.3", Every: time.Millisecond,
		Forced: tracing.DefaultForced}
}
