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
// and their durations by route pattern.
type Requests struct {
	mu     sync.Mutex
	routes []*Route // guarded by mu; only ever appended to

	// Told is told of every request that [Requests.Handler] has counted. It is set
	// before, is called by many goroutines and must not block. Nil: nobody is told.
	Told func(Answered)
}

// Answered is one request that was answered.
type Answered struct {
	Method    string        // as it was sent: any text, where no route took it
	Route     string        // a pattern, or Unmatched
	Status    int           // of HTTP, or Aborted
	BodyBytes int64         // of the answer, before net/http's chunks
	Duration  time.Duration // as in Handler
}

// NewRequests returns Requests without routes.
func NewRequests() *Requests { return &Requests{} }

// A Route counts the requests that one pattern took. Its methods may be called
// from many goroutines.
type Route struct {
	pattern  string
	classes  [numClasses]atomic.Uint64
	duration Histogram
}

// A class is a status class, or what happened in place of a status.
type class uint8

const (
	class1xx class = iota
	class2xx
	class3xx
	class4xx
	class5xx
	classAborted // the handler panicked: the connection was cut
	numClasses
)

var classNames = [numClasses]string{"1xx", "2xx", "3xx", "4xx", "5xx", "aborted"}

// Aborted stands for the status of a request whose connection was cut in place of
// an answer. No HTTP status is negative.
const Aborted = -1

// classOf returns the class of a status. Numbers beyond 599 are not of HTTP
// (RFC 9110, section 15); they count as failures of the server, which they are.
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

// Route returns the counters of a pattern such as "/v1/readings". It panics
// if the pattern has a Route already: the caller is to keep it, so that counting
// needs no look-up.
func (r *Requests) Route(pattern string) *Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.routes {
		if other.pattern == pattern {
			panic(fmt.Sprintf("metrics: route %q is counted already", pattern))
		}
	}
	rt := &Route{pattern: pattern, duration: NewHistogram(requestBounds, 1e9)}
	r.routes = append(r.routes, rt)
	return rt
}

// requestBounds are those of the durations of requests: from below one commit on
// a fast disk to the longest time that a client waits.
var requestBounds = DurationBounds(100*time.Microsecond, 10*time.Second)

// Observe counts one request that was answered with the given HTTP status after
// d. It does not allocate.
func (rt *Route) Observe(status int, d time.Duration) {
	rt.classes[classOf(status)].Add(1)
	rt.duration.Observe(d.Nanoseconds())
}

// Unmatched is the pattern of requests that no route took.
const Unmatched = "unmatched"

// Handler returns a handler that counts what next answers, under the pattern
// that a router in next has left in the request's Pattern. Patterns without a
// Route are counted as [Unmatched]. All Routes must have been made before.
//
// The duration is that of next alone, without the reading of the header before
// it and the flushing of net/http's buffer behind it. The ResponseWriter that
// next is given must not be used after it has returned.
func (r *Requests) Handler(next http.Handler) http.Handler {
	h := &counting{next: next, unmatched: r.Route(Unmatched), byPattern: map[string]*Route{}, told: r.Told}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rt := range r.routes {
		h.byPattern[rt.pattern] = rt
	}
	return h
}

// A counting handler counts by pattern. Its map is never changed.
type counting struct {
	next      http.Handler
	byPattern map[string]*Route
	unmatched *Route
	told      func(Answered)
	writers   sync.Pool // of *statusWriter
}

func (h *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	sw, _ := h.writers.Get().(*statusWriter)
	if sw == nil {
		sw = new(statusWriter)
	}
	sw.w, sw.status = w, Aborted
	returned := false
	// Deferred for the sake of panics, which net/http answers by cutting the
	// connection.
	defer func() {
		status := sw.status
		switch {
		case !returned:
			status = Aborted
		case status == Aborted:
			status = http.StatusOK // what net/http sends for a handler that wrote nothing
		}
		rt := h.byPattern[r.Pattern]
		if rt == nil {
			rt = h.unmatched
		}
		took := time.Since(start)
		rt.Observe(status, took)
		if h.told != nil {
			h.told(Answered{r.Method, rt.pattern, status, sw.bodyBytes, took})
		}
		*sw = statusWriter{}
		h.writers.Put(sw)
	}()
	h.next.ServeHTTP(sw, r)
	returned = true
}

// A statusWriter remembers the status that goes through it.
type statusWriter struct {
	w         http.ResponseWriter
	status    int   // Aborted: none yet
	bodyBytes int64 // that were written
}

func (s *statusWriter) Header() http.Header { return s.w.Header() }

func (s *statusWriter) WriteHeader(status int) {
	// An informational answer is not the answer, but for 101 (RFC 9110, 15.2).
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

// Unwrap lets http.ResponseController through.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.w }

var (
	requestsDesc = prometheus.NewDesc("pulsegate_http_requests_total",
		"Requests of the public listener, by route pattern and status class. The class aborted means that the connection was cut in place of an answer.",
		[]string{"route", "code"}, nil)
	requestDurationDesc = prometheus.NewDesc("pulsegate_http_request_duration_seconds",
		"Time from the end of a request's header to the end of its handler, the waiting for a commit included, by route pattern.",
		[]string{"route"}, nil)
)

// Describe implements prometheus.Collector.
func (r *Requests) Describe(ch chan<- *prometheus.Desc) {
	ch <- requestsDesc
	ch <- requestDurationDesc
}

// Collect implements prometheus.Collector. Classes that never occurred are shown
// as 0, but for 1xx and aborted: a rate over a series that springs into being is
// lost otherwise.
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
			ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n), rt.pattern, classNames[c])
		}
		ch <- rt.duration.Metric(requestDurationDesc, rt.pattern)
	}
}
