package routers_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gorilla "github.com/gorilla/mux"

	"github.com/pulsegate/pulsegate/mux"
)

const (
	matcherFuncKinds = 12
	middlewareKinds  = 8
	compilerKinds    = 4
)

// A world is one of the two packages with a router built from a table, and the
// log of what user code saw.
type world struct {
	root   router
	served router // the root, or a copy of its value
	routes []route
	ask    asker
	log    []string

	// notNil has for each time that variables were asked for whether there was a
	// map.
	notNil []bool

	// update makes several changes as one, as far as the package can.
	update func(func())

	// depth is how often the request has been given back to the root, and most
	// how often that may be.
	depth, most int
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) build(t *table, r router, label string) {
	r.setFlags(t)
	var notFound, notAllowed http.Handler
	if t.notFound {
		notFound = w.handler(label+"404", "")
	}
	if t.notAllowed {
		notAllowed = w.handler(label+"405", "")
	}
	r.setHandlers(notFound, notAllowed)
	for i, kind := range t.middlewares {
		r.use(w.middleware(fmt.Sprintf("%smw%d", label, i), kind))
	}
	for i := range t.routes {
		w.buildRoute(&t.routes[i], r, fmt.Sprintf("%s%d", label, i))
		if t.lateStrict {
			r.setStrict(!t.strictSlash)
		}
	}
}

func (w *world) buildRoute(spec *routeSpec, r router, label string) {
	rt := r.newRoute()
	w.routes = append(w.routes, rt)
	rt.label(label)
	for _, s := range spec.steps {
		w.apply(rt, s)
	}
	if spec.name != "" {
		rt.setName(spec.name)
	}
	if spec.handler {
		rt.handler(w.handler(label, spec.again))
	}
	if spec.buildOnly {
		rt.buildOnly()
	}
	for i := range spec.middlewares {
		rt.use(w.middleware(fmt.Sprintf("%sroute%d", label, i), 0))
	}
	if spec.sub != nil {
		w.build(spec.sub, rt.subrouter(), label+"/")
	}
	for _, s := range spec.after {
		w.apply(rt, s)
	}
}

func (w *world) apply(rt route, s step) {
	rt.apply(s, w.matcher(s), func(vars map[string]string) map[string]string {
		w.say("build vars %s %q", s.label, vars)
		vars["x"] = "1" + vars["x"]
		return vars
	})
}

// see writes down what a request shows of its route.
func (w *world) see(what string, req *http.Request) {
	vars := w.ask.vars(req)
	w.notNil = append(w.notNil, vars != nil)
	w.say("%s vars %q route %s router %v request %s %s %s form %v", what, vars, w.ask.currentRoute(req), w.ask.hasRouter(req),
		req.Method, req.URL, req.RemoteAddr, req.Form)
}

// handler returns a handler that may give the request back to the root, with
// another path.
func (w *world) handler(label, again string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.see("handler "+label, req)
		if again != "" && w.depth < w.most {
			w.depth++
			req.URL.Path, req.URL.RawPath = again, ""
			w.served.ServeHTTP(rw, req)
			w.see("handler again "+label, req)
			return
		}
		rw.WriteHeader(299)
		fmt.Fprint(rw, label)
	})
}

// middleware returns middleware that does one of the things that it may do.
func (w *world) middleware(label string, kind int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		w.say("wrap %s", label)
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			w.see("enter "+label, req)
			inner := req
			switch kind {
			case 1:
				req.Method = map[string]string{"HEAD": "GET", "GET": "POST"}[req.Method]
			case 2:
				req.RemoteAddr = "changed by " + label
			case 3:
				_ = req.ParseForm() // an error is the same in both
			case 4:
				inner = req.Clone(req.Context())
			case 5:
				shallow := *req
				inner = &shallow
				inner.Method = "INNER"
			case 6:
				req.URL.Path = "/rewritten"
			}
			next.ServeHTTP(rw, inner)
			w.see("leave "+label, req)
		})
	}
}

// matcher returns a MatcherFunc that does one of the things that they may do.
func (w *world) matcher(s step) matcherFunc {
	return func(req *http.Request, m *matchState) bool {
		w.say("matcher %s vars %q route %s err %s handler %v path %s", s.label, m.vars, m.route, m.err, m.handler != nil, req.URL.Path)
		switch s.kind {
		case 1:
			return false
		case 2:
			return req.Method == "GET"
		case 3, 4:
			vars := maps.Clone(m.vars)
			if vars == nil {
				vars = map[string]string{}
			}
			vars["x"], vars["set"] = "set", s.label
			m.vars = vars
			return s.kind == 3
		case 5:
			m.handler = w.handler("set by "+s.label, "")
		case 6:
			m.err = "notfound"
			return false
		case 7:
			m.err = "method"
			return false
		case 8:
			return strings.HasPrefix(req.URL.Path, "/a")
		case 9, 10:
			req.URL.Path, req.URL.RawPath = map[string]string{"/a": "/b", "/b": "/a/b", "/1": "/a"}[req.URL.Path]+"/1", ""
			return s.kind == 9
		case 11:
			req.Host = "a.com"
			return false
		}
		return true
	}
}

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

// make applies the changes of a scenario. Only one of the root and its copy is
// changed: gorilla's would overwrite each other's routes.
func (w *world) make(changes []change) {
	changed := w.root
	if len(changes) > 0 && changes[0].on%2 == 1 {
		changed = w.served
	}
	for i, c := range changes {
		label := fmt.Sprintf("late%d", i)
		switch {
		case c.on < 2:
			w.changeRouter(changed, c, label)
		case len(w.routes) > 0:
			w.changeRoute(w.routes[c.on%len(w.routes)], c, label)
		}
	}
}

func (w *world) changeRouter(r router, c change, label string) {
	switch c.kind {
	case 0:
		r.use(w.middleware(label+"mw", 0))
	case 1:
		r.setStrict(true)
	default:
		w.buildRoute(&c.spec, r, label)
	}
}

func (w *world) changeRoute(rt route, c change, label string) {
	switch c.kind {
	case 0:
		rt.handler(w.handler(label, ""))
	case 1:
		rt.buildOnly()
	case 2:
		rt.setName("n3")
	case 3:
		sub := rt.subrouter()
		sub.newRoute().handler(w.handler(label, ""))
	default:
		w.apply(rt, c.step)
	}
}

// check builds one scenario with both packages and compares some requests.
func check(t *testing.T, data []byte) {
	t.Helper()
	s := newScenario(&dice{data})
	defer func(theirs, ours func(string) (*regexp.Regexp, error)) {
		gorilla.RegexpCompileFunc, mux.RegexpCompileFunc = theirs, ours
	}(gorilla.RegexpCompileFunc, mux.RegexpCompileFunc)
	if compile := compilerOf(s.compiler); compile != nil {
		gorilla.RegexpCompileFunc, mux.RegexpCompileFunc = compile, compile
	}
	checkPair(t, s, false)
	if !s.usesOmit() {
		checkPair(t, s, true)
	}
}

func checkPair(t *testing.T, s scenario, share bool) {
	t.Helper()
	theirs := &world{ask: gorillaAsker, root: gorillaRouter{gorilla.NewRouter()}, update: func(f func()) { f() }}
	own := mux.NewRouter().ShareRequest(share)
	ours := &world{ask: oursAsker, root: oursRouter{own}, update: own.Update}
	// Without route and router in the context gorilla gives the request itself to
	// middleware. That of an inner turn would change the outer one's.
	omitted := s.omitRoute && s.omitRouter
	if !omitted {
		theirs.most, ours.most = 2, 2
	}
	// both does the same with both.
	both := func(what string, f func(*world)) (panicked bool) {
		want, got := panicOf(func() { f(theirs) }), panicOf(func() { f(ours) })
		if got != want {
			t.Fatalf("%s: %s, gorilla %s\n%s", what, got, want, s.table)
		}
		return want != ""
	}
	if both("building", func(w *world) { w.build(s.table, w.root, "") }) {
		return
	}
	both("copying", func(w *world) {
		w.served = w.root
		if s.copied {
			w.served = w.root.copied()
		}
	})
	p := &pairing{theirs, ours, s.usesEncoding(), share || omitted}
	send := func(when string, specs []requestSpec) {
		t.Helper()
		p.compareRoutes(t, s.table)
		for _, spec := range specs {
			if diff := p.compare(spec); diff != "" {
				t.Fatalf("share %v, %s: %s\nrequest %+q\nchanges %+q\n%s", share, when, diff, fmt.Sprint(spec), fmt.Sprint(s.changes), s.table)
			}
		}
	}
	send("at first", s.before)
	panicked := both("changing", func(w *world) {
		update := func(f func()) { f() }
		if s.grouped {
			update = w.update
		}
		update(func() { w.make(s.changes) })
	})
	if !panicked {
		send("after the changes", s.after)
	}
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

// compilerOf returns one of the functions that programs may compile with.
func compilerOf(kind int) func(string) (*regexp.Regexp, error) {
	switch kind {
	case 1:
		return regexp.CompilePOSIX
	case 2:
		return func(s string) (*regexp.Regexp, error) { return regexp.Compile("(?i)" + s) }
	case 3:
		kept := make(map[string]*regexp.Regexp)
		return func(s string) (*regexp.Regexp, error) {
			if re := kept[s]; re != nil {
				return re, nil
			}
			re, err := regexp.Compile(s)
			if err == nil {
				kept[s] = re
			}
			return re, err
		}
	default:
		return nil
	}
}

// usesEncoding reports whether a router of the table matches encoded paths.
func (t *table) usesEncoding() bool {
	return t.encoded || slices.ContainsFunc(t.routes, func(r routeSpec) bool { return r.sub != nil && r.sub.usesEncoding() })
}

// usesOmit reports whether the root leaves the route or the router away.
func (t *table) usesOmit() bool { return t.omitRoute || t.omitRouter }

// String prints the table for a failed test.
func (t *table) String() string { return t.indented("  ") }

func (t *table) indented(by string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%sstrict=%v late=%v skipClean=%v encoded=%v omit=%v,%v 404=%v 405=%v middlewares=%v\n",
		by, t.strictSlash, t.lateStrict, t.skipClean, t.encoded, t.omitRoute, t.omitRouter, t.notFound, t.notAllowed, t.middlewares)
	for i, r := range t.routes {
		fmt.Fprintf(&b, "%sroute %d: %+q handler=%v again=%q buildOnly=%v name=%q middlewares=%d after=%+q\n",
			by, i, fmt.Sprint(r.steps), r.handler, r.again, r.buildOnly, r.name, r.middlewares, fmt.Sprint(r.after))
		if r.sub != nil {
			b.WriteString(r.sub.indented(by + "  "))
		}
	}
	return b.String()
}

// TestAgainstGorilla compares both packages on random scenarios.
func TestAgainstGorilla(t *testing.T) {
	tables := 10_000
	if testing.Short() {
		tables = 1_000
	}
	for seed := range uint64(tables) {
		check(t, randomBytes(seed))
	}
}

func randomBytes(seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, 40+rnd.IntN(360))
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	return data
}

// FuzzAgainstGorilla does the same with tables made by the fuzzer.
func FuzzAgainstGorilla(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a table of routes and some requests to it, as good as any other"))
	for seed := range uint64(20) {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const maxBytes = 800 // enough for a scenario
		if len(data) > maxBytes {
			return
		}
		check(t, data)
	})
}
