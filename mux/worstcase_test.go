package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// nothing is a handler that does nothing.
var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// A worstCase is a table of about n routes and a request that could be slow to
// match.
type worstCase struct {
	name string
	n    int // for the benchmark

	build func(n int) (*mux.Router, *http.Request)

	// steps returns the maximum number of steps of a search among n routes.
	steps func(n int) int
}

func request(target string) *http.Request {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	return &http.Request{Method: "GET", URL: &url.URL{Path: u.Path}, Host: u.Host, Header: http.Header{}}
}

func constant(steps int) func(int) int { return func(int) int { return steps } }

var worstCases = []worstCase{
	// All routes match the path, each in a list of its own, and none matches
	// the header.
	{"all mixes of literals and variables", 4096, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		levels := log2(n)
		for i := range n {
			path := ""
			for bit := range levels {
				path += [...]string{"/a", fmt.Sprintf("/{v%d}", bit)}[i>>bit&1]
			}
			r.Handle(path, nothing).Headers("X-None", "1")
		}
		return r, request(strings.Repeat("/a", levels))
	}, func(n int) int { return n * (6 + 2*log2(n)) }},
	{"variables followed by a number", 10_000, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.Handle(fmt.Sprintf("/p{id:[0-9]+}-%d", i), nothing)
		}
		return r, request(fmt.Sprintf("/p12-%d", n-1))
	}, constant(12)},
	{"variables preceded by a number", 10_000, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.Handle(fmt.Sprintf("/p%d-{id}", i), nothing)
		}
		return r, request(fmt.Sprintf("/p%d-x", n-1))
	}, constant(20)},
	{"prefixes", 10_000, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.PathPrefix(fmt.Sprintf("/p%d-", i)).Handler(nothing)
		}
		return r, request(fmt.Sprintf("/p%d-/x", n-1))
	}, constant(12)},
	{"hosts", 1000, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.Host(fmt.Sprintf("h%d.example.com", i)).Subrouter().Handle("/{id}", nothing)
		}
		return r, request(fmt.Sprintf("http://h%d.example.com/1", n-1))
	}, constant(12)},
	{"siblings", 10_000, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.Handle(fmt.Sprintf("/s%d/{id}", i), nothing)
		}
		return r, request(fmt.Sprintf("/s%d/1", n-1))
	}, constant(8)},
	// All candidates are in one list.
	{"one template, other headers", 1000, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.Handle("/{id}", nothing).Headers("X-None", fmt.Sprint(i))
		}
		return r, request("/1")
	}, func(n int) int { return 3*n + 8 }},
	// Every route needs another length of the segment's beginning.
	{"prefixes of all lengths", 200, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.Handle("/"+strings.Repeat("a", i+1)+"{x:[0-9]+}", nothing)
		}
		return r, request("/" + strings.Repeat("a", 2*n))
	}, func(n int) int { return n * (6 + log2(n)) }},
	// A MatcherFunc that changes the path makes the index look up the
	// candidates again.
	{"rewriting matchers", 200, func(n int) (*mux.Router, *http.Request) {
		r := mux.NewRouter()
		for i := range n {
			r.MatcherFunc(func(req *http.Request, _ *mux.RouteMatch) bool { req.URL.Path = fmt.Sprint("/", i); return false })
			r.Handle(fmt.Sprintf("/x%d/{id}", i), nothing)
		}
		return r, request("/1")
	}, func(n int) int { return n*n + 8*n }},
}

func log2(n int) (log int) {
	for ; n > 1; n /= 2 {
		log++
	}
	return log
}

// TestStepsOfIndex counts the steps of a search, in tables of several sizes.
func TestStepsOfIndex(t *testing.T) {
	for _, c := range worstCases {
		for _, n := range []int{16, 64, 256, 1024} {
			r, req := c.build(n)
			if got, most := mux.Steps(r, req), c.steps(n); got > most {
				t.Errorf("%s: %d steps with %d routes, want at most %d", c.name, got, n, most)
			}
		}
	}
}

func BenchmarkWorstCase(b *testing.B) {
	for _, c := range worstCases {
		b.Run(fmt.Sprintf("case=%s/routes=%d", strings.ReplaceAll(c.name, " ", "-"), c.n), func(b *testing.B) {
			r, req := c.build(c.n)
			w := httptest.NewRecorder()
			r.NotFoundHandler = nothing
			before := *req.URL
			b.ReportAllocs()
			for b.Loop() {
				*req.URL = before
				fresh := *req
				r.ServeHTTP(w, &fresh)
			}
		})
	}
}

// TestCompileOnce counts how often routes are compiled. The count must depend
// on the routes added, not on the requests.
func TestCompileOnce(t *testing.T) {
	const routes = 50
	r := mux.NewRouter()
	above := r.PathPrefix("/s")
	sub := above.Subrouter()
	for i := range routes {
		sub.Handle(fmt.Sprintf("/r%d/{x}", i), nothing)
		r.Handle(fmt.Sprintf("/r%d", i), nothing)
	}
	req := httptest.NewRequest("GET", "/s/r7/1", nil)
	ask := func() {
		t.Helper()
		copied := *r // without a lock, vet permits the copy
		for name, ok := range map[string]bool{
			"Route.Match":      above.Match(req, &mux.RouteMatch{}),
			"Router.Match":     r.Match(req, &mux.RouteMatch{}),
			"a copy":           copied.Match(req, &mux.RouteMatch{}),
			"the subrouter":    sub.Match(req, &mux.RouteMatch{}),
			"serving":          get(r, "GET", "/s/r7/1").Code == 200,
			"serving the copy": get(&copied, "GET", "/r7").Code == 200,
		} {
			if !ok {
				t.Errorf("%s: no match", name)
			}
		}
	}
	grows := func(what string, by int, f func()) {
		t.Helper()
		before := mux.CompiledRoutes(r)
		f()
		if got := mux.CompiledRoutes(r) - before; got != by {
			t.Errorf("%s: %d routes were compiled, want %d", what, got, by)
		}
	}
	const all = 2*routes + 1
	grows("first requests", all, ask)
	grows("more requests", 0, func() {
		for range 5 {
			ask()
		}
	})
	copied := *r
	grows("a route added to a copy", all+1, func() {
		copied.Handle("/copy", nothing)
		get(&copied, "GET", "/copy")
	})
	grows("copy and original, alternately", all, func() {
		for range 5 {
			ask()
			if get(&copied, "GET", "/copy").Code != 200 || get(r, "GET", "/copy").Code != 404 {
				t.Error("the copy and the original share a route")
			}
		}
	})
	grows("a change of a route", all, func() { above.Methods("GET"); ask() })
}

// BenchmarkRouteMatch matches one route that has a subrouter.
func BenchmarkRouteMatch(b *testing.B) {
	r := mux.NewRouter()
	above := r.PathPrefix("/s")
	sub := above.Subrouter()
	const routes = 1000
	for i := range routes {
		sub.Handle(fmt.Sprintf("/r%d/{x}", i), nothing)
	}
	req := request("/s/r999/1")
	b.ReportAllocs()
	for b.Loop() {
		var m mux.RouteMatch
		if !above.Match(req, &m) {
			b.Fatal("no match")
		}
	}
}

// BenchmarkCopiedRouter serves a new copy of the Router value each time.
func BenchmarkCopiedRouter(b *testing.B) {
	r := manyRoutes(1000)
	for name, h := range map[string]http.Handler{
		"pointer": r,
		"value": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			copied := *r
			copied.ServeHTTP(w, req)
		}),
	} {
		b.Run("by="+name, func(b *testing.B) {
			req, w := request("/r998"), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				fresh := *req
				h.ServeHTTP(w, &fresh)
			}
		})
	}
}

// BenchmarkRebuild compiles all routes again, as after any change.
func BenchmarkRebuild(b *testing.B) {
	const routes = 1000
	r := manyRoutes(routes)
	for b.Loop() {
		r.SkipClean(false)
		get(r, "GET", "/r998")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/routes, "ns/route")
}
