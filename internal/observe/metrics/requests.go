package metrics

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests count the requests of one listener by route pattern and status class,
// and their durations by route pattern. The zero Requests is without routes.
type Requests struct {
	mu     sync.Mutex
	routes []*Route // guarded by mu; only ever appended to
	lanes  [numLanes][numTLSVersions]atomic.Uint64

	// OnAnswered, if not nil, is called for every request that [Requests.Handler] has
	// counted. Set it before calling Handler. It is called concurrently and must not
	// block.
	OnAnswered func(Answered)
}

// Answered describes a completed request.
type Answered struct {
	Method    string        // as sent by the client: any text if no route matched
	Route     string        // a pattern, or Unmatched
	Status    int           // HTTP status, or Aborted
	BodyBytes int64         // of the response body, without chunked encoding
	Duration  time.Duration // see Handler
}

// KnownMethod returns a method if HTTP defines it, and other if not: then it is arbitrary text from the client.
func KnownMethod(method, other string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return other
}

// A Route counts the requests that matched one pattern. It is safe for concurrent use.
type Route struct {
	pattern  string
	classes  [numClasses]atomic.Uint64
	duration Histogram
}

// A class is a status class, or the lack of a status.
type class uint8

const (
	class1xx class = iota
	class2xx
	class3xx
	class4xx
	class5xx
	classAborted // the handler panicked: the connection was closed
	numClasses
)

var classNames = [numClasses]string{"1xx", "2xx", "3xx", "4xx", "5xx", "aborted"}

// Aborted replaces the status of a request whose connection was closed without a
// response. No HTTP status is negative.
const Aborted = -1

// classOf returns the class of a status. Numbers above 599 are not HTTP statuses (RFC
// 9110, section 15) and count as server errors.
func classOf(status int) class {
	switch {
	case status < 0:
		return classAborted
	case status >= 100 && status < 500:
		return class(status/100 - 1)
	default:
		return class5xx
	}
}

// Route creates the counters of a pattern such as "/v1/readings". The caller keeps
// them, so that counting needs no look-up. Route panics if the pattern already has a
// Route.
func (r *Requests) Route(pattern string) *Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.routes {
		if other.pattern == pattern {
			panic(fmt.Sprintf("metrics: route %q already exists", pattern))
		}
	}
	rt := &Route{pattern: pattern, duration: NewHistogram(requestBounds, 1e9)}
	r.routes = append(r.routes, rt)
	return rt
}

// requestBounds are the buckets of request durations: from less than one commit on a
// fast disk to the longest time that a client waits.
var requestBounds = DurationBounds(100*time.Microsecond, 10*time.Second)

// Observe counts one request with the given HTTP status and duration. It does not
// allocate.
func (rt *Route) Observe(status int, d time.Duration) {
	rt.classes[classOf(status)].Add(1)
	rt.duration.Observe(d.Nanoseconds())
}

// Unmatched is the pattern of requests that matched no route.
const Unmatched = "unmatched"

// Handler returns a handler that counts the requests to next by the pattern that a
// router in next stored in the request's Pattern. Patterns without a Route are counted
// as [Unmatched]. Create all Routes before calling Handler.
//
// The duration is that of next alone: it excludes reading the header before it and
// flushing net/http's buffer after it. next must not use its ResponseWriter after it
// has returned.
func (r *Requests) Handler(next http.Handler) http.Handler {
	h := &counting{next: next, lane: &r.lanes[fullLane], unmatched: r.Route(Unmatched), byPattern: map[string]*Route{},
		onAnswered: r.OnAnswered}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rt := range r.routes {
		h.byPattern[rt.pattern] = rt
	}
	return h
}

// A counting handler counts requests by pattern. Its map is never modified.
type counting struct {
	next       http.Handler
	lane       *[numTLSVersions]atomic.Uint64
	byPattern  map[string]*Route
	unmatched  *Route
	onAnswered func(Answered)
	writers    sync.Pool // of *statusWriter
}

func (h *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	sw, _ := h.writers.Get().(*statusWriter)
	if sw == nil {
		sw = new(statusWriter)
	}
	sw.w, sw.status = w, Aborted
	returned := false
	// Deferred because of panics, on which net/http closes the connection.
	defer func() {
		status := Aborted
		if returned {
			status = Status(sw)
		}
		rt := h.byPattern[r.Pattern]
		if rt == nil {
			rt = h.unmatched
		}
		version := uint16(0)
		if r.TLS != nil {
			version = r.TLS.Version
		}
		h.lane[tlsVersion(version)].Add(1)
		took := time.Since(start)
		rt.Observe(status, took)
		if h.onAnswered != nil {
			h.onAnswered(Answered{r.Method, rt.pattern, status, sw.bodyBytes, took})
		}
		*sw = statusWriter{}
		h.writers.Put(sw)
	}()
	h.next.ServeHTTP(sw, r)
	returned = true
}

// A statusWriter records the status written through it.
type statusWriter struct {
	w         http.ResponseWriter
	status    int   // Aborted: none yet
	bodyBytes int64 // bytes written
}

// Status returns the status of the response to a request that a handler of [Requests]
// counts, when the handler within it has returned. w is the ResponseWriter that it got.
func Status(w http.ResponseWriter) int {
	if sw := w.(*statusWriter); sw.status != Aborted {
		return sw.status
	}
	return http.StatusOK // net/http sends 200 if the handler wrote nothing
}

func (s *statusWriter) Header() http.Header { return s.w.Header() }

func (s *statusWriter) WriteHeader(status int) {
	// An informational response is not final, except 101 (RFC 9110, 15.2).
	if s.status == Aborted && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.status = status
	}
	s.w.WriteHeader(status)
}

func (s *statusWriter) Write(p []byte) (int, error) {
	if s.status == Aborted {
		s.status = http.StatusOK
	}
	n, err := s.w.Write(p)
	s.bodyBytes += int64(n)
	return n, err
}

// Unwrap supports http.ResponseController.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.w }

var requestDurationDesc = prometheus.NewDesc("pulsegate_http_request_duration_seconds",
	"Time from the end of a request's header to the end of its handler, including the wait for a commit, by "+
		"route pattern.",
	[]string{"route"}, nil)

// Describe implements prometheus.Collector.
func (r *Requests) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements prometheus.Collector. It exports 0 for classes that have not
// occurred, except 1xx and aborted: a rate would miss the first increase of a series
// that appears late.
func (r *Requests) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	routes := r.routes
	r.mu.Unlock()
	for _, rt := range routes {
		for c := range numClasses {
			n := rt.classes[c].Load()
			if n == 0 && (c == class1xx || c == classAborted) {
				continue
			}
			Sink(ch).Counter("pulsegate_http_requests_total",
				"Requests of the public listener, by route pattern and status class. The class aborted means that the connection "+
					"was closed without a response.",
				float64(n), "route", rt.pattern, "code", classNames[c])
		}
		ch <- rt.duration.Metric(requestDurationDesc, rt.pattern)
	}
	r.collectLanes(ch)
}
