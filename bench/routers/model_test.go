package routers_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// A chooser turns the bytes of a fuzz input into choices. After the last byte
// all choices are zero, so that short inputs make small tables.
type chooser struct {
	data []byte
}

func (d *chooser) below(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

func (d *chooser) oneIn(n int) bool { return d.below(n) == n-1 }

func pick[T any](d *chooser, from []T) T { return from[d.below(len(from))] }

// A table describes a router.
type table struct {
	strictSlash, skipClean, encoded bool
	omitRoute, omitRouter           bool
	notFound, notAllowed            bool
	middlewares                     []int // kinds
	routes                          []routeSpec

	// lateStrict switches StrictSlash after the first route.
	lateStrict bool
}

// A change describes a change of a router that has already served.
type change struct {
	on   int // 0 and 1: the root or a copy of its value, others: a route
	kind int
	spec routeSpec
	step step
}

// A scenario is a table, requests to it, and changes between the requests.
type scenario struct {
	*table

	// compiler selects the RegexpCompileFunc; see compilerOf.
	compiler int

	// copied means that a copy of the Router value serves.
	copied bool

	before, after []requestSpec
	changes       []change

	// grouped means that the changes are published as one.
	grouped bool
}

func newScenario(d *chooser) scenario {
	s := scenario{table: newTable(d, "", 2)}
	if d.oneIn(12) {
		s.compiler = 1 + d.below(compilerKinds-1)
	}
	s.copied = d.oneIn(8)
	for range 6 {
		s.before = append(s.before, newRequestSpec(d, s.table))
	}
	if d.oneIn(2) {
		s.grouped = d.oneIn(3)
		for i := range 1 + d.below(3) {
			s.changes = append(s.changes, newChange(d, "late"+string(rune('0'+i))))
		}
		// Some of the first requests, and new ones.
		s.after = append(s.after, s.before[:3]...)
		for range 4 {
			s.after = append(s.after, newRequestSpec(d, s.table))
		}
	}
	return s
}

const changeKinds = 10

func newChange(d *chooser, label string) change {
	c := change{on: d.below(8), kind: d.below(changeKinds)}
	switch {
	case c.on < 2:
		c.spec = newRouteSpec(d, label, 1)
	default:
		c.step = newStep(d, label)
	}
	return c
}

type routeSpec struct {
	steps       []step
	handler     bool
	reenter     string // path with which the handler calls the root again, or empty
	buildOnly   bool
	name        string
	middlewares int
	sub         *table // tried after the steps so far
	after       []step // added after the subrouter
}

// A step is one call on a route.
type step struct {
	call  string
	args  []string
	kind  int
	label string
}

// The fragments are chosen so that templates and paths match often, and that
// they include special cases: slashes, encodings, invalid UTF-8, line ends.
var (
	templateParts = []string{
		"/a", "/b", "/", "/{x}", "/{y}", "/a/b", "/{x:[0-9]+}", "/{z:.*}", "-{y}", ".json", "/{x}-{y}", "/1",
		"/{w:[a-z]*}", "/{x:a|b}", "/{x:(?:a|/)+}", "/ab", "/{x:.+}", "/é", "{x}", "/{v:[^a]+}", "/{x:[^/]+?}",
		"/{x:(?i)ab}", "/{x:^a}", "/{x:a$}", "/a//b", "/..", "/\uFFFD", "/{x:\\w+}", "/{x:[\\s\\S]+}", "/{x:.}", "/%2F",
		"/{x:a{1,2}}", "/{x:é+}", "//", "/a{x:/b}", "/{y:[^-]+}-b", "/{x:}", "/{", "/{}", "}", "/{x:[}", "a", "/{x:\\Ba}",
		"/a%", "/{x:(a)}",
	}
	hostTemplates = []string{
		"a.com", "{h}.com", "{h}.{i}", "{h:[a-z]+}.com", "a.com:80", "{h:.*}", "{h:(?:a|b)}.com", "{x}.com", "a",
		"{h}.com:{p:[0-9]+}",
	}
	hosts      = []string{"a.com", "b.com", "a.com:80", "a.b.com", "A.com", "", "a", "[::1]:80", "1.com"}
	methods    = []string{"GET", "POST", "OPTIONS", "get", "HEAD", ""}
	queryPairs = [][]string{{"k", "v"}, {"k", "{q}"}, {"k", ""}, {"k", "{q:[0-9]+}"}, {"k", "{x}"},
		{"k", "v", "l", "{l}"}, {"k"}, {"", "v"}, {"{k}", "v"}, {"k", "a{q}b"}, {"k", "{q:.+}"}, {"k%", "100%"}}
	queries = []string{"", "k=v", "k=1", "k=", "k", "l=2&k=v", "k=v;l=1", "k=%zz&k=v", "%6b=v", "k=a+b", "k=a1b",
		"k=1&k=v", "=v", "k=v%0a", "{k}=v", "k%25=100%25"}
	headerPairs = [][]string{{"X-A", "1"}, {"X-A", ""}, {"x-a", "1", "X-B", ""}, {"X-A"}, {"X-A", "2", "X-A", "1"}}
	headerExprs = [][]string{{"X-A", "[", "X-A", "1"}, {"X-A", "^[0-9]$"}, {"X-A", ""}, {"X-A", "["}, {"X-A"}}
	schemeLists = [][]string{{"http"}, {"https"}, {"HTTPS", "http"}, {}}
	pathParts   = []string{"/a", "/b", "/", "/1", "/ab", "/a-b", "-", ".json", "/é", "\n", "\xff", "%2F", "/.", "/..",
		"//", "a", "/A", "/\uFFFD", "%25", "/x.json", "\x00", "/%61", ":", "/12"}
	tableMethods = []string{"GET", "POST", "GET", "OPTIONS", "HEAD", "CONNECT"}
)

// newTable makes a table. depth limits the nesting of subrouters.
func newTable(d *chooser, label string, depth int) *table {
	t := &table{
		strictSlash: d.oneIn(3),
		skipClean:   d.oneIn(4),
		encoded:     d.oneIn(6),
		notFound:    d.oneIn(5),
		notAllowed:  d.oneIn(5),
		lateStrict:  d.oneIn(8),
	}
	if d.oneIn(10) {
		t.omitRoute, t.omitRouter = d.oneIn(2), d.oneIn(2)
	}
	for range d.below(3) {
		t.middlewares = append(t.middlewares, d.below(middlewareKinds))
	}
	for i := range 1 + d.below(6) {
		t.routes = append(t.routes, newRouteSpec(d, label+string(rune('a'+i)), depth))
	}
	return t
}

func newRouteSpec(d *chooser, label string, depth int) routeSpec {
	r := routeSpec{handler: !d.oneIn(8), buildOnly: d.oneIn(20)}
	if d.oneIn(3) {
		r.name = pick(d, []string{"n1", "n2"})
	}
	if d.oneIn(4) {
		r.middlewares = 1 + d.below(2)
	}
	for i := range 1 + d.below(3) {
		r.steps = append(r.steps, newStep(d, label+string(rune('0'+i))))
	}
	if d.oneIn(8) {
		r.reenter = pick(d, []string{"/a", "/b", "/1", "/ab", "/a/b", "/none"})
	}
	if depth > 0 && d.oneIn(3) {
		if d.oneIn(2) {
			// A subrouter that matches many requests.
			r.steps = []step{{call: "PathPrefix", args: []string{pick(d, []string{"/{x}", "/a", "/{x:[0-9]+}", "/{y}"})},
				label: label + "0"}}
		}
		r.sub = newTable(d, label+"/", depth-1)
		r.handler = d.oneIn(6)
		if d.oneIn(6) {
			r.after = append(r.after, newStep(d, label+"+"))
		}
	}
	return r
}

func newStep(d *chooser, label string) step {
	s := step{label: label}
	switch d.below(17) {
	default:
		s.call, s.args = "Path", []string{newTemplate(d)}
	case 7, 8:
		s.call, s.args = "PathPrefix", []string{newTemplate(d)}
	case 9, 10:
		s.call, s.args = "Methods", []string{pick(d, methods)}
		if d.oneIn(3) {
			s.args = append(s.args, pick(d, methods))
		}
	case 11:
		s.call, s.args = "Host", []string{pick(d, hostTemplates)}
	case 12:
		s.call, s.args = "Queries", pick(d, queryPairs)
	case 13:
		s.call, s.args = "Headers", pick(d, headerPairs)
		if d.oneIn(2) {
			s.call, s.args = "HeadersRegexp", pick(d, headerExprs)
		}
	case 14:
		s.call, s.args = "Schemes", pick(d, schemeLists)
	case 15:
		s.call, s.kind = "MatcherFunc", d.below(matcherFuncKinds)
	case 16:
		s.call = "BuildVarsFunc"
	}
	return s
}

func newTemplate(d *chooser) string {
	var b strings.Builder
	for range d.below(4) {
		b.WriteString(pick(d, templateParts[:len(templateParts)-8]))
	}
	if d.oneIn(12) {
		b.WriteString(pick(d, templateParts))
	}
	return b.String()
}

// A requestSpec describes a request; each instance gets a new one.
type requestSpec struct {
	method, host, path, query string
	absolute, opaqueHost      bool
	headerA                   []string

	// overNetwork means that it is also sent to a server.
	overNetwork bool
}

// matchingPath returns a path that some route of the table may match: its
// templates with values for the variables.
func (t *table) matchingPath(d *chooser) (path string) {
	for t != nil {
		r := &t.routes[d.below(len(t.routes))]
		for _, s := range r.steps {
			if s.call == "Path" || s.call == "PathPrefix" {
				path += variableParts.ReplaceAllStringFunc(s.args[0],
					func(string) string { return pick(d, []string{"a", "1", "b", "ab"}) })
			}
		}
		t = r.sub
	}
	return path
}

var variableParts = regexp.MustCompile(`\{[^}]*\}+`)

func newRequestSpec(d *chooser, t *table) requestSpec {
	r := requestSpec{
		method: pick(d, tableMethods),
		host:   pick(d, hosts),
		query:  pick(d, queries),
	}
	if d.oneIn(2) {
		r.path = t.matchingPath(d)
	}
	if r.path == "" || d.oneIn(8) {
		for range 1 + d.below(4) {
			r.path += pick(d, pathParts)
		}
	}
	r.absolute = d.oneIn(10)
	r.opaqueHost = d.oneIn(20)
	if d.oneIn(3) {
		r.headerA = []string{"1"}
	}
	r.overNetwork = d.oneIn(16)
	return r
}

func (r requestSpec) request() *http.Request {
	u := &url.URL{Path: r.path, RawQuery: r.query}
	if plain, err := url.PathUnescape(r.path); err == nil && plain != r.path {
		u.Path, u.RawPath = plain, r.path
	}
	if r.absolute {
		u.Scheme, u.Host = "http", r.host
	}
	if r.opaqueHost {
		u.Host = r.host // as in a CONNECT
	}
	req := &http.Request{Method: r.method, URL: u, Host: r.host, Header: http.Header{}}
	if r.headerA != nil {
		req.Header["X-A"] = r.headerA
	}
	return req
}
