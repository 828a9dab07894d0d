package routers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An outcome holds everything that can be observed of one request.
type outcome struct {
	status   int
	header   http.Header
	body     string
	panicked bool
	log      []string
	hasVars  []bool

	// requestAfter describes the request after ServeHTTP as code around the
	// router sees it, and routeAfter is its route.
	requestAfter string
	routeAfter   string

	match    matchResult
	matchLog []string
	cors     string
	routes   []matchResult

	network string
}

func (in *instance) outcomeOf(spec requestSpec) (o outcome) {
	in.log, in.hasVars, in.depth = nil, nil, 0
	rec := httptest.NewRecorder()
	req := spec.request()
	o.panicked = panicOf(func() { in.served.ServeHTTP(rec, req) }) != ""
	o.status, o.header, o.body, o.log, o.hasVars = rec.Code, rec.Header(), rec.Body.String(), in.log, in.hasVars
	o.requestAfter = fmt.Sprint(req.Method, req.RemoteAddr, req.Form, req.URL, in.access.vars(req))
	o.routeAfter = in.access.currentRoute(req)

	in.log = nil
	o.panicked = panicOf(func() { o.match = in.served.match(spec.request()) }) != "" || o.panicked
	o.matchLog = in.log
	o.cors = in.cors(spec)
	for _, rt := range in.routes {
		for _, match := range []func(*http.Request) matchResult{rt.match, rt.matchCopy} {
			var m matchResult
			if panicOf(func() { m = match(spec.request()) }) != "" {
				m.route = "panic"
			}
			o.routes = append(o.routes, m.comparable())
		}
	}
	o.match = o.match.comparable()
	if spec.overNetwork {
		o.network = in.overNetwork(spec)
	}
	return o
}

// comparable removes what may differ: an empty map of variables, and the
// identity of a handler function.
func (m matchResult) comparable() matchResult {
	if len(m.vars) == 0 {
		m.vars = nil
	}
	m.handler = presence(m.handler)
	return m
}

// panicOf returns the text of a panic, or an empty string.
func panicOf(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint("panic: ", r)
		}
	}()
	f()
	return ""
}

// A pairing compares gorilla with this package in one of its modes.
type pairing struct {
	theirs, ours *instance
	encoded      bool // some router matches encoded paths

	// shared is set if one of the two passes the original request to
	// middleware: this package does so with ShareRequest, gorilla if neither
	// the route nor the router is stored in the context.
	shared bool
}

// compare sends one request to both and reports the first difference that is
// not one of the deliberate ones in docs/mux.md.
func (p *pairing) compare(spec requestSpec) string {
	want, got := p.theirs.outcomeOf(spec), p.ours.outcomeOf(spec)
	if diff := compareVars(got, want); diff != "" {
		return diff
	}
	if p.shared {
		// The server sees changes that middleware makes, for example of the method.
		want.network, got.network = "", ""
	} else if diff := compareAfter(got, want); diff != "" {
		return diff
	}
	// In this package, Route.Use middleware also runs after an earlier mismatch.
	for _, o := range []*outcome{&want, &got} {
		o.log, o.matchLog = withoutRouteMiddleware(o.log), withoutRouteMiddleware(o.matchLog)
	}
	u := spec.request().URL
	if p.encoded && want.status == 301 && got.status == 301 && u.EscapedPath() != u.Path {
		// In this package redirects keep the encoding.
		want.header.Del("Location")
		got.header.Del("Location")
		want.body, got.body = "", ""
		want.network, got.network = "", ""
	}
	// In this package redirects of paths that look like hosts stay on the host.
	if strings.HasPrefix(want.header.Get("Location"), "//") && !strings.HasPrefix(got.header.Get("Location"), "//") {
		want.header["Location"], want.body = got.header["Location"], got.body
		want.network, got.network = "", ""
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"panic", got.panicked, want.panicked},
		{"status", got.status, want.status},
		{"log", got.log, want.log},
		{"header", got.header, want.header},
		{"body", got.body, want.body},
		{"match", got.match, want.match},
		{"match log", got.matchLog, want.matchLog},
		{"CORS", got.cors, want.cors},
		{"matches of the routes", got.routes, want.routes},
		{"answer over the network", got.network, want.network},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			return fmt.Sprintf("%s: got %+q, gorilla %+q", c.what, fmt.Sprint(c.got), fmt.Sprint(c.want))
		}
	}
	return ""
}

// compareVars reports where gorilla has a map of variables and this package has
// none. In this package a matched route without variables has an empty map, as
// in v1.8.1.
func compareVars(got, want outcome) string {
	if len(got.hasVars) != len(want.hasVars) {
		return "" // middleware of routes
	}
	for i, hasVars := range want.hasVars {
		if hasVars && !got.hasVars[i] {
			return fmt.Sprintf("variables %d: nil, but not in gorilla\n%q", i, got.log)
		}
	}
	return ""
}

// compareAfter compares the request as seen around the router. In this package, a
// static route without middleware and an answer without a route change the
// original request.
func compareAfter(got, want outcome) string {
	if got.requestAfter != want.requestAfter {
		return fmt.Sprintf("request afterwards: got %q, gorilla %q", got.requestAfter, want.requestAfter)
	}
	// The lines after the handler's may be those of a reentrant call.
	first := slices.IndexFunc(got.log, func(line string) bool {
		return strings.HasPrefix(line, "enter ") || strings.HasPrefix(line, "handler ")
	})
	shared := first < 0 || strings.HasPrefix(got.log[first], "handler ")
	if got.routeAfter != want.routeAfter && !shared {
		return fmt.Sprintf("route afterwards: got %q, gorilla %q\n%q", got.routeAfter, want.routeAfter, got.log)
	}
	return ""
}

func (in *instance) cors(spec requestSpec) (methods string) {
	rec := httptest.NewRecorder()
	h := in.served.corsMethods()(http.NotFoundHandler())
	if text := panicOf(func() { h.ServeHTTP(rec, spec.request()) }); text != "" {
		return "panic"
	}
	return rec.Header().Get("Access-Control-Allow-Methods")
}

type present struct{}

func (present) ServeHTTP(http.ResponseWriter, *http.Request) {}

func presence(h http.Handler) http.Handler {
	if h == nil {
		return nil
	}
	return present{}
}

var routeMiddleware = regexp.MustCompile(`^(wrap|enter|leave) \S*route\d`)

func withoutRouteMiddleware(log []string) []string {
	kept := []string{}
	for _, line := range log {
		if !routeMiddleware.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return kept
}

var (
	valueMismatch = regexp.MustCompile(`mux: variable "(?:[^"\\]|\\.)*" doesn't match`)
	oddPairs      = regexp.MustCompile(`must be multiple of 2, got .*`)
)

// compareRoutes compares the results of the getters, the names and the order of Walk.
func (p *pairing) compareRoutes(t *testing.T, tab *table) {
	t.Helper()
	equal := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Fatalf("%s: got %q, gorilla %q\n%s", what, got, want, tab)
		}
	}
	pairs := []string{"x", "a", "y", "b", "z", "1", "h", "a", "i", "com", "p", "80", "q", "1", "l", "2", "v", "b", "w", ""}
	for i := range p.ours.routes {
		got, want := p.ours.routes[i], p.theirs.routes[i]
		equal(fmt.Sprintf("getters of route %d", i), got.describe(), want.describe())
		if strings.Contains(fmt.Sprint(want.describe()), "%") {
			continue // gorilla builds these URLs incorrectly
		}
		for _, pairs := range [][]string{pairs, {"x", "1"}, {"x"}, nil} {
			// In this package errors do not quote values.
			urls := func(in *instance, rt route) []string {
				in.log = nil
				urls := rt.urls(pairs...)
				for i := range urls {
					urls[i] = valueMismatch.ReplaceAllString(urls[i], "value")
					urls[i] = oddPairs.ReplaceAllString(urls[i], "pairs")
				}
				return append(urls, in.log...)
			}
			equal(fmt.Sprintf("URLs of route %d from %q", i, pairs), urls(p.ours, got), urls(p.theirs, want))
		}
	}
	for _, name := range []string{"n1", "n2", "n3", "none"} {
		equal("the route named "+name, []string{p.ours.served.named(name)}, []string{p.theirs.served.named(name)})
	}
	equal("Walk", p.ours.served.walk(), p.theirs.served.walk())
}
