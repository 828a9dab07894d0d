package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// A tracedSpan is a span as a collector receives it.
type tracedSpan struct {
	Name, SpanID, ParentSpanID         string
	StartTimeUnixNano, EndTimeUnixNano int64 `json:",string"`
	Attributes                         []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
}

func (s *tracedSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

// traced returns a Tracer that samples the given share, and a function that closes it and returns
// the spans of each request, the request's own first.
func traced(t *testing.T, share float64) (*tracing.Tracer, func() [][]tracedSpan) {
	t.Helper()
	var mu sync.Mutex
	var spans []tracedSpan
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var export struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []tracedSpan }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&export); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range export.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				spans = append(spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(collector.Close)
	endpoint, err := url.Parse(collector.URL)
	try(t, err)
	tr := tracing.New(tracing.Options{Endpoint: endpoint, Sample: share, Forced: tracing.DefaultForced})
	var once sync.Once
	end := func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
			defer cancel()
			if err := tr.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(end)
	return tr, func() (requests [][]tracedSpan) {
		end()
		mu.Lock()
		defer mu.Unlock()
		for _, s := range spans {
			if strings.Contains(s.Name, " ") || s.Name == "POST" {
				requests = append(requests, []tracedSpan{s})
			} else {
				last := len(requests) - 1
				requests[last] = append(requests[last], s)
			}
		}
		return requests
	}
}

// within reports phases that overlap or are not within their request.
func within(t *testing.T, spans []tracedSpan) {
	t.Helper()
	at := spans[0].StartTimeUnixNano
	for _, s := range spans[1:] {
		if s.StartTimeUnixNano < at || s.EndTimeUnixNano < s.StartTimeUnixNano || s.ParentSpanID != spans[0].SpanID {
			t.Errorf("%s is from %d to %d, before the end of the previous one at %d", s.Name, s.StartTimeUnixNano,
				s.EndTimeUnixNano, at)
		}
		at = s.EndTimeUnixNano
	}
	if at > spans[0].EndTimeUnixNano {
		t.Errorf("the last phase ends at %d, after its request at %d", at, spans[0].EndTimeUnixNano)
	}
}

// exchange sends requests on one connection and reads the given number of answers.
func exchange(t *testing.T, srv *server, requests string, answers int) {
	t.Helper()
	conn := dial(t, srv)
	if _, err := io.WriteString(conn, requests); err != nil {
		t.Fatal(err)
	}
	text, buf := "", make([]byte, 4096)
	for strings.Count(text, "HTTP/1.1 ") < answers || !strings.HasSuffix(text, "}\n") {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, text)
		}
		text += string(buf[:n])
	}
	if strings.Count(text, "HTTP/1.1 200 ") != answers {
		t.Fatalf("answers: %s", text)
	}
}

// TestTracePhases checks that the phases of a request follow one another, in both lanes, and that
// they have the group with which its readings were committed.
func TestTracePhases(t *testing.T) {
	for _, tt := range []struct {
		name     string
		requests string
		answers  int
		full     bool
		want     string // of each request: phases, readings, group, groups
	}{
		{"fast", request(good), 1, false, "decode queue commit 1 1 1;"},
		{"fast, in one turn", request(good) + request(batch("d", 3)), 2, false,
			"decode queue commit 1 4 1;decode queue commit 3 4 1;"},
		{"full", request(good), 1, true, "read decode queue commit 1 1 1;"},
		{"full, in three groups", request(batch("d", 9)), 1, true, "read decode queue commit 9 1 3;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr, end := traced(t, 1)
			lane := &ingest.FastLaneConfig{}
			if tt.full {
				lane = nil
			}
			srv := serveOn(t, settleAs(storage.Stored), ingest.Config{Now: time.Now, Trace: tr, MaxGroup: 4}, lane,
				func(s *http.Server) { s.Handler = new(metrics.Requests).Handler(tr.Handler(s.Handler)) })
			exchange(t, srv, tt.requests, tt.answers)
			srv.stop(t)
			got := ""
			for _, spans := range end() {
				within(t, spans)
				for _, s := range spans[1:] {
					got += s.Name + " "
				}
				last := spans[len(spans)-1]
				got += fmt.Sprintf("%s %s %s;", spans[0].attribute("pulsegate.readings"),
					last.attribute("pulsegate.commit.readings"), last.attribute("pulsegate.commit.groups"))
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
