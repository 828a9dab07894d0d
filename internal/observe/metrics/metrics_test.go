package metrics_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/profile"
)

// scrape returns the metrics that handler exports, as text and parsed.
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

// ready reports that the server is ready.
func ready() bool { return true }

// A gauges collector exports one gauge, computed at each scrape.
type gauges func() float64

func (g gauges) Describe(ch chan<- *prometheus.Desc) { ch <- gaugeDesc }

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(gaugeDesc, prometheus.GaugeValue, g())
}

var gaugeDesc = prometheus.NewDesc("pulsegate_test", "A value.", nil, nil)

// TestHandler checks that Handler exports its collectors, a log, the version and the
// process.
func TestHandler(t *testing.T) {
	log := logbudget.New(io.Discard, logbudget.Options{})
	log.Print("a line")
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, isReady := range []bool{true, false} {
		text, _ := scrape(t, metrics.Handler("1.2.3", func() bool { return isReady }, metrics.Log(log),
			gauges(func() float64 { return 7 })))
		got := regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(lines(text, "pulsegate_"), `goversion="go"`)
		want := fmt.Sprintf(`pulsegate_build_info{goversion="go",version="1.2.3"} 1
pulsegate_log_bytes_total 7
pulsegate_log_lines_total 1
pulsegate_log_suppressed_lines_total{reason="blocked"} 0
pulsegate_log_suppressed_lines_total{reason="budget"} 0
pulsegate_ready %d
pulsegate_test 7
`, map[bool]int{true: 1}[isReady])
		if got != want {
			t.Errorf("scrape: got\n%s\nwant\n%s", got, want)
		}
		for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"} {
			if !strings.Contains(text, "\n"+name+" ") {
				t.Errorf("scrape: %s is missing", name)
			}
		}
	}
}

// OnAnswered is called once for every request, when it is counted.
func TestOnAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := new(metrics.Requests)
		requests.Route("/x")
		var answered []metrics.Answered
		requests.OnAnswered = func(a metrics.Answered) { answered = append(answered, a) }
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
		if !slices.Equal(answered, want) {
			t.Errorf("got %+v, want %+v", answered, want)
		}
		_, families := scrape(t, metrics.Handler("", ready, requests))
		hist := durations(families, "/x")
		if got := hist.GetSampleSum(); math.Abs(got-0.03) > 1e-12 {
			t.Errorf("sum: got %v s, want 0.03", got)
		}
		for _, b := range hist.Bucket {
			want := uint64(1) // the second took no time
			if b.GetUpperBound() >= 0.03 {
				want = 2
			}
			if got := b.GetCumulativeCount(); got != want {
				t.Errorf("bucket up to %v s: got %d, want %d", b.GetUpperBound(), got, want)
			}
		}
	})
}

// matched returns a router that sets the same pattern for every request.
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

// TestHistogram scrapes during concurrent observations: a count is always the sum of
// its buckets, and no observation is lost.
func TestHistogram(t *testing.T) {
	requests := new(metrics.Requests)
	route := requests.Route("GET /")
	handler := metrics.Handler("", ready, requests)
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
			t.Fatalf("the count is %d, but the sum of the buckets is %d", got, want)
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

// A quantile is one of what was counted between two snapshots, interpolated within a bucket.
func TestQuantile(t *testing.T) {
	counted := func(n ...uint64) metrics.Series {
		s := metrics.Series{Count: &n[len(n)-1]}
		for i, bound := range []float64{1, 2, 4} {
			s.Buckets = append(s.Buckets, [2]float64{bound, float64(n[i])})
		}
		return s
	}
	for _, tt := range []struct {
		name        string
		now, before metrics.Series
		q, want     float64
	}{
		{"in the first bucket", counted(4, 4, 4, 4), metrics.Series{}, 0.5, 0.5},
		{"within a bucket", counted(0, 0, 4, 4), metrics.Series{}, 0.25, 2.5},
		{"since a snapshot", counted(10, 14, 14, 14), counted(10, 10, 10, 10), 0.5, 1.5},
		{"above all bounds", counted(1, 1, 1, 4), metrics.Series{}, 0.99, 4},
		{"nothing new", counted(1, 1, 1, 1), counted(1, 1, 1, 1), 0.5, math.NaN()},
		{"no metric", metrics.Series{}, metrics.Series{}, 0.5, math.NaN()},
	} {
		if got := tt.now.Quantile(tt.before, tt.q); got != tt.want && !(math.IsNaN(got) && math.IsNaN(tt.want)) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestProfileReads checks that pulsegate profile finds the metrics that it needs.
func TestProfileReads(t *testing.T) {
	requests := new(metrics.Requests)
	route := requests.Route("POST /v1/readings")
	route.Observe(200, time.Millisecond)
	route.Observe(503, time.Millisecond)
	readings := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pulsegate_readings_total"}, []string{"outcome"})
	readings.WithLabelValues("stored").Add(7)
	readings.WithLabelValues("duplicate").Add(2)
	text, _ := scrape(t, metrics.Handler("1.2.3", ready, requests, readings))
	got, err := profile.ReadCounters(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "1.2.3" || got.GoVersion != runtime.Version() {
		t.Errorf("got versions %q and %q", got.Version, got.GoVersion)
	}
	for name, want := range map[string]uint64{"POST /v1/readings 2xx": 1, "POST /v1/readings 5xx": 1,
		"POST /v1/readings 4xx": 0} {
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
	if runtime.GOOS == "linux" && got.Started <= 0 { // this process may have used less CPU time than is counted
		t.Errorf("started at %v", got.Started)
	}
}

// A page that is longer than net/http's buffer has its length, so that clients of HTTP/1.0 notice when it is cut off.
func TestPageLength(t *testing.T) {
	srv := httptest.NewServer(metrics.Handler("", ready))
	defer srv.Close()
	for _, coding := range []string{"identity", "gzip"} {
		req, err := http.NewRequest("GET", srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", coding)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.ContentLength != int64(len(page)) || coding == "identity" && len(page) < 2048 {
			t.Errorf("%s: length %d of %d bytes, %v", coding, resp.ContentLength, len(page), err)
		}
	}
}

// TestBusyScrapes checks the bound on concurrent scrapes.
func TestBusyScrapes(t *testing.T) {
	hold := make(chan struct{})
	entered := make(chan struct{}, 16)
	handler := metrics.Handler("", ready, gauges(func() float64 {
		entered <- struct{}{}
		<-hold
		return 0
	}))
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

type nopWriter struct {
	header http.Header
	status int
}

func (w *nopWriter) Header() http.Header         { return w.header }
func (w *nopWriter) WriteHeader(status int)      { w.status = status }
func (w *nopWriter) Write(p []byte) (int, error) { return len(p), nil }
