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

// An outcome is all that can be seen of one request.
type outcome struct {
	status   int
	header   http.Header
	body     string
	panicked bool
	log      []string
	notNil   []bool

	// outside is what code around the router sees of its request afterwards, and
	// routeAfter the route.
	outside    string
	routeAfter string

	match    matchResult
	matchLog []string
	cors     string
	routes   []matchResult

	network string
}

func (w *world) outcomeOf(spec requestSpec) (o outcome) {
	w.log, w.notNil, w.depth = nil, nil, 0
	rec := httptest.NewRecorder()
	req := spec.request()
	o.panicked = panicOf(func() { w.served.ServeHTTP(rec, req) }) != ""
	o.status, o.header, o.body, o.log, o.notNil = rec.Code, rec.Header(), rec.Body.String(), w.log, w.notNil
	o.outside = fmt.Sprint(req.Method, req.RemoteAddr, req.Form, req.URL, w.ask.vars(req))
	o.routeAfter = w.ask.currentRoute(req)

	w.log = nil
	o.panicked = panicOf(func() { o.match = w.served.match(spec.request()) }) != "" || o.panicked
	o.matchLog = w.log
	o.cors = w.cors(spec)
	for _, rt := range w.routes {
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
		o.network = w.overNetwork(spec)
	}
	return o
}

// comparable leaves away what may differ: an empty map of variables, and which
// function a handler is.
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

// A pairing is what is compared: gorilla, and this package in one of its modes.
type pairing struct {
	theirs, ours *world
	encoded      bool // some router matches encoded paths

	// shared is set if one of the two gives the request itself to middleware:
	// this package with ShareRequest, gorilla without route and router in the
	// context.
	shared bool
}

// compare sends one request to both and reports the first difference that is
// not among the deliberate ones of docs/mux.md.
func (p *pairing) compare(spec requestSpec) string {
	want, got := p.theirs.outcomeOf(spec), p.ours.outcomeOf(spec)
	if diff := compareVars(got, want); diff != "" {
		return diff
	}
	if p.shared {
		// The server sees what middleware changes, as a method.
		want.network, got.network = "", ""
	} else if diff := compareOutside(got, want); diff != "" {
		return diff
	}
	// Route.Use middleware runs here also after an earlier mismatch.
	for _, o := range []*outcome{&want, &got} {
		o.log, o.matchLog = withoutRouteMiddleware(o.log), withoutRouteMiddleware(o.matchLog)
	}
	u := spec.request().URL
	if p.encoded && want.status == 301 && got.status == 301 && u.EscapedPath() != u.Path {
		// Redirects keep the encoding here.
		want.header.Del("Location")
		got.header.Del("Location")
		want.body, got.body = "", ""
		want.network, got.network = "", ""
	}
	// Redirects of paths that look like hosts stay on the host here.
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
// none. Here a matched route without variables has an empty map, as in v1.8.1.
func compareVars(got, want outcome) string {
	if len(got.notNil) != len(want.notNil) {
		return "" // middleware of routes
	}
	for i, notNil := range want.notNil {
		if notNil && !got.notNil[i] {
			return fmt.Sprintf("variables %d: nil, but not in gorilla\n%q", i, got.log)
		}
	}
	return ""
}

// compareOutside compares what is seen around the router. A static route without
// middleware, and an answer without a route, leave their mark here.
func compareOutside(got, want outcome) string {
	if got.outside != want.outside {
		return fmt.Sprintf("request outside: got %q, gorilla %q", got.outside, want.outside)
	}
	// What comes after the handler is an inner turn.
	first := slices.IndexFunc(got.log, func(line string) bool {
		return strings.HasPrefix(line, "enter ") || strings.HasPrefix(line, "handler ")
	})
	shared := first < 0 || strings.HasPrefix(got.log[first], "handler ")
	if got.routeAfter != want.routeAfter && !shared {
		return fmt.Sprintf("route afterwards: got %q, gorilla %q\n%q", got.routeAfter, want.routeAfter, got.log)
	}
	return ""
}

func (w *world) cors(spec requestSpec) (methods string) {
	rec := httptest.NewRecorder()
	h := w.served.corsMethods()(http.NotFoundHandler())
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

// compareRoutes compares the getters, the names and the order of Walk.
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
			continue // gorilla garbles these URLs
		}
		for _, pairs := range [][]string{pairs, {"x", "1"}, {"x"}, nil} {
			// Errors quote no values here.
			urls := func(w *world, rt route) []string {
				w.log = nil
				urls := rt.urls(pairs...)
				for i := range urls {
					urls[i] = valueMismatch.ReplaceAllString(urls[i], "value")
					urls[i] = oddPairs.ReplaceAllString(urls[i], "pairs")
				}
				return append(urls, w.log...)
			}
			equal(fmt.Sprintf("URLs of route %d from %q", i, pairs), urls(p.ours, got), urls(p.theirs, want))
		}
	}
	for _, name := range []string{"n1", "n2", "n3", "none"} {
		equal("the route named "+name, []string{p.ours.served.named(name)}, []string{p.theirs.served.named(name)})
	}
	equal("Walk", p.ours.served.walk(), p.theirs.served.walk())
}
