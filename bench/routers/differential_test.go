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

const matcherFuncKinds = 9

// A world is one of the two packages with a router built from a table, and the
// log of what user code saw.
type world struct {
	root   router
	routes []route
	ask    asker
	log    []string
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) build(t *table, r router, label string) {
	r.setFlags(t.strictSlash, t.skipClean, t.encoded)
	var notFound, notAllowed http.Handler
	if t.notFound {
		notFound = w.handler(label + "404")
	}
	if t.notAllowed {
		notAllowed = w.handler(label + "405")
	}
	r.setHandlers(notFound, notAllowed)
	for i := range t.middlewares {
		r.use(w.middleware(fmt.Sprintf("%smw%d", label, i)))
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
		rt.apply(s, w.matcher(s))
	}
	if spec.name != "" {
		rt.setName(spec.name)
	}
	if spec.handler {
		rt.handler(w.handler(label))
	}
	if spec.buildOnly {
		rt.buildOnly()
	}
	for i := range spec.middlewares {
		rt.use(w.middleware(fmt.Sprintf("%sroute%d", label, i)))
	}
	if spec.sub != nil {
		w.build(spec.sub, rt.subrouter(), label+"/")
	}
	for _, s := range spec.after {
		rt.apply(s, w.matcher(s))
	}
}

func (w *world) handler(label string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.say("handler %s vars %q route %s router %v", label, w.ask.vars(req), w.ask.currentRoute(req), w.ask.hasRouter(req))
		rw.WriteHeader(299)
	})
}

func (w *world) middleware(label string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		w.say("wrap %s", label)
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			w.say("enter %s vars %q route %s", label, w.ask.vars(req), w.ask.currentRoute(req))
			next.ServeHTTP(rw, req)
			w.say("leave %s", label)
		})
	}
}

// matcher returns a MatcherFunc that does one of the things that they may do.
func (w *world) matcher(s step) matcherFunc {
	return func(req *http.Request, m *matchState) bool {
		w.say("matcher %s vars %q route %s err %s handler %v", s.label, m.vars, m.route, m.err, m.handler != nil)
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
			m.handler = w.handler("set by " + s.label)
		case 6:
			m.err = "notfound"
			return false
		case 7:
			m.err = "method"
			return false
		case 8:
			return strings.HasPrefix(req.URL.Path, "/a")
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
	match    matchResult
	matchLog []string
}

func (w *world) outcomeOf(spec requestSpec, h http.Handler) (o outcome) {
	w.log = nil
	rec := httptest.NewRecorder()
	o.panicked = panics(func() { h.ServeHTTP(rec, spec.request()) })
	o.status, o.header, o.body, o.log = rec.Code, rec.Header(), rec.Body.String(), w.log
	w.log = nil
	o.panicked = panics(func() { o.match = w.root.match(spec.request()) }) || o.panicked
	o.matchLog = w.log
	if len(o.match.vars) == 0 {
		o.match.vars = nil
	}
	return o
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// compare sends one request to both and reports the first difference that is
// not among the deliberate ones.
func compare(spec requestSpec, encoded bool, theirs, ours *world) string {
	want, got := theirs.outcomeOf(spec, theirs.root), ours.outcomeOf(spec, ours.root)
	// Route.Use middleware runs here also after an earlier mismatch.
	for _, o := range []*outcome{&want, &got} {
		o.log, o.matchLog = withoutRouteMiddleware(o.log), withoutRouteMiddleware(o.matchLog)
	}
	u := spec.request().URL
	if encoded && want.status == 301 && got.status == 301 && u.EscapedPath() != u.Path {
		// Redirects keep the encoding here.
		want.header.Del("Location")
		got.header.Del("Location")
		want.body, got.body = "", ""
	}
	// Redirects of paths that look like hosts stay on the host here.
	if strings.HasPrefix(want.header.Get("Location"), "//") && !strings.HasPrefix(got.header.Get("Location"), "//") {
		want.header["Location"], want.body = got.header["Location"], got.body
	}
	want.match.handler, got.match.handler = presence(want.match.handler), presence(got.match.handler)
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
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			return fmt.Sprintf("%s: got %+v, gorilla %+v", c.what, c.got, c.want)
		}
	}
	gotCORS, wantCORS := ours.cors(spec), theirs.cors(spec)
	if gotCORS != wantCORS {
		return fmt.Sprintf("CORS: got %q, gorilla %q", gotCORS, wantCORS)
	}
	return ""
}

func (w *world) cors(spec requestSpec) (methods string) {
	rec := httptest.NewRecorder()
	h := w.root.corsMethods()(http.NotFoundHandler())
	if panics(func() { h.ServeHTTP(rec, spec.request()) }) {
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

// check builds one table with both packages and compares some requests.
func check(t *testing.T, data []byte) {
	t.Helper()
	d := &dice{data}
	tab := newTable(d, "", 2)
	var theirs, ours *world
	wantPanic := panics(func() {
		theirs = &world{ask: gorillaAsker, root: gorillaRouter{gorilla.NewRouter()}}
		theirs.build(tab, theirs.root, "")
	})
	gotPanic := panics(func() {
		ours = &world{ask: oursAsker, root: oursRouter{mux.NewRouter()}}
		ours.build(tab, ours.root, "")
	})
	if gotPanic != wantPanic {
		t.Fatalf("building: panic %v, gorilla %v\n%s", gotPanic, wantPanic, tab)
	}
	if gotPanic {
		return
	}
	for i := range ours.routes {
		got, want := ours.routes[i].describe(), theirs.routes[i].describe()
		if !slices.Equal(got, want) && !strings.Contains(fmt.Sprint(tab), "%") {
			t.Fatalf("route %d: getters: got %q, gorilla %q\n%s", i, got, want, tab)
		}
	}
	for range 8 {
		spec := newRequestSpec(d)
		if diff := compare(spec, tab.usesEncoding(), theirs, ours); diff != "" {
			t.Fatalf("%s\nrequest %+q\n%s", diff, fmt.Sprint(spec), tab)
		}
	}
}

// usesEncoding reports whether a router of the table matches encoded paths.
func (t *table) usesEncoding() bool {
	return t.encoded || slices.ContainsFunc(t.routes, func(r routeSpec) bool { return r.sub != nil && r.sub.usesEncoding() })
}

// String prints the table for a failed test.
func (t *table) String() string { return t.indented("  ") }

func (t *table) indented(by string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%sstrict=%v late=%v skipClean=%v encoded=%v 404=%v 405=%v middlewares=%d\n",
		by, t.strictSlash, t.lateStrict, t.skipClean, t.encoded, t.notFound, t.notAllowed, t.middlewares)
	for i, r := range t.routes {
		fmt.Fprintf(&b, "%sroute %d: %+q handler=%v buildOnly=%v name=%q middlewares=%d after=%+q\n",
			by, i, fmt.Sprint(r.steps), r.handler, r.buildOnly, r.name, r.middlewares, fmt.Sprint(r.after))
		if r.sub != nil {
			b.WriteString(r.sub.indented(by + "  "))
		}
	}
	return b.String()
}

// TestAgainstGorilla compares both packages on random tables.
func TestAgainstGorilla(t *testing.T) {
	tables := 20_000
	if testing.Short() {
		tables = 2_000
	}
	for seed := range uint64(tables) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 40+rnd.IntN(260))
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		check(t, data)
	}
}

// FuzzAgainstGorilla does the same with tables made by the fuzzer.
func FuzzAgainstGorilla(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a table of routes and some requests to it, as good as any other"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const maxBytes = 600 // a table and eight requests need no more
		if len(data) > maxBytes {
			return
		}
		check(t, data)
	})
}
