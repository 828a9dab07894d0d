package metrics_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// scrape returns what handler shows, as text and parsed.
func scrape(t *testing.T, handler http.Handler) (string, map[string]*dto.MetricFamily) {
	t.Helper()
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("scrape: got status %d: %s", rec.Code, rec.Body)
	}
	text := rec.Body.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("scrape: %v\n%s", err, text)
	}
	return text, families
}

// lines returns the series of text whose names start with prefix.
func lines(text, prefix string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func TestSources(t *testing.T) {
	text, _ := scrape(t, metrics.Handler(metrics.Sources{
		Version: "1.2.3",
		Ready:   func() bool { return true },
		Ingest: func() metrics.Ingest {
			return metrics.Ingest{
				Stored: 1, Duplicate: 2, Conflict: 3, Invalid: 4,
				Forbidden: 34, Unauthorized: 35, NoRight: 36, TooManyReadings: 37,
				Malformed: 5, TooLarge: 6, Timeout: 7, NoLength: 8, UnknownEncoding: 9,
				Overloaded: 10, Draining: 11, DiskLow: 12, StoreFailed: 13, OutcomeUnknown: 14,
				Queued: 15, BodyBytes: 16,
			}
		},
		Access: func() metrics.Access {
			return metrics.Access{
				NoCredentials: 38, Malformed: 39, Unknown: 40, Expired: 41, NoRight: 42, NotCovered: 43, BadCertificate: 44,
				Tokens: 45, TokensStale: true, CertificateEnd: time.Unix(46, 0),
			}
		},
		Queue: func() groupcommit.Stats {
			return groupcommit.Stats{Failed: 17, Calls: 18, Full: 19, QueuedItems: 20, QueuedCalls: 21}
		},
		Store: func() metrics.Store {
			return metrics.Store{
				Devices: 22, SizeBytes: 23, CompactionDebtBytes: 24, FreeBytes: 25, LogBytes: 26, Tables: 27,
				Active: []metrics.Active{{Within: "15m", Devices: 34}, {Within: "24h", Devices: 35}},
				Failed: true, Recovered: true, MinFreeBytes: 36, BackgroundErrors: 37, Damaged: 38, SlowOperations: 39,
				Syncs: 28, SyncTime: 29500 * time.Millisecond, WrittenBytes: 30, Lookups: 31, CacheHits: 32, CacheMisses: 33,
			}
		},
		Log:    func() metrics.Log { return metrics.Log{Lines: 34, Bytes: 35, Suppressed: 36, Dropped: 37} },
		Traces: func() metrics.Traces { return metrics.Traces{Exported: 54, Dropped: 55, Failed: 56} },
		Retention: func() metrics.Retention {
			return metrics.Retention{Readings: 57, Devices: 58, LastDone: time.UnixMilli(59_500), Failed: 60}
		},
	}))
	got := regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(lines(text, "pulsegate_"), `goversion="go"`)
	want := `pulsegate_auth_refused_total{reason="bad_certificate"} 44
pulsegate_auth_refused_total{reason="expired"} 41
pulsegate_auth_refused_total{reason="malformed"} 39
pulsegate_auth_refused_total{reason="no_credentials"} 38
pulsegate_auth_refused_total{reason="no_right"} 42
pulsegate_auth_refused_total{reason="not_covered"} 43
pulsegate_auth_refused_total{reason="unknown"} 40
pulsegate_build_info{goversion="go",version="1.2.3"} 1
pulsegate_certificate_expiry_timestamp_seconds 46
pulsegate_certificates_stale 0
pulsegate_commit_calls_total 18
pulsegate_commit_failures_total 17
pulsegate_commit_queue_calls 21
pulsegate_commit_queue_full_total 19
pulsegate_commit_queue_readings 20
pulsegate_log_bytes_total 35
pulsegate_log_lines_total 34
pulsegate_log_suppressed_lines_total{reason="blocked"} 37
pulsegate_log_suppressed_lines_total{reason="budget"} 36
pulsegate_queue_readings 15
pulsegate_readings_total{outcome="conflict"} 3
pulsegate_readings_total{outcome="duplicate"} 2
pulsegate_readings_total{outcome="forbidden"} 34
pulsegate_readings_total{outcome="invalid"} 4
pulsegate_readings_total{outcome="stored"} 1
pulsegate_ready 1
pulsegate_refused_requests_total{reason="disk_low"} 12
pulsegate_refused_requests_total{reason="draining"} 11
pulsegate_refused_requests_total{reason="malformed"} 5
pulsegate_refused_requests_total{reason="no_length"} 8
pulsegate_refused_requests_total{reason="no_right"} 36
pulsegate_refused_requests_total{reason="outcome_unknown"} 14
pulsegate_refused_requests_total{reason="overloaded"} 10
pulsegate_refused_requests_total{reason="store_failed"} 13
pulsegate_refused_requests_total{reason="timeout"} 7
pulsegate_refused_requests_total{reason="too_large"} 6
pulsegate_refused_requests_total{reason="too_many_readings"} 37
pulsegate_refused_requests_total{reason="unauthorized"} 35
pulsegate_refused_requests_total{reason="unknown_encoding"} 9
pulsegate_request_body_bytes 16
pulsegate_retention_failures_total 60
pulsegate_retention_last_run_timestamp_seconds 59.5
pulsegate_retention_removed_devices_total 58
pulsegate_retention_removed_readings_total 57
pulsegate_store_active_devices{within="15m"} 34
pulsegate_store_active_devices{within="24h"} 35
pulsegate_store_background_errors_total 37
pulsegate_store_cache_hits_total 32
pulsegate_store_cache_misses_total 33
pulsegate_store_compaction_debt_bytes 24
pulsegate_store_damage_total 38
pulsegate_store_devices 22
pulsegate_store_failed 1
pulsegate_store_free_bytes 25
pulsegate_store_log_bytes 26
pulsegate_store_lookups_total 31
pulsegate_store_min_free_bytes 36
pulsegate_store_recovered 1
pulsegate_store_size_bytes 23
pulsegate_store_slow_operations_total 39
pulsegate_store_sync_seconds_total 29.5
pulsegate_store_syncs_total 28
pulsegate_store_tables 27
pulsegate_store_written_bytes_total 30
pulsegate_tokens 45
pulsegate_tokens_stale 1
pulsegate_traced_requests_total{outcome="dropped"} 55
pulsegate_traced_requests_total{outcome="exported"} 54
pulsegate_traced_requests_total{outcome="failed"} 56
`
	if got != want {
		t.Errorf("scrape: got\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("scrape: %s is missing", name)
		}
	}
}

// TestIngestConverts is decided by the compiler: the fields are the same, in the
// same order.
func TestIngestConverts(t *testing.T) {
	got := metrics.Ingest(ingest.Counters{Stored: 3, Queued: 4})
	if got.Stored != 3 || got.Queued != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestStatusClasses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, "2xx"},
		{"body alone", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }, "2xx"},
		{"redirect", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(301) }, "3xx"},
		{"client error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(499) }, "4xx"},
		{"server error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "5xx"},
		{"no status of HTTP", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(700) }, "5xx"},
		{"hint first", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(204) }, "2xx"},
		{"switched", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, "1xx"},
		{"first status counts", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, "4xx"},
		{"status after body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a"); w.WriteHeader(500) }, "2xx"},
		{"panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "aborted"},
		{"panic after body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a"); panic("x") }, "aborted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests := metrics.NewRequests()
			requests.Route("/x")
			h := requests.Handler(matched("/x", tt.handler))
			func() {
				defer func() { recover() }()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
			}()
			_, families := scrape(t, metrics.Handler(metrics.Sources{Requests: requests}))
			for _, m := range families["pulsegate_http_requests_total"].Metric {
				want := 0.0
				if label(m, "code") == tt.want && label(m, "route") == "/x" {
					want = 1
				}
				if got := m.Counter.GetValue(); got != want {
					t.Errorf("route %s, class %s: got %v, want %v", label(m, "route"), label(m, "code"), got, want)
				}
			}
			if got := durations(families, "/x").GetSampleCount(); got != 1 {
				t.Errorf("durations: got %d, want 1", got)
			}
		})
	}
}

// Told is told of every request, once, when it is counted.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := metrics.NewRequests()
		requests.Route("/x")
		var told []metrics.Answered
		requests.Told = func(a metrics.Answered) { told = append(told, a) }
		var next http.HandlerFunc
		counted := requests.Handler(matched("/x", func(w http.ResponseWriter, r *http.Request) { next(w, r) }))
		for _, do := range []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(30 * time.Millisecond)
				w.WriteHeader(404)
				io.WriteString(w, "not")
				io.WriteString(w, " here")
			},
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		} {
			func() {
				defer func() { recover() }()
				next = do
				counted.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("PUT", "/x?secret", nil))
			}()
		}
		want := []metrics.Answered{
			{Method: "PUT", Route: "/x", Status: 404, BodyBytes: 8, Duration: 30 * time.Millisecond},
			{Method: "PUT", Route: "/x", Status: metrics.Aborted},
		}
		if !slices.Equal(told, want) {
			t.Errorf("got %+v, want %+v", told, want)
		}
	})
}

// What no route took, or one that is not counted, has a place of its own.
func TestUnmatched(t *testing.T) {
	for _, pattern := range []string{"", "/y"} {
		h := metrics.NewRequests()
		h.Route("/x")
		counted := h.Handler(matched(pattern, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }))
		counted.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/y", nil))
		_, families := scrape(t, metrics.Handler(metrics.Sources{Requests: h}))
		if got := durations(families, metrics.Unmatched).GetSampleCount(); got != 1 {
			t.Errorf("pattern %q: %d requests unmatched, want 1", pattern, got)
		}
	}
}

// matched is a router that takes every request under one pattern.
func matched(pattern string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = pattern
		h(w, r)
	})
}

// durations returns the histogram of a route.
func durations(families map[string]*dto.MetricFamily, route string) *dto.Histogram {
	for _, m := range families["pulsegate_http_request_duration_seconds"].Metric {
		if label(m, "route") == route {
			return m.Histogram
		}
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func TestRequestDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := metrics.NewRequests()
		requests.Route("/slow")
		h := requests.Handler(matched("/slow", func(http.ResponseWriter, *http.Request) {
			time.Sleep(30 * time.Millisecond)
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/slow", nil))
		_, families := scrape(t, metrics.Handler(metrics.Sources{Requests: requests}))
		hist := durations(families, "/slow")
		if got := hist.GetSampleSum(); math.Abs(got-0.03) > 1e-12 {
			t.Errorf("sum: got %v s, want 0.03", got)
		}
		for _, b := range hist.Bucket {
			want := uint64(0)
			if b.GetUpperBound() >= 0.03 {
				want = 1
			}
			if got := b.GetCumulativeCount(); got != want {
				t.Errorf("bucket up to %v s: got %d, want %d", b.GetUpperBound(), got, want)
			}
		}
	})
}

func TestRouteTwice(t *testing.T) {
	requests := metrics.NewRequests()
	requests.Route("GET /a")
	defer func() {
		if recover() == nil {
			t.Error("a second Route of one pattern: got no panic")
		}
	}()
	requests.Route("GET /a")
}

// TestWriterLetsThrough proves that the handler still reaches net/http.
func TestWriterLetsThrough(t *testing.T) {
	requests := metrics.NewRequests()
	var problems []string
	requests.Route("/")
	h := requests.Handler(matched("/", func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			problems = append(problems, err.Error())
		}
	}))
	srv := httptest.NewServer(h)
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(problems) > 0 {
		t.Error(problems)
	}
}

type appender struct{ err error }

func (a appender) Append([]*storage.Entry) error {
	time.Sleep(3 * time.Millisecond)
	return a.err
}

func TestCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		commits := metrics.NewCommits()
		failure := errors.New("disk")
		if err := commits.Appender(appender{}).Append(make([]*storage.Entry, 3)); err != nil {
			t.Fatal(err)
		}
		if err := commits.Appender(appender{failure}).Append(make([]*storage.Entry, 5000)); err != failure {
			t.Fatalf("got error %v, want %v", err, failure)
		}
		_, families := scrape(t, metrics.Handler(metrics.Sources{Commits: commits}))
		sizes := families["pulsegate_commit_group_readings"].Metric[0].Histogram
		if sizes.GetSampleCount() != 2 || sizes.GetSampleSum() != 5003 {
			t.Errorf("group sizes: got %v", sizes)
		}
		for _, b := range sizes.Bucket {
			want := uint64(0)
			switch {
			case math.IsInf(b.GetUpperBound(), 1):
				want = 2
			case b.GetUpperBound() >= 4:
				want = 1
			}
			if got := b.GetCumulativeCount(); got != want {
				t.Errorf("groups of up to %v: got %d, want %d", b.GetUpperBound(), got, want)
			}
		}
		times := families["pulsegate_commit_duration_seconds"].Metric[0].Histogram
		if got := times.GetSampleSum(); math.Abs(got-0.006) > 1e-12 {
			t.Errorf("sum of durations: got %v s, want 0.006", got)
		}
	})
}

// TestHistogram scrapes while others observe: a count is always the sum of its
// buckets, and nothing is lost in the end.
func TestHistogram(t *testing.T) {
	requests := metrics.NewRequests()
	route := requests.Route("GET /")
	handler := metrics.Handler(metrics.Sources{Requests: requests})
	const observers, each = 4, 5000
	var observing sync.WaitGroup
	for i := range observers {
		observing.Go(func() {
			for j := range each {
				route.Observe(200, time.Duration(i+j)*time.Microsecond)
			}
		})
	}
	ended := make(chan struct{})
	go func() { observing.Wait(); close(ended) }()
	for last := false; ; {
		_, families := scrape(t, handler)
		hist := durations(families, "GET /")
		buckets := hist.Bucket
		if !slices.IsSortedFunc(buckets, func(a, b *dto.Bucket) int {
			return int(a.GetCumulativeCount()) - int(b.GetCumulativeCount())
		}) {
			t.Fatalf("buckets are not cumulative: %v", buckets)
		}
		if got, want := hist.GetSampleCount(), buckets[len(buckets)-1].GetCumulativeCount(); got != want {
			t.Fatalf("count is %d and the sum of the buckets %d", got, want)
		}
		if last {
			if got := hist.GetSampleCount(); got != observers*each {
				t.Errorf("in the end: got %d, want %d", got, observers*each)
			}
			return
		}
		select {
		case <-ended:
			last = true
		default:
		}
	}
}

// TestDocumented compares the metrics with docs/metrics.md, both ways.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(pulsegate_[a-z_]+)").FindAllSubmatch(doc, -1) {
		documented[string(m[1])] = true
	}
	requests := metrics.NewRequests()
	requests.Route("GET /")
	_, families := scrape(t, metrics.Handler(metrics.Sources{
		Requests: requests,
		Commits:  metrics.NewCommits(),
		Ingest:   func() metrics.Ingest { return metrics.Ingest{} },
		Queue:    func() groupcommit.Stats { return groupcommit.Stats{} },
		Store:    func() metrics.Store { return metrics.Store{Active: []metrics.Active{{Within: "1h"}}} },
		Access:   func() metrics.Access { return metrics.Access{} },
		Log:      func() metrics.Log { return metrics.Log{} },

		Retention: func() metrics.Retention { return metrics.Retention{} },

		Traces: func() metrics.Traces { return metrics.Traces{} },
		Ready:  func() bool { return false },
	}))
	for name := range families {
		if strings.HasPrefix(name, "pulsegate_") && !documented[name] {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/metrics.md names %s, which does not exist", name)
	}
}

// TestLint holds Prometheus's own conventions for names, units and help texts.
func TestLint(t *testing.T) {
	requests := metrics.NewRequests()
	requests.Route("GET /")
	text, _ := scrape(t, metrics.Handler(metrics.Sources{
		Requests: requests,
		Commits:  metrics.NewCommits(),
		Ingest:   func() metrics.Ingest { return metrics.Ingest{} },
		Queue:    func() groupcommit.Stats { return groupcommit.Stats{} },
		Store:    func() metrics.Store { return metrics.Store{Active: []metrics.Active{{Within: "1h"}}} },
		Access:   func() metrics.Access { return metrics.Access{} },
		Log:      func() metrics.Log { return metrics.Log{} },

		Retention: func() metrics.Retention { return metrics.Retention{} },

		Traces: func() metrics.Traces { return metrics.Traces{} },
		Ready:  func() bool { return false },
	}))
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "pulsegate_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestProfileReads proves that pulsegate profile finds what it needs.
func TestProfileReads(t *testing.T) {
	requests := metrics.NewRequests()
	route := requests.Route("POST /v1/readings")
	route.Observe(200, time.Millisecond)
	route.Observe(503, time.Millisecond)
	text, _ := scrape(t, metrics.Handler(metrics.Sources{
		Version:  "1.2.3",
		Requests: requests,
		Ingest:   func() metrics.Ingest { return metrics.Ingest{Stored: 7, Duplicate: 2} },
	}))
	got, err := profile.ReadCounters(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "1.2.3" || got.GoVersion != runtime.Version() {
		t.Errorf("got versions %q and %q", got.Version, got.GoVersion)
	}
	for name, want := range map[string]uint64{"POST /v1/readings 2xx": 1, "POST /v1/readings 5xx": 1, "POST /v1/readings 4xx": 0} {
		if n, ok := got.Requests[name]; !ok || n != want {
			t.Errorf("%s: got %d, %v, want %d", name, n, ok, want)
		}
	}
	if got.Readings["stored"] != 7 || got.Readings["duplicate"] != 2 {
		t.Errorf("readings: got %v", got.Readings)
	}
	if got.Bytes <= 0 || got.Objects <= 0 {
		t.Errorf("got %v bytes in %v objects", got.Bytes, got.Objects)
	}
	if runtime.GOOS == "linux" && (got.CPU <= 0 || got.Started <= 0) {
		t.Errorf("got %v s of CPU, started at %v", got.CPU, got.Started)
	}
}

// TestBusyScrapes holds the bound on scrapes under way.
func TestBusyScrapes(t *testing.T) {
	hold := make(chan struct{})
	entered := make(chan struct{}, 16)
	handler := metrics.Handler(metrics.Sources{Store: func() metrics.Store {
		entered <- struct{}{}
		<-hold
		return metrics.Store{}
	}})
	var scrapes sync.WaitGroup
	for range 4 {
		scrapes.Go(func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
		})
	}
	for range 4 {
		<-entered
	}
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusServiceUnavailable {
		t.Errorf("a fifth scrape: got status %d, want 503", rec.Code)
	}
	close(hold)
	scrapes.Wait()
}

func BenchmarkRoute(b *testing.B) {
	requests := metrics.NewRequests()
	requests.Route("/")
	w := &nopWriter{header: http.Header{}}
	r := httptest.NewRequest("GET", "/", nil)
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	for _, bb := range []struct {
		name    string
		handler http.Handler
	}{{"counted=no", next}, {"counted=yes", requests.Handler(matched("/", next))}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bb.handler.ServeHTTP(w, r)
			}
			if w.status != 204 {
				b.Fatal(fmt.Sprint("got status ", w.status))
			}
		})
	}
}

type nopWriter struct {
	header http.Header
	status int
}

func (w *nopWriter) Header() http.Header         { return w.header }
func (w *nopWriter) WriteHeader(status int)      { w.status = status }
func (w *nopWriter) Write(p []byte) (int, error) { return len(p), nil }
