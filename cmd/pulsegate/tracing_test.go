package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A tracesCollector is an OpenTelemetry collector that only records.
type tracesCollector struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	spans  []exportedSpan // guarded by mu
	text   strings.Builder
	tokens []string
}

type exportedSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
}

func (s *exportedSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

func newTracesCollector(t *testing.T) *tracesCollector {
	c := &tracesCollector{t: t}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		var export struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []exportedSpan }
			}
		}
		if err := json.Unmarshal(text, &export); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.text.Write(text)
		c.tokens = append(c.tokens, r.Header.Get("X-Tenant"))
		for _, rs := range export.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// await returns the spans of the trace that want selects, as soon as there are any.
func (c *tracesCollector) await(want func(root *exportedSpan) bool) (root exportedSpan, phases []exportedSpan) {
	c.t.Helper()
	var spans []exportedSpan
	if !polltest.Within(polltest.Patience, func() bool {
		c.mu.Lock()
		spans = slices.Clone(c.spans)
		c.mu.Unlock()
		i := slices.IndexFunc(spans, func(s exportedSpan) bool { return strings.Contains(s.Name, " ") && want(&s) })
		if i >= 0 {
			root = spans[i]
		}
		return i >= 0
	}) {
		c.t.Fatalf("no such trace among %+v", spans)
	}
	for _, s := range spans {
		if s.ParentSpanID == root.SpanID {
			phases = append(phases, s)
		}
	}
	return root, phases
}

func names(spans []exportedSpan) (names []string) {
	for _, s := range spans {
		names = append(names, s.Name)
	}
	return names
}

// A server exports its traces: in both lanes, as parts of the caller's trace, and without a
// device, a value or a token.
func TestTracing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	const (
		traceID = "0af7651916cd43dd8448eb211c80319c"
		spanID  = "b7ad6b7169203331"
	)
	c := newTracesCollector(t)
	cmd := exec.Command(program(t), "serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--min-free-bytes=-1", anyTime, "--trace-sample=1",
		"--data="+filepath.Join(t.TempDir(), "data"))
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=X-Tenant=ward%207")
	p := launch(t, 2, cmd)

	send := func(method, path, body string, header http.Header) {
		t.Helper()
		req, err := http.NewRequest(method, p.url(path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("%s %s: %s", method, path, resp.Status)
		}
	}
	reading := func(ms int) string { return fmt.Sprintf(`{"device":"ppg-000123","time":%d,"spo2_pct":97.25}`, ms) }

	send("POST", "/v1/readings", reading(1), http.Header{})
	root, phases := c.await(func(s *exportedSpan) bool { return s.attribute("pulsegate.lane") == "fast" })
	if root.Name != "POST /v1/readings" || root.ParentSpanID != "" || root.attribute("pulsegate.readings") != "1" || root.attribute("http.response.status_code") != "200" {
		t.Errorf("fast lane: %+v", root)
	}
	if got, want := names(phases), []string{"decode", "queue", "commit"}; !slices.Equal(got, want) || phases[2].attribute("pulsegate.commit.readings") != "1" {
		t.Errorf("fast lane: phases %v, want %v, the last of 1 reading: %+v", got, want, phases)
	}

	send("POST", "/v1/readings", "["+reading(2)+","+reading(3)+"]", http.Header{"Traceparent": {"00-" + traceID + "-" + spanID + "-01"}})
	root, phases = c.await(func(s *exportedSpan) bool { return s.TraceID == traceID })
	if root.ParentSpanID != spanID || root.attribute("pulsegate.lane") != "full" || root.attribute("pulsegate.readings") != "2" {
		t.Errorf("full lane: %+v", root)
	}
	if got, want := names(phases), []string{"read", "decode", "queue", "commit"}; !slices.Equal(got, want) || phases[3].attribute("pulsegate.commit.readings") != "2" {
		t.Errorf("full lane: phases %v, want %v, the last of 2 readings: %+v", got, want, phases)
	}

	send("GET", "/v1/devices/ppg-000123", "", http.Header{"Authorization": {"Bearer hush"}})
	root, phases = c.await(func(s *exportedSpan) bool { return strings.HasPrefix(s.Name, "GET") })
	if root.Name != "GET /v1/devices/{device}" || len(phases) != 0 {
		t.Errorf("reading: %+v with %v", root, phases)
	}

	// Requests that the caller does not want to be traced.
	//
	send("POST", "/v1/readings", reading(4), http.Header{"Traceparent": {"00-" + strings.Repeat("1", 32) + "-" + spanID + "-00"}})
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.stderr())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, hidden := range []string{"ppg", "97.25", "hush", strings.Repeat("1", 32)} {
		if text := c.text.String(); strings.Contains(text, hidden) {
			t.Errorf("the spans show %s:\n%s", hidden, text)
		}
	}
	for _, token := range c.tokens {
		if token != "ward 7" {
			t.Errorf("a header of the collector is %q, want ward 7", token)
		}
	}
}

// Without an endpoint there are no traces, and a request with a traceparent stays in the fast
// lane.
func TestTracingOff(t *testing.T) {
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"), "--admin-addr=127.0.0.1:0", "--trace-sample=1")
	req, err := http.NewRequest("POST", p.url("/v1/readings"), strings.NewReader(`{"device":"d","time":1,"spo2_pct":97}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	resp, err = http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || strings.Contains(string(page), "pulsegate_traced_requests_total") {
		t.Errorf("%v, or traces are counted though nothing is traced", err)
	}
}
