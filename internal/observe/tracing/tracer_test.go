package tracing_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// finish exports the recorded requests.
func finish(t *testing.T, tr *tracing.Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	if err := tr.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// request returns a request that took d.
func request(tr *tracing.Tracer, d time.Duration) *tracing.Request {
	r := tr.Begin(tracing.Parent{})
	start := time.Unix(1_800_000_000, 0)
	r.Method, r.Route, r.Lane, r.Status = "POST", "/v1/readings", "fast", 200
	r.Period = tracing.Period{Start: start, End: start.Add(d)}
	return &r
}

// The spans of a request form a tree of the phases that took place.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	cfg := c.options()
	cfg.Sample = 1
	cfg.Headers = map[string]string{"Authorization": "Bearer collector"}
	tr := tracing.New(cfg)
	r := request(tr, 10*time.Millisecond)
	at := func(from, to time.Duration) tracing.Period {
		return tracing.Period{Start: r.Start.Add(from), End: r.Start.Add(to)}
	}
	r.Phases[tracing.Decode] = at(1e6, 2e6)
	r.Phases[tracing.Queue] = at(2e6, 4e6)
	r.Phases[tracing.Commit] = at(4e6, 9e6)
	r.Readings, r.Group, r.Groups = 3, 64, 1
	tr.Record(r)
	finish(t, tr)
	spans := c.got()
	if len(spans) != 4 {
		t.Fatalf("got %d spans, want 4: %+v", len(spans), spans)
	}
	root := spans[0]
	if root.Name != "POST /v1/readings" || root.Kind != 2 || root.ParentSpanID != "" || root.Status.Code != 0 ||
		root.Flags != 0x100 ||
		len(root.TraceID) != 32 || len(root.SpanID) != 16 || root.took(t) != 10*time.Millisecond ||
		root.Start != "1800000000000000000" {
		t.Errorf("root is %+v", root)
	}
	want := map[string]string{"http.request.method": "POST", "http.route": "/v1/readings",
		"http.response.status_code": "200",
		"pulsegate.lane":            "fast", "pulsegate.readings": "3"}
	if got := root.attributes(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("attributes of root: got %v, want %v", got, want)
	}
	for i, want := range []struct {
		name       string
		took       time.Duration
		attributes map[string]string
	}{
		{"decode", 1e6, map[string]string{}},
		{"queue", 2e6, map[string]string{}},
		{"commit", 5e6, map[string]string{"pulsegate.commit.readings": "64", "pulsegate.commit.groups": "1"}},
	} {
		s := spans[i+1]
		if s.Name != want.name || s.took(t) != want.took || s.ParentSpanID != root.SpanID || s.TraceID != root.TraceID ||
			s.Kind != 1 ||
			fmt.Sprint(s.attributes()) != fmt.Sprint(want.attributes) {
			t.Errorf("phase %d: got %+v, want %+v below %s", i, s, want, root.SpanID)
		}
	}
	if !slices.Equal(c.service, []string{"pulsegate"}) || c.header.Get("Authorization") != "Bearer collector" {
		t.Errorf("services %q, headers %v", c.service, c.header)
	}
	if got, want := tr.Stats(), (tracing.Stats{Exported: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestDecisions checks which requests are recorded because they are sampled or slow.
func TestDecisions(t *testing.T) {
	c := newCollector(t)
	cfg := c.options()
	cfg.Slow = 250 * time.Millisecond
	tr := tracing.New(cfg)
	parent, ok := tracing.ParseTraceparent(traceparent)
	if !ok {
		t.Fatal("not read")
	}
	unsampled := parent
	unsampled.Flags = 0
	for _, tt := range []struct {
		name   string
		parent tracing.Parent
		took   time.Duration
		want   bool
	}{
		{"quick", tracing.Parent{}, 249 * time.Millisecond, false},
		{"slow", tracing.Parent{}, 250 * time.Millisecond, true},
		{"the caller samples", parent, 0, true},
		{"the caller does not", unsampled, 0, false},
		{"the caller does not, and it is slow", unsampled, time.Second, true},
	} {
		r := tr.Begin(tt.parent)
		if got := tr.Wants(r.Sampled, tt.took); got != tt.want {
			t.Errorf("%s: recorded: %v, want %v", tt.name, got, tt.want)
		}
	}
	finish(t, tr)

	for _, share := range []float64{0, 0.1, 0.5, 1} {
		cfg.Sample, cfg.Slow = share, 0
		tr := tracing.New(cfg)
		const n = 20_000
		sampled := 0
		for range n {
			if r := tr.Begin(tracing.Parent{}); r.Sampled {
				sampled++
			}
			if tr.Wants(false, math.MaxInt64) {
				t.Fatal("with Slow of 0, a request was recorded as slow")
			}
		}
		// Six standard deviations.
		if off := math.Abs(float64(sampled) - share*n); off > 6*math.Sqrt(n*share*(1-share)) {
			t.Errorf("share %v: %d of %d were sampled", share, sampled, n)
		}
		finish(t, tr)
	}
}

// The handler records requests in the trace that they belong to, without their paths.
func TestHandler(t *testing.T) {
	c := newCollector(t)
	cfg := c.options()
	cfg.Sample = 1
	tr := tracing.New(cfg)
	for _, tt := range []struct {
		name, method, route string
		header              http.Header
		next                func(w http.ResponseWriter, r *http.Request)
		wantName            string
		wantStatus          string
		wantCode            int
	}{
		{"no route", "GET", "", nil, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }, "GET", "404", 0},
		{"nothing written", "PUT", "/x/{y}", nil, func(http.ResponseWriter, *http.Request) {}, "PUT /x/{y}", "200", 0},
		{"written", "GET", "/x", nil, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "x") },
			"GET /x", "200", 0},
		{"informational", "GET", "/x", nil, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(503)
		}, "GET /x", "503", 2},
		{"panic", "GET", "/x", nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"GET /x", "", 2},
		{"odd method", "PATIENT", "/x", nil, func(http.ResponseWriter, *http.Request) {}, "_OTHER /x", "200", 0},
		{"parent", "POST", "/x", http.Header{"Traceparent": {traceparent}, "Tracestate": {`a="b`}},
			func(w http.ResponseWriter, r *http.Request) {
				tracing.Of(r).Readings = 7
				if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); !ok {
					t.Error("the ResponseWriter hides what it wraps")
				}
			}, "POST /x", "200", 0},
	} {
		before := len(c.got())
		h := new(metrics.Requests).Handler(tr.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = tt.route
			tt.next(w, r)
		})))
		r := httptest.NewRequest(tt.method, "/v1/devices/ppg-000123?hush", nil)
		r.Header = tt.header
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		if r.Pattern != tt.route {
			t.Errorf("%s: the caller sees the pattern %q, want %q", tt.name, r.Pattern, tt.route)
		}
		polltest.Until(t, tt.name+": the span is exported", func() bool { return len(c.got()) > before })
		s := c.got()[before]
		if s.Name != tt.wantName || s.attributes()["http.response.status_code"] != tt.wantStatus ||
			s.Status.Code != tt.wantCode || s.attributes()["pulsegate.lane"] != "full" {
			t.Errorf("%s: got %+v", tt.name, s)
		}
		if text := fmt.Sprintf("%+v", s); strings.Contains(text, "ppg") || strings.Contains(text, "hush") ||
			strings.Contains(text, "PATIENT") {
			t.Errorf("%s: the span contains the path or the method: %s", tt.name, text)
		}
		if tt.header != nil && (s.TraceID != traceID || s.ParentSpanID != parentID || s.TraceState != `a="b` ||
			s.Flags != 0x301 || s.attributes()["pulsegate.readings"] != "7") {
			t.Errorf("%s: got %+v", tt.name, s)
		}
	}
	finish(t, tr)
}

// The collector's response decides about retries and is counted.
func TestAnswers(t *testing.T) {
	status := func(codes ...int) http.HandlerFunc {
		n := 0
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(codes[min(n, len(codes)-1)])
			n++
		}
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for _, tt := range []struct {
		name      string
		answer    http.HandlerFunc
		want      tracing.Stats
		wantPosts int
		wantLog   string
	}{
		{"accepted", status(200), tracing.Stats{Exported: 2}, 1, ""},
		{"not JSON", body("thanks"), tracing.Stats{Exported: 2}, 1, ""},
		{"busy, then accepted", status(503, 200), tracing.Stats{Exported: 2}, 2, ""},
		{"rejected", status(400), tracing.Stats{Failed: 2}, 1, "400 Bad Request"},
		{"redirected", status(307), tracing.Stats{Failed: 2}, 1, "307 Temporary Redirect"},
		{"partly", body(`{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}`),
			tracing.Stats{Exported: 1, Failed: 1}, 1, ""},
		{"partly, as a number", body(`{"partialSuccess":{"rejectedSpans":9}}`), tracing.Stats{Failed: 2}, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			c.answer = tt.answer
			cfg := c.options()
			cfg.Sample, cfg.Every = 1, time.Hour
			cfg.Endpoint.User = url.UserPassword("user", "hush")
			var log bytes.Buffer
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			tr := tracing.New(cfg)
			tr.Record(request(tr, 0))
			tr.Record(request(tr, 0))
			finish(t, tr)
			if got := tr.Stats(); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if c.posts != tt.wantPosts {
				t.Errorf("%d exports, want %d", c.posts, tt.wantPosts)
			}
			if !strings.Contains(log.String(), tt.wantLog) || (log.Len() > 0) != (tt.wantLog != "") ||
				strings.Contains(log.String(), "hush") {
				t.Errorf("log %q, want %q", log.String(), tt.wantLog)
			}
		})
	}
}

// A collector that does not respond blocks nothing: requests are dropped when the queue
// is full, and Close returns in time.
//
// Seen to fail when Record waits for the queue, and when Close does not end the wait
// for the collector.
func TestCollectorStuck(t *testing.T) {
	c := newCollector(t)
	c.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cfg := c.options()
	cfg.Sample = 1
	tr := tracing.New(cfg)
	const n = 5000
	for range n {
		tr.Record(request(tr, 0))
	}
	dropped := tr.Stats().Dropped
	if dropped == 0 || dropped >= n {
		t.Errorf("%d of %d were dropped", dropped, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := tr.Close(ctx); err == nil {
		t.Error("Close returned nil, want an error")
	}
	if got := tr.Stats(); got.Exported != 0 || got.Failed+got.Dropped != n {
		t.Errorf("%+v of %d", got, n)
	}
	tr.Record(request(tr, 0)) // after Close: dropped without a panic
}

// The log has one line when the collector goes down, and one when it is back.
func TestCollectorGone(t *testing.T) {
	endpoint := &url.URL{Scheme: "http", Host: porttest.Addr(t), Path: "/v1/traces"}
	// The clock of the bubble stands still during an attempt, so that Close gives up
	// between two of them, however long they take.
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tr := tracing.New(tracing.Options{Endpoint: endpoint, Sample: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		tr.Record(request(tr, 0))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // less than four attempts take
		defer cancel()
		if err := tr.Close(ctx); err == nil {
			t.Error("Close returned nil, want an error")
		}
		if got := tr.Stats(); got != (tracing.Stats{Failed: 1}) {
			t.Errorf("got %+v, want 1 failed", got)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "connection refused") {
			t.Errorf("log %q, want one line about it", got)
		}
	})
}

// Any client can send a sampled traceparent: at most Forced such requests per second
// are recorded, and of the others the fraction Sample.
//
// Seen to fail when a parent alone decides.
func TestForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
		parent := tracing.ParentOf(http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})
		for _, tt := range []struct {
			forced int
			sample float64
			want   int // of 100 in each of two seconds
		}{{0, 0, 0}, {3, 0, 6}, {3, 1, 200}} {
			tr := tracing.New(tracing.Options{Endpoint: endpoint, Forced: tt.forced, Sample: tt.sample})
			got := 0
			for range 2 {
				for range 100 {
					if tr.Begin(parent).Sampled {
						got++
					}
				}
				time.Sleep(time.Second)
			}
			if got != tt.want {
				t.Errorf("%d forced, share %v: %d recorded, want %d", tt.forced, tt.sample, got, tt.want)
			}
			finish(t, tr)
		}
	})
}
